// Registry: what a client owns, kept so that it can be registered with the next engine. Internal.
//
// Plain data of the session, under its locks. Keys are the library's handles.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/layout.h"
#include "clientlib/types.h"
#include "shm/file_descriptor.h"

namespace wherry::detail {

// Pages this process mapped for a region; unmapped with it.
class OwnMapping {
 public:
  OwnMapping() = default;
  OwnMapping(std::byte* address, uint64_t bytes) : address_(address), bytes_(bytes) {}
  OwnMapping(OwnMapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(other.bytes_) {}
  OwnMapping& operator=(OwnMapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~OwnMapping();

  // A shared mapping of `bytes` of the file, from `offset` on.
  static Result<OwnMapping> map(int fd, uint64_t offset, uint64_t bytes, bool writable);

  std::byte* address() const { return address_; }

 private:
  std::byte* address_ = nullptr;
  uint64_t bytes_ = 0;
};

struct OwnRegion {
  shm::UniqueFd memory;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  OwnMapping mapping;
};

struct Publication {
  Tier tier = Tier::kG2;
  Rights rights = Rights::kRead;
  std::vector<InstanceId> to;  // empty = everybody
};

struct OwnLayout {
  LayoutSpec spec;
  std::vector<Publication> publications;
};

struct Registry {
  std::map<uint64_t, OwnRegion> regions;
  std::map<uint64_t, OwnLayout> layouts;
  std::set<uint64_t> found;                                     // layouts and clients
  std::map<std::pair<InstanceId, uint32_t>, uint64_t> clients;  // found ones, by name
};

}  // namespace wherry::detail
