// What an engine in a process of its own holds on behalf of clients, and that nothing of it is left
// of those that have gone.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "shm/stats_reader.h"
#include "tests/support/forked_engine.h"

namespace wherry::test {

struct Holdings {
  size_t descriptors = 0;
  size_t memfd_mappings = 0;
  size_t mappings = 0;  // the allocator's too
  size_t clients = 0;
  uint64_t registered_bytes = 0;
};

inline Holdings holdings_of(ForkedEngine& engine) {
  Holdings holdings;
  const std::string process = "/proc/" + std::to_string(engine.pid());
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    ++holdings.descriptors;
  }
  std::ifstream maps(process + "/maps");
  for (std::string line; std::getline(maps, line); ++holdings.mappings) {
    if (line.find("memfd:") != std::string::npos) ++holdings.memfd_mappings;
  }
  Result<shm::StatsReader> stats = shm::StatsReader::open(engine.run_dir() + "/stats");
  EXPECT_TRUE(stats.ok()) << stats.status().to_string();
  for (const shm::ClientRecord& client : stats->clients()) {
    ++holdings.clients;
    holdings.registered_bytes += client.registered_bytes;
  }
  return holdings;
}

// The flags (shm/stats.h) of a client; 0 when it is not attached.
inline uint32_t flags_of(const std::string& run_dir, const std::string& instance) {
  Result<shm::StatsReader> stats = shm::StatsReader::open(run_dir + "/stats");
  EXPECT_TRUE(stats.ok()) << stats.status().to_string();
  for (const shm::ClientRecord& client : stats->clients()) {
    if (client.instance == instance) return client.flags;
  }
  return 0;
}

// `before`: when as few clients were attached, after some had come and gone.
inline void expect_nothing_left(ForkedEngine& engine, const Holdings& before) {
  const Holdings now = holdings_of(engine);
  EXPECT_EQ(now.descriptors, before.descriptors);
  EXPECT_EQ(now.memfd_mappings, 0u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(now.mappings, before.mappings + 4) << "more than an arena or two of the allocator";
#endif
  EXPECT_EQ(now.clients, 0u);
  EXPECT_EQ(now.registered_bytes, 0u);
}

// Waits until the name can be had again, which is when the last thing of its former owner is
// released; then gives it back. `admin` is a connection that stays.
inline void wait_until_gone(ForkedEngine& engine, RawClient& admin, const std::string& instance) {
  RawClient next(engine.socket_path());
  while (code_of(next.attach(instance)) == "ALREADY_EXISTS") {
  }
  next.call("detach");
  EXPECT_TRUE(next.hung_up());
  // Answered in a later turn than the one in which that client was dropped.
  EXPECT_EQ(code_of(admin.call("admin", {{"command", "status"}})), "OK");
}

}  // namespace wherry::test
