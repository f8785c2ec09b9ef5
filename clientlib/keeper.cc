#include "clientlib/keeper.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "shm/doorbell.h"

namespace wherry::detail {
namespace {

constexpr uint64_t kHelloMs = 10'000;
constexpr uint64_t kDetachMs = 5'000;
constexpr uint64_t kLongestPollNs = 1'000'000'000;
constexpr uint64_t kLongestWaitNs = 3'600'000'000'000;  // kForever, for clocks that would overflow

Status not_attached() {
  return {Code::kEngineGone,
          "engine: wanted an attached one, got none; the library attaches again by itself, try "
          "again or "
          "watch engine_state()"};
}

EngineLife life_from(const std::string& state) {
  if (state == "draining") return EngineLife::kDraining;
  if (state == "stopped") return EngineLife::kStopped;
  if (state == "failed") return EngineLife::kFailed;
  return EngineLife::kRunning;
}

}  // namespace

Keeper::Keeper(KeeperOptions options, Owner* owner)
    : options_(std::move(options)),
      owner_(owner),
      random_(static_cast<uint32_t>(monotonic_ns() ^ static_cast<uint64_t>(getpid()) << 16)),
      callback_(options_.on_state) {}

Keeper::~Keeper() = default;

Status Keeper::start() {
  Result<shm::UniqueFd> wake = shm::create_eventfd();
  if (!wake.ok()) return wake.status();
  wake_ = std::move(*wake);
  driver_ = std::this_thread::get_id();
  const uint64_t give_up = deadline_in_ms(options_.wait_ms);
  for (;;) {
    Status status = attach_once();
    if (status.ok()) break;
    // No engine yet, one that is starting or ending, or a former client of our name that is still
    // being cleaned up.
    const bool may_pass = status.code() == Code::kUnreachable ||
                          status.code() == Code::kEngineGone ||
                          status.code() == Code::kAlreadyExists || status.code() == Code::kDraining;
    const uint64_t now = monotonic_ns();
    const uint64_t delay = next_delay_ns();
    if (!may_pass || now + delay >= give_up) return status;
    pump(now + delay);
  }
  // The host's signals are not for this thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<std::thread>([self = shared_from_this()] { self->run(); });
    pthread_setname_np(thread_->native_handle(), "wherry-keeper");
    // Before anybody may call(): this thread is not the driver any more.
    driver_ = thread_->get_id();
  } catch (const std::exception& error) {
    thread_.reset();
    lost("no thread");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread_ != nullptr) return {};
  return {Code::kNoResources, "attach: wanted a thread, got none; raise the limit of threads"};
}

void Keeper::stop() {
  const bool on_thread = thread_ != nullptr && thread_->get_id() == std::this_thread::get_id();
  detaching_.store(true, std::memory_order_release);
  // The engine answers once everything of this session has drained.
  if (thread_ != nullptr && !on_thread) {
    [[maybe_unused]] const Status ignored = call_detach(*this, deadline_in_ms(kDetachMs));
  }
  stopping_.store(true, std::memory_order_release);
  if (wake_.valid()) shm::ring_eventfd(wake_.get());
  if (on_thread) {
    owner_ = nullptr;
    thread_->detach();
  } else if (thread_ != nullptr && thread_->joinable()) {
    thread_->join();
  }
}

void Keeper::run() {
  driver_ = std::this_thread::get_id();
  while (!stopping()) {
    const bool wanted = options_.reattach && !detaching_.load(std::memory_order_acquire);
    if (!connected_ && wanted && monotonic_ns() >= next_attempt_ns_) {
      if (Status status = attach_once(); !status.ok() && !stopping()) {
        next_attempt_ns_ = monotonic_ns() + next_delay_ns();
        // What an operator or the failure said stays: that nobody is there is the lesser news.
        if (state().life == EngineLife::kGone) change_state(EngineLife::kGone, status.to_string());
      }
    }
    pump(!connected_ && wanted ? next_attempt_ns_ : kForever);
  }
}

