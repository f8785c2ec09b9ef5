#include "engine/control/mappings.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace wherry::engine {
namespace {

bool covers(const Mapping& mapping, uint64_t offset, uint64_t length) {
  return offset >= mapping.file_offset && offset - mapping.file_offset <= mapping.length &&
         length <= mapping.length - (offset - mapping.file_offset);
}

}  // namespace

// The lowest free number is given out, so at least as many are in use.
Status Mappings::check_number(int fd) const {
  if (static_cast<uint64_t>(fd) < most_descriptors_) return {};
  return {Code::kNoResources,
          "descriptors of the engine: wanted one more for a region, got a limit of " +
              std::to_string(most_descriptors_) +
              " and all in use; free regions, raise the engine's ulimit -n (LimitNOFILE), or lower "
              "limits.regions_per_client"};
}

Result<Mappings::Backing*> Mappings::backing_of(const RegionFile& file, int fd) {
  const FileKey key{file.device, file.inode};
  const auto [first, last] = backings_.equal_range(key);
  for (auto at = first; at != last; ++at) {
    if (same_file(at->second.fd.get(), fd)) return &at->second;
  }
  shm::UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return errno_status(Code::kNoResources, "keeping a descriptor of a region's memory", errno);
  }
  if (Status status = check_number(copy.get()); !status.ok()) return status;
  Backing& backing = backings_.emplace(key, Backing())->second;
  backing.key = key;
  backing.number = ++last_backing_;
  backing.fd = std::move(copy);
  return &backing;
}

void Mappings::acquire(Registrar::Owner owner, const RegionFile& file, shm::UniqueFd fd,
                       uint64_t offset, uint64_t length, Ready ready) {
  if (Status status = check_number(fd.get()); !status.ok()) return ready(status);
  const Result<Backing*> kept = backing_of(file, fd.get());
  if (!kept.ok()) return ready(kept.status());
  Backing* backing = *kept;
  for (Entry* entry : backing->entries) {
    const Mapping& mapping = *entry->mapping;
    if (entry->holders == 0 || !covers(mapping, offset, length) ||
        (file.writable && !mapping.writable) || mapping.broken.load(std::memory_order_acquire)) {
      continue;
    }
    ++entry->holders;
    if (entry->mapped) {
      ready(std::shared_ptr<const Mapping>(entry->mapping));
    } else {
      entry->waiting.push_back(std::move(ready));
    }
    return;
  }
  auto entry = std::make_unique<Entry>();
  entry->mapping = std::make_shared<Mapping>();
  entry->mapping->backing = backing->number;
  entry->mapping->file_offset = offset;
  entry->mapping->length = length;
  entry->mapping->writable = file.writable;
  entry->backing = backing;
  entry->owner = owner;
  entry->holders = 1;
  entry->waiting.push_back(std::move(ready));
  backing->entries.push_back(entry.get());
  registrar_->map(owner, entry->mapping, std::move(fd));
  const Mapping* key = entry->mapping.get();
  entries_.emplace(key, std::move(entry));
}

void Mappings::release(const std::shared_ptr<const Mapping>& mapping,
                       std::function<void()> released) {
  Entry& entry = *entries_.at(mapping.get());
  if (--entry.holders > 0) {
    released();
    return;
  }
  entry.released = std::move(released);
  registrar_->release(entry.owner, entry.mapping);
}

void Mappings::on_result(const RegistrarResult& result) {
  Entry* entry = entries_.at(result.mapping.get()).get();
  if (result.kind == RegistrarResult::Kind::kReleased) {
    const std::function<void()> released = std::move(entry->released);
    erase(entry);
    released();
    return;
  }
  const std::vector<Ready> waiting = std::move(entry->waiting);
  entry->waiting.clear();
  if (!result.status.ok()) {
    erase(entry);
    for (const Ready& ready : waiting) ready(result.status);
    return;
  }
  entry->mapped = true;
  // Those not called yet are holders too: the mapping outlives this loop whatever they do.
  for (const Ready& ready : waiting) ready(std::shared_ptr<const Mapping>(result.mapping));
}

void Mappings::erase(Entry* entry) {
  Backing* backing = entry->backing;
  backing->entries.erase(std::find(backing->entries.begin(), backing->entries.end(), entry));
  entries_.erase(entry->mapping.get());
  if (!backing->entries.empty()) return;
  const auto [first, last] = backings_.equal_range(backing->key);
  for (auto at = first; at != last; ++at) {
    if (&at->second != backing) continue;
    backings_.erase(at);
    return;
  }
}

}  // namespace wherry::engine
