// Exports: which layouts can be found, by whom, who waits for one, and who found what.
//
// Owned and used by the control thread: plain tables, no messages and no waiting here. A layout is
// found by (instance, rank, tier) of its owner; at most one is published there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/control/timers.h"
#include "engine/tables.h"
#include "shm/geometry.h"
#include "shm/status.h"

namespace wherry::engine {

struct ExportKey {
  std::string instance;
  uint32_t rank = 0;
  Tier tier = Tier::kG2;

  bool operator<(const ExportKey& other) const {
    return std::tie(instance, rank, tier) < std::tie(other.instance, other.rank, other.tier);
  }
  std::string to_string() const;  // "prefill/0 tier G2"
};

// `view` is the publication's own: a copy of the layout's, so that uses by finders are counted
// apart from the owner's, and taking it back does not wait for the owner's own requests.
struct Export {
  uint64_t session = 0;
  uint64_t layout = 0;       // handle of the owner
  uint64_t incarnation = 0;  // of the owner
  std::shared_ptr<const View> view;
  uint8_t rights = 0;
  bool to_all = false;
  std::vector<std::string> to;  // instances

  bool permits(const std::string& instance) const;
};

class Exports {
 public:
  struct Finder {
    uint64_t session = 0;
    uint64_t handle = 0;
  };
  struct Waiter {
    uint64_t number = 0;  // unique
    uint64_t session = 0;
    uint64_t request = 0;
    Timers::Id timer{};
  };

  // ALREADY_EXISTS when the session publishes another layout there (or this one: unpublish it
  // first).
  Status publish(const ExportKey& key, Export entry);
  // Null when nothing is published there.
  const Export* find(const ExportKey& key) const;
  // Takes back what the session published of this layout, or of all its layouts; the views that
  // finders may still hold.
  std::vector<std::shared_ptr<const View>> withdraw(uint64_t session, uint64_t layout);
  std::vector<std::shared_ptr<const View>> withdraw_all(uint64_t session);
  uint32_t count(uint64_t session) const;

  void add_waiter(const ExportKey& key, Waiter waiter) { waiters_.emplace(key, waiter); }
  std::vector<Waiter> take_waiters(const ExportKey& key);
  void remove_waiter(const ExportKey& key, uint64_t number);
  std::vector<Waiter> remove_waiters(uint64_t session);

  void add_finder(const View* view, Finder finder) { finders_.emplace(view, finder); }
  std::vector<Finder> take_finders(const View* view);
  void remove_finder(const View* view, Finder finder);

 private:
  std::vector<std::shared_ptr<const View>> withdraw_if(
      const std::function<bool(const Export&)>& wanted);

  std::map<ExportKey, Export> exports_;
  std::multimap<ExportKey, Waiter> waiters_;
  std::multimap<const View*, Finder> finders_;
};

}  // namespace wherry::engine
