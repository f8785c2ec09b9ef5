#include "engine/transport/memory/memory_transport.h"

#include <span>

#include "engine/transport/memory/memory_lane.h"

namespace wherry::engine {

std::string MemoryTransport::info() const {
  return "copies in pieces of " + std::to_string(options_.piece_bytes) + " bytes, " +
         std::to_string(options_.copy_threads) + " copy threads a poller";
}

Status MemoryTransport::start() {
  copiers_.reserve(size_t{options_.pollers} * options_.copy_threads);
  for (uint32_t i = 0; i < options_.pollers * options_.copy_threads; ++i) {
    Result<std::unique_ptr<CopyThread>> copier = CopyThread::start();
    if (!copier.ok()) {
      copiers_.clear();
      return copier.status();
    }
    copiers_.push_back(std::move(*copier));
  }
  return {};
}

std::unique_ptr<Lane> MemoryTransport::make_lane(uint32_t poller) {
  const std::span<const std::unique_ptr<CopyThread>> all(copiers_);
  return std::make_unique<MemoryLane>(
      options_.piece_bytes,
      all.subspan(size_t{poller} * options_.copy_threads, options_.copy_threads));
}

}  // namespace wherry::engine