// Between the last delay and twice that, cut at the maximum, less up to half by chance, so that the
// clients of one engine do not all come back at once.
uint64_t Keeper::next_delay_ns() {
  delay_ms_ =
      delay_ms_ == 0 ? options_.back_off_min_ms : std::min(delay_ms_ * 2, options_.back_off_max_ms);
  const uint64_t full = std::max<uint64_t>(delay_ms_, 1) * 1'000'000;
  return full / 2 + random_() % (full / 2);
}

Status Keeper::attach_once() {
  Result<shm::ControlSocket> socket = shm::ControlSocket::connect(options_.socket_path);
  if (!socket.ok()) return socket.status();
  socket_ = std::move(*socket);
  connected_ = true;
  life_ = nullptr;
  closing_reason_.clear();
  Result<HelloAnswer> hello =
      call_hello(*this, options_.instance, options_.rank, deadline_in_ms(kHelloMs));
  Status status = hello.status();
  std::string note;
  if (hello.ok()) {
    life_ = std::make_shared<Life>(std::move(hello->engine_pidfd));
    status = owner_->attached(*hello, life_, &note);
  }
  if (!status.ok() || !connected_) {
    if (status.ok()) status = not_attached();
    const std::string reason = closing_reason_;
    lost(status.to_string());
    return reason.empty() ? status : status.with_context(reason);
  }
  delay_ms_ = 0;
  {
    std::lock_guard lock(mutex_);
    open_ = true;
    state_.engine = hello->engine;
    state_.incarnation = hello->engine_incarnation;
    ++state_.attached;
  }
  change_state(life_from(hello->state), note);
  return {};
}

Result<Answer> Keeper::call(const char* type, const nlohmann::json& body,
                            std::vector<shm::UniqueFd> descriptors, uint64_t deadline_ns) {
  const bool driver = is_driver();
  if (driver && in_callback_) {
    return Status(Code::kInvalidArgument,
                  std::string(type) +
                      ": wanted a call from another thread, got one from the state "
                      "callback; only note the change there");
  }
  deadline_ns = std::min(deadline_ns, monotonic_ns() + kLongestWaitNs);
  Pending pending;
  std::unique_lock lock(mutex_);
  if (driver ? !connected_ : !open_) return not_attached();
  const uint64_t id = ++last_id_;
  pending_.emplace(id, &pending);
  outbox_.push_back({encode_request(type, id, body), std::move(descriptors)});
  if (driver) {
    lock.unlock();
    shm::ring_eventfd(wake_.get());
    while (!pending.done && !stopping() && monotonic_ns() < deadline_ns) pump(deadline_ns);
    lock.lock();
  } else {
    shm::ring_eventfd(wake_.get());
    const std::chrono::steady_clock::time_point deadline{
        std::chrono::nanoseconds(static_cast<int64_t>(deadline_ns))};
    answered_.wait_until(lock, deadline, [&pending] { return pending.done; });
  }
  if (!pending.done) {
    pending_.erase(id);
    return Status(Code::kTimedOut, std::string(type) +
                                       ": wanted an answer of the engine in time, got "
                                       "none; is it alive? wherryctl status tells");
  }
  return std::move(pending.result);
}

void Keeper::post_close_channel(uint32_t number) {
  std::lock_guard lock(mutex_);
  if (!open_) return;
  nlohmann::json body = nlohmann::json::object();
  body["channel"] = number;
  outbox_.push_back({encode_request("close_channel", ++last_id_, body), {}});
  shm::ring_eventfd(wake_.get());
}

