// Session: regions, layouts, and what is shared with other clients.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "clientlib/adopt.h"
#include "clientlib/session.h"
#include "shm/segment.h"

namespace wherry::detail {
namespace {

// Freeing what an engine that is gone had is done by not registering it again.
bool freed(const Status& status) { return status.ok() || status.code() == Code::kEngineGone; }

}  // namespace

HandleInfo layout_info(const LayoutSpec& spec, uint64_t engine_handle, bool writable) {
  HandleInfo info;
  info.kind = HandleKind::kLayout;
  info.writable = writable;
  info.engine_handle = engine_handle;
  for (const LayoutPart& part : spec.parts) info.total_bytes += part.length;
  info.geometry = spec.geometry;
  return info;
}

// With `mutex_` not held.
Result<uint64_t> Session::add_handle(const HandleInfo& info) {
  std::lock_guard lock(mutex_);
  const uint64_t handle = table_->add(info);
  if (handle != 0) return handle;
  return Status(Code::kNoResources,
                "handle: wanted a free one, got none of 65,536; free regions and layouts");
}

void Session::forget(uint64_t handle) {
  std::lock_guard lock(mutex_);
  table_->remove(handle);
}

Result<HandleInfo> Session::own(uint64_t handle, HandleKind kind, const char* what) {
  HandleInfo info;
  if (table_->find(handle, &info) && info.kind == kind) return info;
  return Status(Code::kStale, std::string(what) + ": wanted a handle of this client in use, got " +
                                  std::to_string(handle) + "; register it first");
}

Result<Region> Session::add_region(OwnRegion region) {
  std::shared_lock life(life_);
  Result<RegionAnswer> answer =
      call_register_region(*keeper_, region.memory.get(), region.offset, region.bytes);
  if (!answer.ok()) return answer.status();
  HandleInfo info;
  info.kind = HandleKind::kRegion;
  info.writable = answer->writable;
  info.engine_handle = answer->handle;
  info.total_bytes = region.bytes;
  Result<uint64_t> handle = add_handle(info);
  if (!handle.ok()) {
    [[maybe_unused]] const Status ignored = call_free_region(*keeper_, answer->handle);
    return handle.status();
  }
  Region result;
  result.handle = {*handle};
  result.data = region.mapping.address();
  result.bytes = region.bytes;
  result.writable = answer->writable;
  std::lock_guard lock(mutex_);
  registry_.regions.emplace(*handle, std::move(region));
  return result;
}

Result<Region> Session::create_region(uint64_t bytes, uint64_t huge_page_bytes) {
  Result<shm::UniqueFd> memory = shm::create_memory("wherry-region", bytes, huge_page_bytes);
  if (!memory.ok()) return memory.status();
  struct stat info {};
  if (fstat(memory->get(), &info) != 0) {
    return errno_status(Code::kInternal, "looking at a new region", errno);
  }
  OwnRegion region;
  region.bytes = static_cast<uint64_t>(info.st_size);
  Result<OwnMapping> mapping = OwnMapping::map(memory->get(), 0, region.bytes, true);
  if (!mapping.ok()) return mapping.status();
  region.mapping = std::move(*mapping);
  region.memory = std::move(*memory);
  return add_region(std::move(region));
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
  if (map) {
    struct stat info {};
    if (bytes == 0 || fstat(memfd, &info) != 0 || offset > static_cast<uint64_t>(info.st_size) ||
        bytes > static_cast<uint64_t>(info.st_size) - offset) {
      return Status(Code::kOutOfRange, "region: wanted a range inside the file's " +
                                           std::to_string(info.st_size) + " bytes, got " +
                                           std::to_string(bytes) + " at " + std::to_string(offset) +
                                           "; correct the range");
    }
    const bool writable = (fcntl(memfd, F_GETFL) & O_ACCMODE) == O_RDWR;
    Result<OwnMapping> mapping = OwnMapping::map(memfd, offset, bytes, writable);
    if (!mapping.ok()) return mapping.status();
    region.mapping = std::move(*mapping);
  }
  return add_region(std::move(region));
}

Result<Region> Session::adopt_region(void* address, uint64_t bytes, const AdoptOptions& options) {
  if (keeper_->state().life == EngineLife::kGone) {
    return Status(
        Code::kEngineGone,
        "adopt: wanted an attached engine, got none; memory is only moved for one, try again");
  }
  Result<AdoptedMemory> adopted = adopt_memory(address, bytes, options.own_mapping);
  if (!adopted.ok()) return adopted.status();
  OwnRegion region;
  region.memory = std::move(adopted->memory);
  region.bytes = adopted->bytes;
  Result<Region> result = add_region(std::move(region));
  if (!result.ok()) return result;
  result->data = adopted->base;
  result->offset = adopted->offset;
  result->guarded = adopted->guarded;
  return result;
}

Status Session::free_region(RegionHandle handle) {
  std::shared_lock life(life_);
  Result<HandleInfo> info = own(handle.value, HandleKind::kRegion, "free region");
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
  forget(handle.value);
  OwnRegion region;  // unmapped outside the lock
  std::lock_guard lock(mutex_);
  const auto found = registry_.regions.find(handle.value);
  if (found != registry_.regions.end()) {
    region = std::move(found->second);
    registry_.regions.erase(found);
  }
  return {};
}

// The parts with the engine's handles of their regions.
Result<std::vector<EnginePart>> Session::engine_parts(const LayoutSpec& spec, bool* writable) {
  std::vector<EnginePart> parts;
  parts.reserve(spec.parts.size());
  *writable = true;
  RegionHandle last;
  HandleInfo info;
  for (const LayoutPart& part : spec.parts) {
    if (parts.empty() || !(part.region == last)) {
      Result<HandleInfo> region = own(part.region.value, HandleKind::kRegion, "layout part");
      if (!region.ok()) return region.status();
      info = *region;
      if (info.broken != Code::kOk) {
        return Status(info.broken,
                      "layout part: wanted a region the engine knows, got one it refused "
                      "when this client attached again; engine_state() says why");
      }
      last = part.region;
    }
    *writable = *writable && info.writable;
    parts.push_back({info.engine_handle, part.offset, part.length});
  }
  return parts;
}

Result<LayoutHandle> Session::register_layout(const LayoutSpec& spec) {
  if (Status status = check_geometry(spec.geometry); !status.ok()) return status;
  if (spec.parts.size() != spec.geometry.part_count()) {
    return Status(Code::kInvalidArgument,
                  "layout parts: wanted " + std::to_string(spec.geometry.part_count()) +
                      " for this kind and geometry, got " + std::to_string(spec.parts.size()) +
                      "; give one range for each");
  }
  std::shared_lock life(life_);
  bool writable = false;
  Result<std::vector<EnginePart>> parts = engine_parts(spec, &writable);
  if (!parts.ok()) return parts.status();
  Result<uint64_t> answer = call_register_layout(*keeper_, spec.geometry, *parts);
  if (!answer.ok()) return answer.status();
  Result<uint64_t> handle = add_handle(layout_info(spec, *answer, writable));
  if (!handle.ok()) {
    [[maybe_unused]] const Status ignored = call_free_layout(*keeper_, *answer);
    return handle.status();
  }
  std::lock_guard lock(mutex_);
  registry_.layouts.emplace(*handle, OwnLayout{spec, {}});
  return LayoutHandle{*handle};
}

Status Session::free_layout(LayoutHandle layout) {
  std::shared_lock life(life_);
  HandleInfo info;
  const bool found = table_->find(layout.value, &info) && info.kind == HandleKind::kFound;
  if (!found) {
    Result<HandleInfo> mine = own(layout.value, HandleKind::kLayout, "free layout");
    if (!mine.ok()) return mine.status();
    info = *mine;
  }
  if (info.broken == Code::kOk) {
    Status status = found ? call_release_found(*keeper_, info.engine_handle)
                          : call_free_layout(*keeper_, info.engine_handle);
    // A found layout may have become stale on the way.
    if (!freed(status) && !(found && status.code() == Code::kStale)) return status;
  }
  forget(layout.value);
  std::lock_guard lock(mutex_);
  registry_.layouts.erase(layout.value);
  if (found) registry_.found.erase(info.engine_handle);
  return {};
}

Status Session::publish(LayoutHandle layout, Publication publication) {
  std::shared_lock life(life_);
  Result<HandleInfo> info = own(layout.value, HandleKind::kLayout, "publish");
  if (!info.ok()) return info.status();
  if (info->broken != Code::kOk) {
    return {info->broken,
            "publish: wanted a layout the engine knows, got one it refused when this client "
            "attached again; engine_state() says why"};
  }
  Status status = call_publish(*keeper_, info->engine_handle, publication.tier, publication.rights,
                               publication.to);
  if (!status.ok()) return status;
  std::lock_guard lock(mutex_);
  const auto found = registry_.layouts.find(layout.value);
  if (found != registry_.layouts.end())
    found->second.publications.push_back(std::move(publication));
  return {};
}

Status Session::unpublish(LayoutHandle layout) {
  std::shared_lock life(life_);
  Result<HandleInfo> info = own(layout.value, HandleKind::kLayout, "unpublish");
  if (!info.ok()) return info.status();
  if (info->broken == Code::kOk) {
    if (Status s = call_unpublish(*keeper_, info->engine_handle); !freed(s)) return s;
  }
  std::lock_guard lock(mutex_);
  const auto found = registry_.layouts.find(layout.value);
  if (found != registry_.layouts.end()) found->second.publications.clear();
  return {};
}

Result<FoundLayout> Session::find_layout(const InstanceId& instance, uint32_t rank, Tier tier,
                                         uint64_t deadline_ns) {
  std::shared_lock life(life_);
  Result<FoundAnswer> answer = call_find_layout(*keeper_, instance, rank, tier, deadline_ns);
  if (!answer.ok()) return answer.status();
  HandleInfo info;
  info.kind = HandleKind::kFound;
  info.writable = answer->rights == Rights::kReadWrite;
  info.engine_handle = answer->handle;
  for (const uint64_t bytes : answer->part_bytes) info.total_bytes += bytes;
  info.geometry = answer->geometry;
  Result<uint64_t> handle = add_handle(info);
  if (!handle.ok()) {
    [[maybe_unused]] const Status ignored = call_release_found(*keeper_, answer->handle);
    return handle.status();
  }
  std::lock_guard lock(mutex_);
  registry_.found.emplace(answer->handle, *handle);
  return FoundLayout{{*handle},
                     answer->geometry,
                     std::move(answer->part_bytes),
                     answer->rights,
                     answer->incarnation};
}

Result<ClientHandle> Session::find_client(const InstanceId& instance, uint32_t rank) {
  std::shared_lock life(life_);
  const auto key = std::make_pair(instance, rank);
  {
    std::lock_guard lock(mutex_);
    const auto known = registry_.clients.find(key);
    if (known != registry_.clients.end()) return known->second;
  }
  Result<uint64_t> answer = call_find_client(*keeper_, instance, rank);
  if (!answer.ok()) return answer.status();
  HandleInfo info;
  info.kind = HandleKind::kClient;
  info.engine_handle = *answer;
  Result<uint64_t> handle = add_handle(info);
  if (!handle.ok()) {
    [[maybe_unused]] const Status ignored = call_release_found(*keeper_, *answer);
    return handle.status();
  }
  std::lock_guard lock(mutex_);
  registry_.found.emplace(*answer, *handle);
  // Another thread may have been faster: both handles work, one is remembered.
  registry_.clients.insert_or_assign(key, ClientHandle{*handle});
  return ClientHandle{*handle};
}

Result<std::vector<TransportInfo>> Session::transports() { return call_transports(*keeper_); }

}  // namespace wherry::detail
