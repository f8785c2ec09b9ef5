// A client by hand: raw control messages over a real socket, and an engine to talk to.
//
// For tests of the control side: none of the client library's care. One thread per client; limits
// on waiting only catch hangs.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "shm/control_socket.h"
#include "shm/ring.h"
#include "shm/segment.h"
#include "tests/temporary_directory.h"

namespace wherry::test {

using nlohmann::json;
using Descriptors = std::vector<shm::UniqueFd>;

// Sends a packet as it is, with at most 64 descriptors: our own code would not. What sendmsg said.
ssize_t send_packet(int socket, const std::string& packet, const Descriptors& descriptors,
                    int flags = 0);

// A config for tests: a run directory of its own, one poller that sleeps when idle.
engine::Config test_config(const tests::TemporaryDirectory& directory);

// Many engines, and each would say what it does; with WHERRY_TEST_LOG set they do.
void quiet_engine_log();

// An engine in this process, its control loop on a thread of its own.
class EngineHost {
 public:
  explicit EngineHost(const std::function<void(engine::Config*)>& change = {},
                      const engine::EngineOptions& options = {});
  ~EngineHost();

  engine::Engine& operator*() { return *engine_; }
  engine::Engine* operator->() { return engine_.get(); }
  const std::string& socket_path() const { return engine_->socket_path(); }
  // What run() returned; waits for it, and drives the poller meanwhile when that is external.
  Status wait();

 private:
  tests::TemporaryDirectory directory_;
  std::unique_ptr<engine::Engine> engine_;
  std::thread thread_;
  bool external_ = false;  // the test drives the poller
  std::atomic<bool> ended_{false};
  Status outcome_;
};

// A memfd as the client library would make it: sealed, allocated.
shm::UniqueFd sealed_memory(uint64_t bytes);
shm::UniqueFd duplicate(int fd);
shm::UniqueFd pidfd_of(pid_t pid);

// The rings of one channel, seen from the client.
struct RawRings {
  uint32_t number = 0;
  shm::MappedSegment c2e;
  shm::MappedSegment e2c;
  shm::SegmentHeader c2e_header{};
  shm::SegmentHeader e2c_header{};
  shm::RecordWriter writer;
  shm::RecordReader completions;
  shm::UniqueFd eventfd;

  // One pair; returns the request id. Rings the doorbell.
  uint64_t transfer(uint64_t source, uint64_t destination, shm::BlockPair pair = {0, 0});
  uint64_t notify(uint64_t client, const std::string& message);
  uint64_t publish(shm::SubmitHead head, const std::string& notification = "");
  // The next completion, if there is one.
  std::optional<shm::CompletionHead> reap();
  shm::ChannelState state() const;
};

class RawClient {
 public:
  // Connects only.
  explicit RawClient(const std::string& socket_path);

  // The keys of a hello that is accepted.
  static json hello(const std::string& instance, uint32_t rank);
  // Says hello with a pidfd of this process; the reply.
  json attach(const std::string& instance, uint32_t rank = 0);

  // Sends without waiting; returns the id. `type` and the keys of `fields` are the message.
  uint64_t send(const std::string& type, const json& fields = json::object(),
                Descriptors descriptors = {});
  void send_text(const std::string& text, Descriptors descriptors = {});
  // The reply to that id; events that come before it are kept. Null when the engine hung up.
  json reply(uint64_t id, Descriptors* descriptors = nullptr);
  json call(const std::string& type, const json& fields = json::object(),
            Descriptors descriptors = {}, Descriptors* received = nullptr);
  // The next event of this name, kept or still to come; null when the engine hung up.
  json event(const std::string& name);
  // Whether a reply to that id has come, without waiting.
  bool answered(uint64_t id);
  // Waits until the engine hangs up.
  bool hung_up();

  // Common requests; they expect success.
  uint64_t region(int fd, uint64_t length, uint64_t offset = 0);
  uint64_t layout(uint64_t region, uint32_t blocks, uint64_t offset = 0);
  // A layout of one block of that size.
  uint64_t block_layout(uint64_t region, uint64_t block_bytes);
  // Opens a channel, maps it and says so.
  std::unique_ptr<RawRings> channel(const json& fields = json::object());

  shm::ControlSocket& socket() { return socket_; }
  void close() { socket_ = shm::ControlSocket(); }

 private:
  struct Received {
    json message;
    Descriptors descriptors;
  };
  // Takes in what is there, or what comes; false when the engine hung up.
  bool take(bool wait);

  shm::ControlSocket socket_;
  uint64_t last_id_ = 0;
  bool hung_up_ = false;
  std::vector<Received> replies_;
  std::vector<json> events_;
};

// What a completion says.
inline std::string code_of(const shm::CompletionHead& completion) {
  return std::string(code_name(static_cast<Code>(completion.status)));
}

// The geometry of layout(): fully contiguous, one layer of K and V, 64 bytes each.
json block_geometry(uint32_t blocks);
inline constexpr uint64_t kBlockBytes = 128;

std::string code_of(const json& reply);

}  // namespace wherry::test
