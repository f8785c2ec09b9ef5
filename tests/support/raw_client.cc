#include "tests/support/raw_client.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>

#include "shm/doorbell.h"
#include "shm/layout.h"
#include "shm/protocol.h"
#include "shm/segment.h"

namespace wherry::test {
namespace {

constexpr int kHangMs = 120'000;

uint64_t clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

ssize_t send_packet(int socket, const std::string& packet, const Descriptors& descriptors,
                    int flags) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(64 * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    for (size_t i = 0; i < descriptors.size(); ++i) {
      reinterpret_cast<int*>(CMSG_DATA(item))[i] = descriptors[i].get();
    }
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL | flags);
}

engine::Config test_config(const tests::TemporaryDirectory& directory) {
  engine::Config config;
  config.name = "test";
  config.run_dir = directory / "run";
  config.pollers[0].idle = engine::IdleStrategy::kSleep;
  return config;
}

void quiet_engine_log() {
  if (std::getenv("WHERRY_TEST_LOG") == nullptr) spdlog::set_level(spdlog::level::off);
}

EngineHost::EngineHost(const std::function<void(engine::Config*)>& change,
                       const engine::EngineOptions& options) {
  quiet_engine_log();
  engine::Config config = test_config(directory_);
  if (change) change(&config);
  Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::start(config, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  engine_ = std::move(*engine);
  external_ = config.pollers[0].idle == engine::IdleStrategy::kExternal;
  thread_ = std::thread([this] {
    outcome_ = engine_->run();
    ended_ = true;
  });
}

Status EngineHost::wait() {
  while (external_ && !ended_) engine_->poller(0)->poll_once();
  if (thread_.joinable()) thread_.join();
  return outcome_;
}

EngineHost::~EngineHost() {
  if (thread_.joinable()) engine_->request_stop("the test is over");
  EXPECT_TRUE(wait().ok());
}

shm::UniqueFd sealed_memory(uint64_t bytes) {
  Result<shm::UniqueFd> fd = shm::create_memory("wherry-test", bytes);
  EXPECT_TRUE(fd.ok()) << fd.status().to_string();
  return std::move(*fd);
}

shm::UniqueFd duplicate(int fd) { return shm::UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

shm::UniqueFd pidfd_of(pid_t pid) {
  return shm::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

RawClient::RawClient(const std::string& socket_path) {
  Result<shm::ControlSocket> socket = shm::ControlSocket::connect(socket_path);
  EXPECT_TRUE(socket.ok()) << socket.status().to_string();
  if (socket.ok()) socket_ = std::move(*socket);
}

json RawClient::hello(const std::string& instance, uint32_t rank) {
  return {{"protocol_min", shm::protocol::kMinVersion},
          {"protocol_max", shm::protocol::kVersion},
          {"layout_major", shm::kLayoutMajor},
          {"layout_minor", shm::kLayoutMinor},
          {"features", 0},
          {"instance", instance},
          {"rank", rank},
          {"pid", static_cast<uint32_t>(getpid())},
          {"clock_ns", clock_ns()}};
}

json RawClient::attach(const std::string& instance, uint32_t rank) {
  Descriptors pidfd;
  pidfd.push_back(pidfd_of(getpid()));
  return call("hello", hello(instance, rank), std::move(pidfd));
}

uint64_t RawClient::send(const std::string& type, const json& fields, Descriptors descriptors) {
  json message = fields;
  message["type"] = type;
  message["version"] = shm::protocol::kVersion;
  message["id"] = ++last_id_;
  send_text(message.dump(), std::move(descriptors));
  return last_id_;
}

void RawClient::send_text(const std::string& text, Descriptors descriptors) {
  [[maybe_unused]] const Status sent = socket_.send(text, std::move(descriptors));
}

bool RawClient::take(bool wait) {
  while (!hung_up_) {
    Result<std::optional<shm::ControlMessage>> message = socket_.receive();
    if (!message.ok()) {
      hung_up_ = true;
      break;
    }
    if (message->has_value()) {
      json object = json::parse((*message)->text);
      if (object["type"] == "event") {
        events_.push_back(std::move(object));
      } else {
        replies_.push_back({std::move(object), std::move((*message)->descriptors)});
      }
      return true;
    }
    if (!wait) return true;
    pollfd watched{socket_.fd(), static_cast<short>(POLLIN | (socket_.wants_write() ? POLLOUT : 0)),
                   0};
    if (poll(&watched, 1, kHangMs) != 1) {
      ADD_FAILURE() << "the engine says nothing";
      hung_up_ = true;
    }
    if ((watched.revents & POLLOUT) != 0) [[maybe_unused]]
      const Status flushed = socket_.flush();
  }
  return false;
}

json RawClient::reply(uint64_t id, Descriptors* descriptors) {
  while (true) {
    for (size_t i = 0; i < replies_.size(); ++i) {
      if (replies_[i].message["id"] != id) continue;
      json message = std::move(replies_[i].message);
      if (descriptors != nullptr) *descriptors = std::move(replies_[i].descriptors);
      replies_.erase(replies_.begin() + static_cast<std::ptrdiff_t>(i));
      return message;
    }
    if (!take(true)) return nullptr;
  }
}

json RawClient::call(const std::string& type, const json& fields, Descriptors descriptors,
                     Descriptors* received) {
  return reply(send(type, fields, std::move(descriptors)), received);
}

json RawClient::event(const std::string& name) {
  while (true) {
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i]["event"] != name) continue;
      json event = std::move(events_[i]);
      events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(i));
      return event;
    }
    if (!take(true)) return nullptr;
  }
}

