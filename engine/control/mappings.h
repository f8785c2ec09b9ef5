// Mappings: which client memory is mapped, once for all registrations that it covers.
//
// Owned and used by the control thread; the work is done by the registrar. A registration acquires
// a mapping and releases it; the mapping is taken down when the last one did. Two registrations
// share one when its range covers both, it is writable if either needs that, and its pages are all
// there. Rights are not kept here: they belong to a registration, not to the mapping.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/control/region_file.h"
#include "engine/control/registrar.h"
#include "engine/tables.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

class Mappings {
 public:
  using Ready = std::function<void(Result<std::shared_ptr<const Mapping>>)>;

  explicit Mappings(Registrar* registrar) : registrar_(registrar) {}

  // Refuses registrations whose descriptor, or copy of it (one is kept for each file), has this
  // number or a higher one: others need some too.
  void leave_descriptors(uint64_t from) { most_descriptors_ = from; }

  // `file` is what check_region_file said of `fd` and this range. `ready` is called once, at once
  // or from on_result(). The work is done in the turns of `owner`.
  void acquire(Registrar::Owner owner, const RegionFile& file, shm::UniqueFd fd, uint64_t offset,
               uint64_t length, Ready ready);

  // One acquire less; `released` is called when the caller's share is given back: at once while
  // others hold the mapping, else when it is unmapped.
  void release(const std::shared_ptr<const Mapping>& mapping, std::function<void()> released);

  // Passes on what the registrar finished.
  void on_result(const RegistrarResult& result);

  // Mapped, being mapped or being unmapped.
  size_t count() const { return entries_.size(); }

 private:
  struct Backing;

  struct Entry {
    std::shared_ptr<Mapping> mapping;
    Backing* backing = nullptr;
    Registrar::Owner owner = 0;
    uint32_t holders = 0;
    bool mapped = false;
    std::vector<Ready> waiting;      // while not mapped
    std::function<void()> released;  // while being unmapped
  };

  using FileKey = std::pair<dev_t, ino_t>;

  // One file, alive while anything of it is mapped.
  struct Backing {
    FileKey key;
    uint64_t number = 0;
    shm::UniqueFd fd;  // to tell the file from another of the same number
    std::vector<Entry*> entries;
  };

  Status check_number(int fd) const;
  Result<Backing*> backing_of(const RegionFile& file, int fd);
  void erase(Entry* entry);

  Registrar* registrar_;
  uint64_t most_descriptors_ = UINT64_MAX;
  uint64_t last_backing_ = 0;
  std::multimap<FileKey, Backing> backings_;
  std::unordered_map<const Mapping*, std::unique_ptr<Entry>> entries_;
};

}  // namespace wherry::engine
