// HandleTable: what a client's handles mean, on the control thread's side.
//
// Owned by the session; control thread only. Pollers see snapshots of it (ClientTable). A handle is
// given out once: its slot is used again with another generation, so an old handle is found to be
// stale. The first generation is random, so that a handle of another session is stale too. Nothing
// fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/tables.h"

namespace wherry::engine {

// What the control thread knows of a handle beside what pollers see.
struct Holding {
  enum class Kind : uint8_t {
    kRegion,
    kLayout,
    kFound,  // of somebody else: a layout, or a client to notify
  };
  Kind kind = Kind::kRegion;
  uint8_t rights = 0;
  std::shared_ptr<const View> view;
  std::shared_ptr<const Mapping> mapping;  // kRegion: as acquired from Mappings
  uint32_t layouts = 0;                    // kRegion: that lie in it and are not quite gone
  std::vector<uint64_t> regions;           // kLayout: handles, each once
  bool going = false;                      // freed, but not quite gone: no longer in the snapshot
};

class HandleTable {
 public:
  explicit HandleTable(uint32_t first_generation)
      : first_generation_(first_generation == 0 ? 1 : first_generation) {}

  uint64_t add(Holding holding);

  // Null for a handle that is stale or was never given out; one that is going counts as stale.
  Holding* find(uint64_t handle);

  // Takes the handle out of later snapshots; the slot stays taken until erase(). Only for
  // find()able ones.
  void retire(uint64_t handle) { slots_[static_cast<uint32_t>(handle)].holding->going = true; }

  // A handle that is there, going or not.
  Holding& at(uint64_t handle) { return *slots_[static_cast<uint32_t>(handle)].holding; }

  void erase(uint64_t handle);

  void for_each(const std::function<void(uint64_t handle, Holding& holding)>& visit);

  uint32_t count(Holding::Kind kind) const { return counts_[static_cast<uint8_t>(kind)]; }
  bool empty() const { return free_.size() == slots_.size(); }

  std::unique_ptr<const ClientTable> snapshot() const;

 private:
  struct Slot {
    uint32_t generation = 0;
    std::unique_ptr<Holding> holding;  // null = free
  };

  uint32_t first_generation_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t counts_[3] = {};
};

}  // namespace wherry::engine
