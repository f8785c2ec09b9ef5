// Session: a new life. Runs on the driver's thread (keeper.h).
#include <algorithm>

#include "clientlib/guard.h"
#include "clientlib/session.h"

namespace wherry::detail {
namespace {

// Whether the engine as a whole, rather than one item, is what failed: then all of it is tried
// again.
bool connection_failed(const Status& status) {
  return status.code() == Code::kEngineGone || status.code() == Code::kTimedOut ||
         status.code() == Code::kDraining;
}

void note_failure(std::string* note, const char* what, uint64_t handle, const Status& status) {
  if (!note->empty()) *note += "; ";
  *note += std::string(what) + " " + std::to_string(handle) +
           " could not be registered again: " + status.to_string();
}

}  // namespace

Status Session::attached(const HelloAnswer& hello, std::shared_ptr<Life> life, std::string* note) {
  return guarded([&]() -> Status {
    std::unique_lock exclusive(life_);
    {
      std::lock_guard lock(mutex_);
      current_ = std::move(life);
      clock_offset_ns_ = hello.clock_offset_ns;
      default_deadline_ns_ = hello.default_deadline_ms * 1'000'000;
    }
    forget_found();
    if (Status status = register_again(note); !status.ok()) return status;
    return reopen_channels();
  });
}

// Whatever was found belongs to owners of a former life.
void Session::forget_found() {
  std::lock_guard lock(mutex_);
  for (const auto& [engine_handle, handle] : registry_.found) {
    HandleInfo info;
    if (!table_->find(handle, &info)) continue;
    info.broken = Code::kStale;
    table_->change(handle, info);
  }
  registry_.found.clear();
  registry_.clients.clear();
}

// Regions, layouts and publications, under their old handles. What the engine refuses (a smaller
// quota, say) is marked so, and the rest goes on. Nobody else changes the registry: `life_` is held
// exclusively.
Status Session::register_again(std::string* note) {
  const auto set = [this](uint64_t handle, HandleInfo info, Code broken) {
    info.broken = broken;
    std::lock_guard lock(mutex_);
    table_->change(handle, info);
  };
  for (const auto& [handle, region] : registry_.regions) {
    HandleInfo info;
    if (!table_->find(handle, &info)) continue;
    Result<RegionAnswer> answer =
        call_register_region(*keeper_, region.memory.get(), region.offset, region.bytes);
    if (connection_failed(answer.status())) return answer.status();
    if (!answer.ok()) note_failure(note, "region", handle, answer.status());
    if (answer.ok()) info.engine_handle = answer->handle;
    set(handle, info, answer.code());
  }
  for (const auto& [handle, layout] : registry_.layouts) {
    bool writable = false;
    Result<std::vector<EnginePart>> parts = engine_parts(layout.spec, &writable);
    Result<uint64_t> answer = parts.status();
    if (parts.ok()) answer = call_register_layout(*keeper_, layout.spec.geometry, *parts);
    if (connection_failed(answer.status())) return answer.status();
    if (!answer.ok()) note_failure(note, "layout", handle, answer.status());
    set(handle, layout_info(layout.spec, answer.ok() ? *answer : 0, writable), answer.code());
    for (const Publication& publication : layout.publications) {
      if (!answer.ok()) break;
      Status status =
          call_publish(*keeper_, *answer, publication.tier, publication.rights, publication.to);
      if (connection_failed(status)) return status;
      if (!status.ok()) note_failure(note, "publication of layout", handle, status);
    }
  }
  return {};
}

// The first channel comes first: it is the one with a notification ring.
Status Session::reopen_channels() {
  std::vector<OpenedChannel> opened;
  {
    std::lock_guard lock(mutex_);
    opened = channels_;
  }
  for (const OpenedChannel& one : opened) {
    const std::shared_ptr<ChannelCore> core = one.core.lock();
    if (core == nullptr) continue;
    Result<std::unique_ptr<Link>> link = open_link(one.options, core == main_);
    if (!link.ok()) return link.status();
    core->offer(std::move(*link));
  }
  return {};
}

void Session::stale(const std::vector<uint64_t>& handles) {
  std::lock_guard lock(mutex_);
  for (const uint64_t engine_handle : handles) {
    const auto found = registry_.found.find(engine_handle);
    if (found == registry_.found.end()) continue;
    const uint64_t handle = found->second;
    registry_.found.erase(found);
    HandleInfo info;
    if (table_->find(handle, &info)) {
      info.broken = Code::kStale;
      table_->change(handle, info);
    }
    for (auto known = registry_.clients.begin(); known != registry_.clients.end();) {
      known = known->second.value == handle ? registry_.clients.erase(known) : std::next(known);
    }
  }
}

}  // namespace wherry::detail
