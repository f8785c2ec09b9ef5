// Session: layouts, and what is shared with other clients.
#include <algorithm>

#include "clientlib/session.h"

namespace wherry::detail {
namespace {

Status not_known(const char* what, Code code) {
  return {code, std::string(what) +
                    ": wanted one the engine knows, got one it refused when this client attached "
                    "again; engine_state() says why"};
}

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
      if (info.broken != Code::kOk) return not_known("region of a layout part", info.broken);
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
  std::shared_lock<std::shared_mutex> life;
  if (Status status = enter(&life, "register layout"); !status.ok()) return status;
  bool writable = false;
  Result<std::vector<EnginePart>> parts = engine_parts(spec, &writable);
  if (!parts.ok()) return parts.status();
  HandleInfo info = layout_info(spec, 0, writable);
  info.broken = Code::kStale;
  Result<uint64_t> handle = add_handle(info);
  if (!handle.ok()) return handle.status();
  Draft draft(*this, *handle);
  {
    std::lock_guard lock(mutex_);
    registry_.layouts.emplace(*handle, OwnLayout{spec, {}});
  }
  Result<uint64_t> answer = call_register_layout(*keeper_, spec.geometry, *parts);
  if (!answer.ok()) return answer.status();
  info.broken = Code::kOk;
  info.engine_handle = *answer;
  set_handle(*handle, info);
  return LayoutHandle{draft.keep()};
}

Status Session::free_layout(LayoutHandle layout) {
  constexpr const char* kCall = "free layout";
  if (Status status = keeper_->not_in_callback(kCall); !status.ok()) return status;
  std::shared_lock life(life_);
  HandleInfo info;
  const bool found = table_->find(layout.value, &info) && info.kind == HandleKind::kFound;
  if (!found) {
    Result<HandleInfo> mine = own(layout.value, HandleKind::kLayout, kCall);
    if (!mine.ok()) return mine.status();
    info = *mine;
  }
  if (info.broken == Code::kOk) {
    Status status = found ? call_release_found(*keeper_, info.engine_handle)
                          : call_free_layout(*keeper_, info.engine_handle);
    // A found layout may have become stale on the way.
    if (!freed(status) && !(found && status.code() == Code::kStale)) return status;
  }
  if (forget(layout.value)) return {};
  return own(layout.value, HandleKind::kLayout, kCall).status();
}

Status Session::publish(LayoutHandle layout, Publication publication) {
  std::shared_lock<std::shared_mutex> life;
  if (Status status = enter(&life, "publish"); !status.ok()) return status;
  std::lock_guard publishing(publishing_);
  Result<HandleInfo> info = own(layout.value, HandleKind::kLayout, "publish");
  if (!info.ok()) return info.status();
  if (info->broken != Code::kOk) return not_known("publish", info->broken);
  {
    // Room for it, so that nothing can fail after the engine's answer.
    std::lock_guard lock(mutex_);
    const auto mine = registry_.layouts.find(layout.value);
    if (mine != registry_.layouts.end()) {
      mine->second.publications.reserve(mine->second.publications.size() + 1);
    }
  }
  Status status = call_publish(*keeper_, info->engine_handle, publication.tier, publication.rights,
                               publication.to);
  if (!status.ok()) return status;
  std::lock_guard lock(mutex_);
  const auto mine = registry_.layouts.find(layout.value);
  if (mine != registry_.layouts.end()) {
    mine->second.publications.push_back(std::move(publication));
  }
  return {};
}

Status Session::unpublish(LayoutHandle layout) {
  constexpr const char* kCall = "unpublish";
  if (Status status = keeper_->not_in_callback(kCall); !status.ok()) return status;
  std::shared_lock life(life_);
  std::lock_guard publishing(publishing_);
  Result<HandleInfo> info = own(layout.value, HandleKind::kLayout, kCall);
  if (!info.ok()) return info.status();
  if (info->broken == Code::kOk) {
    if (Status s = call_unpublish(*keeper_, info->engine_handle); !freed(s)) return s;
  }
  std::lock_guard lock(mutex_);
  const auto mine = registry_.layouts.find(layout.value);
  if (mine != registry_.layouts.end()) mine->second.publications.clear();
  return {};
}

// A handle for what is going to be found.
Result<uint64_t> Session::add_found(HandleInfo info) {
  info.broken = Code::kStale;
  Result<uint64_t> handle = add_handle(info);
  if (!handle.ok()) return handle;
  Draft draft(*this, *handle);
  std::lock_guard lock(mutex_);
  registry_.found.insert(*handle);
  return draft.keep();
}

// It was found. The engine may have said since that it is stale; whether it is good.
bool Session::set_found(uint64_t handle, HandleInfo info) {
  std::lock_guard lock(mutex_);
  const auto stale = std::find(early_stale_.begin(), early_stale_.end(), info.engine_handle);
  const bool good = stale == early_stale_.end();
  if (!good) early_stale_.erase(stale);
  info.broken = good ? Code::kOk : Code::kStale;
  table_->change(handle, info);
  return good;
}

Result<FoundLayout> Session::find_layout(const InstanceId& instance, uint32_t rank, Tier tier,
                                         uint64_t deadline_ns) {
  std::shared_lock<std::shared_mutex> life;
  if (Status status = enter(&life, "find layout"); !status.ok()) return status;
  HandleInfo info;
  info.kind = HandleKind::kFound;
  Result<uint64_t> handle = add_found(info);
  if (!handle.ok()) return handle.status();
  Draft draft(*this, *handle);
  Result<FoundAnswer> answer = call_find_layout(*keeper_, instance, rank, tier, deadline_ns);
  if (!answer.ok()) return answer.status();
  info.writable = answer->rights == Rights::kReadWrite;
  info.engine_handle = answer->handle;
  for (const uint64_t bytes : answer->part_bytes) info.total_bytes += bytes;
  info.geometry = answer->geometry;
  set_found(*handle, info);
  return FoundLayout{{draft.keep()},
                     answer->geometry,
                     std::move(answer->part_bytes),
                     answer->rights,
                     answer->incarnation};
}

Result<ClientHandle> Session::find_client(const InstanceId& instance, uint32_t rank) {
  std::shared_lock<std::shared_mutex> life;
  if (Status status = enter(&life, "find client"); !status.ok()) return status;
  std::map<std::pair<InstanceId, uint32_t>, uint64_t> known;
  known.emplace(std::make_pair(instance, rank), 0);
  {
    std::lock_guard lock(mutex_);
    const auto before = registry_.clients.find(known.begin()->first);
    if (before != registry_.clients.end()) return ClientHandle{before->second};
  }
  HandleInfo info;
  info.kind = HandleKind::kClient;
  Result<uint64_t> handle = add_found(info);
  if (!handle.ok()) return handle.status();
  Draft draft(*this, *handle);
  Result<uint64_t> answer = call_find_client(*keeper_, instance, rank);
  if (!answer.ok()) return answer.status();
  info.engine_handle = *answer;
  if (set_found(*handle, info)) {
    known.begin()->second = *handle;
    std::lock_guard lock(mutex_);
    registry_.clients.merge(known);  // unless another thread was faster: both handles work
  }
  return ClientHandle{draft.keep()};
}

Result<std::vector<TransportInfo>> Session::transports() { return call_transports(*keeper_); }

}  // namespace wherry::detail
