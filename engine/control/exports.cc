#include "engine/control/exports.h"

#include <algorithm>

namespace wherry::engine {

std::string ExportKey::to_string() const {
  return instance + "/" + std::to_string(rank) + " tier " + std::string(tier_name(tier));
}

bool Export::permits(const std::string& instance) const {
  return to_all || std::find(to.begin(), to.end(), instance) != to.end();
}

Status Exports::publish(const ExportKey& key, Export entry) {
  const auto found = exports_.find(key);
  if (found != exports_.end()) {
    return {Code::kAlreadyExists,
            "publishing as " + key.to_string() + ": wanted nothing published there, got layout " +
                std::to_string(found->second.layout) + "; unpublish that one first"};
  }
  exports_.emplace(key, std::move(entry));
  return {};
}

const Export* Exports::find(const ExportKey& key) const {
  const auto found = exports_.find(key);
  return found == exports_.end() ? nullptr : &found->second;
}

std::vector<std::shared_ptr<const View>> Exports::withdraw_if(
    const std::function<bool(const Export&)>& wanted) {
  std::vector<std::shared_ptr<const View>> views;
  std::erase_if(exports_, [&](const auto& item) {
    if (!wanted(item.second)) return false;
    views.push_back(item.second.view);
    return true;
  });
  return views;
}

std::vector<std::shared_ptr<const View>> Exports::withdraw(uint64_t session, uint64_t layout) {
  return withdraw_if(
      [&](const Export& entry) { return entry.session == session && entry.layout == layout; });
}

std::vector<std::shared_ptr<const View>> Exports::withdraw_all(uint64_t session) {
  return withdraw_if([&](const Export& entry) { return entry.session == session; });
}

uint32_t Exports::count(uint64_t session) const {
  return static_cast<uint32_t>(
      std::count_if(exports_.begin(), exports_.end(),
                    [&](const auto& item) { return item.second.session == session; }));
}

std::vector<Exports::Waiter> Exports::take_waiters(const ExportKey& key) {
  std::vector<Waiter> taken;
  const auto [first, last] = waiters_.equal_range(key);
  for (auto at = first; at != last; ++at) taken.push_back(at->second);
  waiters_.erase(first, last);
  return taken;
}

void Exports::remove_waiter(const ExportKey& key, uint64_t number) {
  const auto [first, last] = waiters_.equal_range(key);
  for (auto at = first; at != last; ++at) {
    if (at->second.number != number) continue;
    waiters_.erase(at);
    return;
  }
}

std::vector<Exports::Waiter> Exports::remove_waiters(uint64_t session) {
  std::vector<Waiter> removed;
  std::erase_if(waiters_, [&](const auto& item) {
    if (item.second.session != session) return false;
    removed.push_back(item.second);
    return true;
  });
  return removed;
}

std::vector<Exports::Finder> Exports::take_finders(const View* view) {
  std::vector<Finder> taken;
  const auto [first, last] = finders_.equal_range(view);
  for (auto at = first; at != last; ++at) taken.push_back(at->second);
  finders_.erase(first, last);
  return taken;
}

void Exports::remove_finder(const View* view, Finder finder) {
  const auto [first, last] = finders_.equal_range(view);
  for (auto at = first; at != last; ++at) {
    if (at->second.session != finder.session || at->second.handle != finder.handle) continue;
    finders_.erase(at);
    return;
  }
}

}  // namespace wherry::engine