bool RawClient::answered(uint64_t id) {
  size_t before;
  do {
    before = replies_.size() + events_.size();
    take(false);
  } while (replies_.size() + events_.size() != before);
  for (const Received& received : replies_) {
    if (received.message["id"] == id) return true;
  }
  return false;
}

bool RawClient::hung_up() {
  while (take(true)) {
  }
  return hung_up_;
}

uint64_t RawClient::region(int fd, uint64_t length, uint64_t offset) {
  Descriptors memory;
  memory.push_back(duplicate(fd));
  const json reply =
      call("register_region", {{"offset", offset}, {"length", length}}, std::move(memory));
  EXPECT_EQ(reply.value("ok", false), true) << reply;
  return reply.value("handle", uint64_t{0});
}

json block_geometry(uint32_t blocks) {
  return {{"kind", 1},       {"inner_order", 1}, {"dtype", 1},     {"num_blocks", blocks},
          {"num_layers", 1}, {"outer_dim", 2},   {"page_size", 4}, {"inner_dim", 16}};
}

uint64_t RawClient::layout(uint64_t region, uint32_t blocks, uint64_t offset) {
  const json parts = json::array({json::array({region, offset, blocks * kBlockBytes})});
  const json reply =
      call("register_layout", {{"geometry", block_geometry(blocks)}, {"parts", parts}});
  EXPECT_EQ(reply.value("ok", false), true) << reply;
  return reply.value("handle", uint64_t{0});
}

uint64_t RawClient::block_layout(uint64_t region, uint64_t block_bytes) {
  json geometry = block_geometry(1);
  geometry["outer_dim"] = 1;
  geometry["page_size"] = block_bytes / 16;
  const json parts = json::array({json::array({region, 0, block_bytes})});
  const json reply = call("register_layout", {{"geometry", geometry}, {"parts", parts}});
  EXPECT_EQ(reply.value("ok", false), true) << reply;
  return reply.value("handle", uint64_t{0});
}

std::unique_ptr<RawRings> RawClient::channel(const json& fields) {
  Descriptors received;
  const json opened = call("open_channel", fields, {}, &received);
  EXPECT_EQ(opened.value("ok", false), true) << opened;
  EXPECT_GE(received.size(), 3u);
  if (received.size() < 3) return nullptr;
  auto rings = std::make_unique<RawRings>();
  rings->number = opened.value("channel", uint32_t{0});
  const auto map = [&](int fd, shm::Access access) {
    Result<shm::MappedSegment> mapping =
        shm::MappedSegment::map(fd, static_cast<uint64_t>(lseek(fd, 0, SEEK_END)), access);
    EXPECT_TRUE(mapping.ok()) << mapping.status().to_string();
    return std::move(*mapping);
  };
  rings->c2e = map(received[0].get(), shm::Access::kReadWrite);
  rings->e2c = map(received[1].get(), shm::Access::kRead);
  rings->eventfd = std::move(received[2]);
  rings->c2e_header = *shm::read_header(rings->c2e, shm::SegmentKind::kC2e);
  rings->e2c_header = *shm::read_header(rings->e2c, shm::SegmentKind::kE2c);
  rings->writer = shm::RecordWriter(rings->c2e.at<shm::Slot>(rings->c2e_header.submission_offset),
                                    rings->c2e_header.submission_slots);
  rings->completions =
      shm::RecordReader(rings->e2c.at<const shm::Slot>(rings->e2c_header.completion_offset),
                        rings->e2c_header.completion_slots);
  const json mapped = call("channel_mapped", {{"channel", rings->number}});
  EXPECT_EQ(mapped.value("ok", false), true) << mapped;
  return rings;
}

uint64_t RawRings::publish(shm::SubmitHead head, const std::string& notification) {
  head.slot_count = static_cast<uint16_t>(
      shm::record_slots(head.pair_count, static_cast<uint32_t>(notification.size())));
  head.notification_bytes = static_cast<uint16_t>(notification.size());
  for (size_t at = 0; at < notification.size(); at += shm::kPayloadBytes) {
    const size_t bytes = std::min<size_t>(shm::kPayloadBytes, notification.size() - at);
    writer.put_extension(static_cast<uint32_t>(at / shm::kPayloadBytes), notification.data() + at,
                         bytes);
  }
  const uint64_t id = writer.position() + 1;
  writer.publish(&head, head.slot_count);
  shm::ring_eventfd(eventfd.get());
  return id;
}

uint64_t RawRings::transfer(uint64_t source, uint64_t destination, shm::BlockPair pair) {
  shm::SubmitHead head{};
  head.op = static_cast<uint8_t>(shm::Op::kTransfer);
  head.pair_count = 1;
  head.source = source;
  head.destination = destination;
  head.first_pair = pair;
  return publish(head);
}

uint64_t RawRings::notify(uint64_t client, const std::string& message) {
  shm::SubmitHead head{};
  head.op = static_cast<uint8_t>(shm::Op::kNotify);
  head.destination = client;
  return publish(head, message);
}

std::optional<shm::CompletionHead> RawRings::reap() {
  if (!completions.ready()) return std::nullopt;
  shm::CompletionHead head;
  completions.copy_head(&head);
  completions.consume(shm::completion_slots(head.failed_count));
  c2e.at<shm::ClientWords>(c2e_header.words_offset)
      ->reap_cursor.store(completions.position(), std::memory_order_release);
  return head;
}

shm::ChannelState RawRings::state() const {
  return static_cast<shm::ChannelState>(
      e2c.at<const shm::EngineWords>(e2c_header.words_offset)->state.load());
}

std::string code_of(const json& reply) {
  if (!reply.is_object()) return "hung up";
  return reply.value("ok", false) ? "OK" : reply.value("code", "no code");
}

}  // namespace wherry::test