// Waits for something to do until then, and does it.
void Keeper::pump(uint64_t until_ns) {
  const auto wanted = static_cast<short>(POLLIN | (socket_.wants_write() ? POLLOUT : 0));
  std::array<pollfd, 3> fds{{{wake_.get(), POLLIN, 0},
                             {connected_ ? socket_.fd() : -1, wanted, 0},
                             {connected_ && life_ != nullptr ? life_->pidfd() : -1, POLLIN, 0}}};
  const uint64_t now = monotonic_ns();
  const uint64_t wait = std::min(until_ns > now ? until_ns - now : 0, kLongestPollNs);
  if (poll(fds.data(), fds.size(), static_cast<int>((wait + 999'999) / 1'000'000)) <= 0) return;

  if (fds[0].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = read(wake_.get(), &count, sizeof(count));
  }
  std::deque<Outgoing> outbox;
  {
    std::lock_guard lock(mutex_);
    outbox.swap(outbox_);
  }
  for (Outgoing& out : outbox) {
    if (!connected_) break;  // its caller has been told
    Status status = socket_.send(std::move(out.text), std::move(out.descriptors));
    if (!status.ok()) lost(status.message());
  }
  if (connected_ && fds[1].revents != 0) read_socket();
  if (connected_ && fds[2].revents != 0) {
    // Dead, whatever its socket looks like: somebody else may hold that open.
    life_->end();
    read_socket();  // what it said last
    if (connected_) lost("the engine's process has ended");
  }
}

void Keeper::read_socket() {
  if (Status status = socket_.flush(); !status.ok()) return lost(status.message());
  while (connected_ && !stopping()) {
    Result<std::optional<shm::ControlMessage>> message = socket_.receive();
    if (!message.ok()) return lost(message.status().message());
    if (!message->has_value()) return;
    handle(std::move(**message));
  }
}

void Keeper::handle(shm::ControlMessage message) {
  Result<Incoming> incoming = decode_incoming(message.text);
  if (!incoming.ok()) return lost(incoming.status().message());
  switch (incoming->kind) {
    case Incoming::Kind::kReply: {
      std::lock_guard lock(mutex_);
      const auto found = pending_.find(incoming->id);
      if (found == pending_.end()) return;  // nobody waits any more
      Pending& pending = *found->second;
      if (incoming->status.ok()) {
        pending.result = Answer{std::move(incoming->body), std::move(message.descriptors)};
      } else {
        pending.result = incoming->status;
      }
      pending.done = true;
      pending_.erase(found);
      answered_.notify_all();
      return;
    }
    case Incoming::Kind::kState:
      return change_state(life_from(incoming->state), incoming->reason);
    case Incoming::Kind::kStale:
      if (owner_ != nullptr) owner_->stale(incoming->handles);
      return;
    case Incoming::Kind::kClosing:
      closing_reason_ = incoming->reason;
      return;
    case Incoming::Kind::kOther:
      return;
  }
}

// The connection is over; whether the engine is dead is another question.
void Keeper::lost(const std::string& why) {
  if (!connected_) return;
  connected_ = false;
  socket_ = shm::ControlSocket();
  if (life_ != nullptr) life_->lose();
  bool was_open = false;
  {
    std::lock_guard lock(mutex_);
    was_open = open_;
    open_ = false;
    outbox_.clear();
    for (auto& [id, pending] : pending_) {
      pending->result = Status(Code::kEngineGone,
                               "engine: wanted an answer, got the end of the "
                               "connection (" +
                                   why + "); try again once attached");
      pending->done = true;
    }
    pending_.clear();
  }
  answered_.notify_all();
  next_attempt_ns_ = monotonic_ns() + next_delay_ns();
  if (!was_open) return;  // start() or run() reports the failed attempt
  if (detaching_.load(std::memory_order_acquire)) return change_state(EngineLife::kDetached, "");
  const EngineLife before = state().life;
  const bool told = before == EngineLife::kStopped || before == EngineLife::kFailed;
  change_state(told ? before : EngineLife::kGone, told                      ? state().reason
                                                  : closing_reason_.empty() ? why
                                                                            : closing_reason_);
}

void Keeper::change_state(EngineLife life, const std::string& reason) {
  std::function<void(const EngineState&)> callback;
  EngineState now;
  {
    std::lock_guard lock(mutex_);
    const bool same =
        state_.life == life && state_.reason == reason && life != EngineLife::kRunning;
    state_.life = life;
    state_.reason = reason;
    if (same) return;
    callback = callback_;
    now = state_;
  }
  if (!callback) return;
  in_callback_ = true;
  try {
    callback(now);
  } catch (...) {  // not ours to handle, and not to end the process with
  }
  in_callback_ = false;
}

EngineState Keeper::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void Keeper::set_callback(std::function<void(const EngineState&)> callback) {
  std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
}

}  // namespace wherry::detail
