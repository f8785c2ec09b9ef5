// Session: handles, and regions.
#include <fcntl.h>

#include <cerrno>

#include "clientlib/adopt.h"
#include "clientlib/session.h"
#include "shm/segment.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace wherry::detail {
namespace {

// What a mapping of the descriptor may be used for.
bool mappable_for_writing(int memfd) {
  const int seals = fcntl(memfd, F_GET_SEALS);
  return (fcntl(memfd, F_GETFL) & O_ACCMODE) == O_RDWR && seals >= 0 &&
         (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0;
}

}  // namespace

// With `mutex_` not held. The handle means nothing yet when `info` says it is broken.
Result<uint64_t> Session::add_handle(const HandleInfo& info) {
  std::lock_guard lock(mutex_);
  const uint64_t handle = table_->add(info);
  if (handle != 0) return handle;
  return Status(Code::kNoResources, "handle: wanted a free one, got none of " +
                                        std::to_string(HandleTable::kMaxHandles) +
                                        "; free regions and layouts");
}

void Session::set_handle(uint64_t handle, const HandleInfo& info) {
  std::lock_guard lock(mutex_);
  table_->change(handle, info);
}

// False when somebody was faster.
bool Session::forget(uint64_t handle) {
  std::map<uint64_t, OwnRegion>::node_type region;  // unmapped and closed outside the lock
  std::map<uint64_t, OwnLayout>::node_type layout;
  std::lock_guard lock(mutex_);
  if (!table_->remove(handle)) return false;
  region = registry_.regions.extract(handle);
  layout = registry_.layouts.extract(handle);
  registry_.found.erase(handle);
  return true;
}

Result<HandleInfo> Session::own(uint64_t handle, HandleKind kind, const char* what) {
  HandleInfo info;
  if (table_->find(handle, &info) && info.kind == kind) return info;
  return Status(Code::kStale, std::string(what) + ": wanted a handle of this client in use, got " +
                                  std::to_string(handle) + "; register it first");
}

Result<Region> Session::add_region(OwnRegion own_region, bool map) {
  std::shared_lock<std::shared_mutex> life;
  if (Status status = enter(&life, "register region"); !status.ok()) return status;
  HandleInfo info;
  info.kind = HandleKind::kRegion;
  info.broken = Code::kStale;
  info.total_bytes = own_region.bytes;
  Result<uint64_t> handle = add_handle(info);
  if (!handle.ok()) return handle.status();
  Draft draft(*this, *handle);
  OwnRegion* region = nullptr;  // stays where it is until the handle goes
  {
    std::lock_guard lock(mutex_);
    region = &registry_.regions.emplace(*handle, std::move(own_region)).first->second;
  }
  Result<RegionAnswer> answer =
      call_register_region(*keeper_, region->memory.get(), region->offset, region->bytes);
  if (!answer.ok()) return answer.status();
  // The engine has found the range good, so only memory can be wanting now.
  if (map) {
    Result<OwnMapping> mapping =
        OwnMapping::map(region->memory.get(), region->offset, region->bytes,
                        answer->writable && mappable_for_writing(region->memory.get()));
    if (!mapping.ok()) {
      [[maybe_unused]] const Status ignored = call_free_region(*keeper_, answer->handle);
      return mapping.status();
    }
    region->mapping = std::move(*mapping);
  }
  info.broken = Code::kOk;
  info.writable = answer->writable;
  info.engine_handle = answer->handle;
  set_handle(*handle, info);
  Region result;
  result.handle = {draft.keep()};
  result.data = region->mapping.address();
  result.bytes = region->bytes;
  result.writable = answer->writable;
  return result;
}

Result<Region> Session::create_region(uint64_t bytes, uint64_t huge_page_bytes) {
  // Asked before memory is allocated for nothing; add_region() asks again.
  if (Status status = keeper_->may_call("create region"); !status.ok()) return status;
  Result<shm::UniqueFd> memory = shm::create_memory("wherry-region", bytes, huge_page_bytes);
  if (!memory.ok()) return memory.status();
  const off_t size = lseek(memory->get(), 0, SEEK_END);
  if (size < 0) return errno_status(Code::kInternal, "looking at a new region", errno);
  OwnRegion region;
  region.bytes = static_cast<uint64_t>(size);
  region.memory = std::move(*memory);
  return add_region(std::move(region), true);
}

Result<Region> Session::register_region(int memfd, uint64_t offset, uint64_t bytes, bool map) {
  OwnRegion region;
  region.memory.reset(fcntl(memfd, F_DUPFD_CLOEXEC, 0));
  if (!region.memory.valid()) {
    return errno_status(Code::kInvalidArgument, "region: wanted an open descriptor; duplicating it",
                        errno);
  }
  region.offset = offset;
  region.bytes = bytes;
  return add_region(std::move(region), map);
}

Result<Region> Session::adopt_region(void* address, uint64_t bytes, const AdoptOptions& options) {
  // Memory is only moved for an engine that is there.
  if (Status status = keeper_->may_call("adopt region"); !status.ok()) return status;
  Result<AdoptedMemory> adopted = adopt_memory(address, bytes, options.own_mapping);
  if (!adopted.ok()) return adopted.status();
  OwnRegion region;
  region.memory = std::move(adopted->memory);
  region.bytes = adopted->bytes;
  Result<Region> result = add_region(std::move(region), false);
  if (!result.ok()) return result;
  result->data = adopted->base;
  result->offset = adopted->offset;
  result->guarded = adopted->guarded;
  return result;
}

Status Session::free_region(RegionHandle handle) {
  constexpr const char* kCall = "free region";
  if (Status status = keeper_->not_in_callback(kCall); !status.ok()) return status;
  std::shared_lock life(life_);
  Result<HandleInfo> info = own(handle.value, HandleKind::kRegion, kCall);
  if (!info.ok()) return info.status();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [layout, own] : registry_.layouts) {
      for (const LayoutPart& part : own.spec.parts) {
        if (!(part.region == handle)) continue;
        return {Code::kNotPermitted,
                "free region: wanted one that no layout needs, got one that layout " +
                    std::to_string(layout) + " lies in; free the layout first"};
      }
    }
  }
  if (info->broken == Code::kOk) {
    if (Status s = call_free_region(*keeper_, info->engine_handle); !freed(s)) return s;
  }
  if (forget(handle.value)) return {};
  return own(handle.value, HandleKind::kRegion, kCall).status();
}

}  // namespace wherry::detail
