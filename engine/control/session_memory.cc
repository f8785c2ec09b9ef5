// Regions and layouts of a client: registered, and freed after their last use.
#include <utility>

#include "engine/control/join.h"
#include "engine/control/layout_view.h"
#include "engine/control/region_file.h"
#include "engine/control/session.h"

namespace wherry::engine {

// The client's own region or layout that a handle names.
Result<Holding*> Session::own(uint64_t handle, Holding::Kind kind, const char* what) {
  Holding* holding = handles_.find(handle);
  if (holding == nullptr) {
    return Status(Code::kStale, std::string(what) + ": wanted a live handle, got " +
                                    std::to_string(handle) +
                                    "; it was freed or is of another session");
  }
  if (holding->kind != kind) {
    return Status(Code::kInvalidArgument, std::string(what) + ": wanted the handle of a " + what +
                                              " of this client, got " + std::to_string(handle) +
                                              ", which means something else; give the right one");
  }
  return holding;
}

void Session::on(ReplyTo to, const RegisterRegion& message, Descriptors descriptors) {
  const uint32_t regions = handles_.count(Holding::Kind::kRegion) + registering_;
  if (regions >= limits_.regions_per_client) {
    return refuse(to, limit_reached("regions_per_client", limits_.regions_per_client, regions));
  }
  shm::UniqueFd fd = std::move(descriptors.front());
  Result<RegionFile> file = check_region_file(fd.get(), message.offset, message.length);
  if (!file.ok()) return refuse(to, file.status());
  const uint64_t quota = limits_.registered_bytes_per_client;
  if (quota != 0 && (registered_bytes_ > quota || message.length > quota - registered_bytes_)) {
    return refuse(
        to, {Code::kNoResources,
             "limits.registered_bytes_per_client: wanted " + std::to_string(message.length) +
                 " bytes more, got a limit of " + std::to_string(quota) + " and " +
                 std::to_string(registered_bytes_) + " in use; free regions or raise the limit"});
  }
  registered_bytes_ += message.length;
  ++registering_;
  begin_work();
  context_->mappings.acquire(
      identity_.session, *file, std::move(fd), message.offset, message.length,
      [self = shared_from_this(), to, message,
       writable = file->writable](Result<std::shared_ptr<const Mapping>> mapping) {
        self->region_mapped(to, message, writable, std::move(mapping));
      });
}

void Session::region_mapped(ReplyTo to, const RegisterRegion& message, bool writable,
                            Result<std::shared_ptr<const Mapping>> mapping) {
  --registering_;
  if (!mapping.ok()) {
    registered_bytes_ -= message.length;
    context_->stats->record_error(shm::ErrorId::kRegistrationFailed, identity_.name(),
                                  mapping.status().to_string());
    refuse(to, mapping.status());
    return end_work();
  }
  if (state_ != State::kActive) {
    // Nobody has seen it yet.
    give_back_region(*mapping, message.length, [self = shared_from_this()] { self->end_work(); });
    return refuse(to, {Code::kAborted,
                       "register_region: wanted an active session, got one that is "
                       "ending; attach again"});
  }
  auto view = std::make_shared<View>();
  view->id = ++context_->last_view_id;
  view->kind = ViewKind::kRegion;
  view->parts.push_back(
      {mapping->get(), message.offset - (*mapping)->file_offset, message.length, 0});
  view->mappings.push_back(*mapping);
  view->owner = shared_;
  finish_view(*view);
  Holding holding;
  holding.kind = Holding::Kind::kRegion;
  holding.rights = static_cast<uint8_t>(writable ? kRightRead | kRightWrite : kRightRead);
  holding.view = std::move(view);
  holding.mapping = *mapping;
  const uint64_t handle = handles_.add(std::move(holding));
  publish_table([self = shared_from_this(), to, handle, writable] {
    self->reply(region_reply(to, handle, writable));
  });
  end_work();
}

void Session::give_back_region(const std::shared_ptr<const Mapping>& mapping, uint64_t bytes,
                               std::function<void()> done) {
  context_->mappings.release(mapping, [self = shared_from_this(), bytes, done = std::move(done)] {
    self->registered_bytes_ -= bytes;
    done();
  });
}

void Session::on(ReplyTo to, const FreeRegion& message) {
  const uint64_t handle = message.handle;
  Result<Holding*> region = own(handle, Holding::Kind::kRegion, "region");
  if (!region.ok()) return refuse(to, region.status());
  if ((*region)->layouts != 0) {
    uint64_t user = 0;
    handles_.for_each([&](uint64_t layout, Holding& holding) {
      for (const uint64_t used : holding.regions) user = used == handle ? layout : user;
    });
    return refuse(to,
                  {Code::kNotPermitted,
                   "free_region: wanted a region that no layout needs, got one in which layout " +
                       std::to_string(user) + " lies; free that layout first"});
  }
  handles_.retire(handle);
  begin_work();
  publish_table([self = shared_from_this(), to, handle] {
    self->context_->grace.wait(0, self->handles_.at(handle).view, [self, to, handle] {
      const std::shared_ptr<const Mapping> mapping = self->handles_.at(handle).mapping;
      const uint64_t bytes = self->handles_.at(handle).view->total_bytes;
      self->handles_.erase(handle);
      self->give_back_region(mapping, bytes, [self, to] {
        self->reply(ok_reply(to));
        self->end_work();
      });
    });
  });
}

void Session::on(ReplyTo to, const RegisterLayout& message) {
  const uint32_t layouts = handles_.count(Holding::Kind::kLayout);
  if (layouts >= limits_.layouts_per_client) {
    return refuse(to, limit_reached("layouts_per_client", limits_.layouts_per_client, layouts));
  }
  if (message.parts.size() > limits_.layout_parts_per_client - layout_parts_) {
    return refuse(
        to,
        {Code::kNoResources,
         "limits.layout_parts_per_client: wanted " + std::to_string(message.parts.size()) +
             " more, got a limit of " + std::to_string(limits_.layout_parts_per_client) + " and " +
             std::to_string(layout_parts_) + " in use; free layouts or raise the limit"});
  }
  Result<LayoutView> layout = build_layout_view(message, handles_);
  if (!layout.ok()) return refuse(to, layout.status());
  layout_parts_ += message.parts.size();
  layout->view->id = ++context_->last_view_id;
  layout->view->owner = shared_;
  for (const uint64_t region : layout->regions) ++handles_.at(region).layouts;
  Holding holding;
  holding.kind = Holding::Kind::kLayout;
  holding.rights = layout->rights;
  holding.view = std::move(layout->view);
  holding.regions = std::move(layout->regions);
  const uint64_t handle = handles_.add(std::move(holding));
  publish_table([self = shared_from_this(), to, handle] { self->reply(layout_reply(to, handle)); });
  update_row();
}

void Session::on(ReplyTo to, const FreeLayout& message) {
  const uint64_t handle = message.handle;
  Result<Holding*> layout = own(handle, Holding::Kind::kLayout, "layout");
  if (!layout.ok()) return refuse(to, layout.status());
  begin_work();
  Join taken_back([self = shared_from_this(), to, handle] {
    // In the regions until here: a request that uses the layout uses their memory.
    self->context_->grace.wait(0, self->handles_.at(handle).view, [self, to, handle] {
      for (const uint64_t region : self->handles_.at(handle).regions)
        --self->handles_.at(region).layouts;
      self->layout_parts_ -= self->handles_.at(handle).view->parts.size();
      self->handles_.erase(handle);
      self->reply(ok_reply(to));
      self->end_work();
    });
  });
  for (const auto& view : context_->exports.withdraw(identity_.session, handle)) {
    revoke(view, taken_back.part());
  }
  handles_.retire(handle);
  publish_table(taken_back.part());
  taken_back.seal();
}

}  // namespace wherry::engine
