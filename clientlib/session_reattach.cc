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

void add_note(std::string* note, const std::string& text) {
  if (!note->empty()) *note += "; ";
  *note += text;
}

void note_failure(std::string* note, const char* what, uint64_t handle, const Status& status) {
  add_note(note, std::string(what) + " " + std::to_string(handle) +
                     " could not be registered again: " + status.to_string());
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
    return reopen_channels(note);
  });
}

// Whatever was found belongs to owners of a former life.
void Session::forget_found() {
  std::lock_guard lock(mutex_);
  for (auto found = registry_.found.begin(); found != registry_.found.end();) {
    found = make_stale(found);
  }
  early_stale_.clear();
}

// With `mutex_` held; returns the next one. A found layout is kept until it is freed; nobody frees
// a client.
std::set<uint64_t>::iterator Session::make_stale(std::set<uint64_t>::iterator found) {
  const uint64_t handle = *found;
  HandleInfo info;
  if (table_->find(handle, &info) && info.kind == HandleKind::kFound) {
    info.broken = Code::kStale;
    table_->change(handle, info);
    return std::next(found);
  }
  for (auto one = registry_.clients.begin(); one != registry_.clients.end();) {
    one = one->second == handle ? registry_.clients.erase(one) : std::next(one);
  }
  table_->remove(handle);
  return registry_.found.erase(found);
}

// Regions, layouts and publications, under their old handles. What the engine refuses (a smaller
// quota, say) is marked so, and the rest goes on. Nobody else changes the registry: `life_` is held
// exclusively.
Status Session::register_again(std::string* note) {
  const auto set = [this](uint64_t handle, HandleInfo info, Code broken) {
    info.broken = broken;
    set_handle(handle, info);
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

// The first channel comes first: it is the one with a notification ring, and without it there is no
// attachment. What the engine refuses of the others (it may allow fewer now) is left without.
Status Session::reopen_channels(std::string* note) {
  std::vector<OpenedChannel> opened;
  {
    std::lock_guard lock(mutex_);
    opened = channels_;
  }
  for (const OpenedChannel& one : opened) {
    const std::shared_ptr<ChannelCore> core = one.core.lock();
    if (core == nullptr) continue;
    Result<std::unique_ptr<Link>> link = open_link(one.options, core == main_);
    if (link.ok()) {
      core->offer(std::move(*link));
    } else if (core == main_ || connection_failed(link.status())) {
      return link.status();
    } else {
      add_note(note, "a channel could not be opened again: " + link.status().to_string());
      core->refuse(link.code());
    }
  }
  return {};
}

void Session::stale(std::vector<uint64_t> handles) {
  std::sort(handles.begin(), handles.end());
  std::vector<bool> known(handles.size());
  std::lock_guard lock(mutex_);
  for (auto found = registry_.found.begin(); found != registry_.found.end();) {
    HandleInfo info;
    const bool good = table_->find(*found, &info) && info.broken == Code::kOk;
    const auto at = std::lower_bound(handles.begin(), handles.end(), info.engine_handle);
    if (!good || at == handles.end() || *at != info.engine_handle) {
      ++found;
      continue;
    }
    known[static_cast<size_t>(at - handles.begin())] = true;
    found = make_stale(found);
  }
  // The others are answers to finds that are on their way into the table.
  for (size_t i = 0; i < handles.size(); ++i) {
    if (!known[i]) early_stale_.push_back(handles[i]);
  }
}

}  // namespace wherry::detail
