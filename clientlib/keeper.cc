#include "clientlib/keeper.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "clientlib/guard.h"
#include "shm/doorbell.h"
#include "shm/protocol.h"

namespace wherry::detail {
namespace {

constexpr uint64_t kHelloMs = 10'000;
constexpr uint64_t kDetachMs = 5'000;
constexpr uint64_t kLongestPollNs = 1'000'000'000;
constexpr uint64_t kLatestNs = INT64_MAX;  // kForever, for clocks with a sign
constexpr std::chrono::milliseconds kWithoutMemory{10};

Status not_attached() {
  return {Code::kEngineGone,
          "engine: wanted an attached one, got none; the library attaches again by itself, try "
          "again or watch engine_state()"};
}

Status gone_meanwhile(const char* type, const std::string& reason) {
  return {Code::kEngineGone,
          std::string(type) + ": wanted an answer of the engine, got the end of the connection (" +
              reason + "); try again once attached"};
}

EngineLife life_from(const std::string& state) {
  if (state == "draining") return EngineLife::kDraining;
  if (state == "stopped") return EngineLife::kStopped;
  if (state == "failed") return EngineLife::kFailed;
  return EngineLife::kRunning;
}

}  // namespace

Keeper::Keeper(KeeperOptions options, std::weak_ptr<Owner> owner)
    : options_(std::move(options)),
      owner_(std::move(owner)),
      random_(static_cast<uint32_t>(monotonic_ns() ^ static_cast<uint64_t>(getpid()) << 16)),
      callback_(options_.on_state) {
  closing_.reserve(shm::protocol::kMaxChannelsPerClient);
}

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
  } catch (const std::exception&) {
    thread_.reset();
    lost("no thread");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread_ != nullptr) return {};
  return {Code::kNoResources, "attach: wanted a thread, got none; raise the limit of threads"};
}

void Keeper::stop() noexcept {
  const bool on_thread = thread_ != nullptr && thread_->get_id() == std::this_thread::get_id();
  detaching_.store(true, std::memory_order_release);
  // The engine answers once everything of this session has drained.
  if (thread_ != nullptr && !on_thread) {
    [[maybe_unused]] const Status ignored =
        guarded([this] { return call_detach(*this, deadline_in_ms(kDetachMs)); });
  }
  stopping_.store(true, std::memory_order_release);
  if (wake_.valid()) shm::ring_eventfd(wake_.get());
  if (thread_ == nullptr) return;
  if (on_thread) {
    set_callback(nullptr);  // whom it would tell is gone
    thread_->detach();
  } else {
    thread_->join();
  }
}

void Keeper::run() {
  driver_ = std::this_thread::get_id();
  while (!stopping()) {
    const Status status = guarded([this]() -> Status {
      turn();
      return {};
    });
    if (status.ok()) continue;
    // Begin anew from a state that is known.
    [[maybe_unused]] const Status ignored = guarded([&]() -> Status {
      lost(status.message());
      return {};
    });
    std::this_thread::sleep_for(kWithoutMemory);
  }
  // Channels may live on: they have to know that nobody looks after them any more.
  [[maybe_unused]] const Status ignored = guarded([this]() -> Status {
    lost("this client has detached");
    return {};
  });
}

void Keeper::turn() {
  const bool wanted = options_.reattach && !detaching_.load(std::memory_order_acquire);
  if (!connected_ && wanted && monotonic_ns() >= next_attempt_ns_) {
    if (Status status = attach_once(); !status.ok() && !stopping()) {
      next_attempt_ns_ = monotonic_ns() + next_delay_ns();
      EngineState next = state();
      // What an operator or the failure said stays: that nobody is there is the lesser news.
      if (next.life == EngineLife::kGone) {
        next.reason = status.to_string();
        change_state(next, false);
      }
    }
  }
  pump(!connected_ && wanted ? next_attempt_ns_ : kForever);
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
  early_event_.reset();
  closing_reason_.clear();
  Status status = guarded([this] { return greet(); });
  if (status.ok()) return status;
  lost(status.to_string());
  return closing_reason_.empty() ? status : status.with_context(closing_reason_);
}

// Says hello and has the owner register everything.
Status Keeper::greet() {
  Result<HelloAnswer> hello =
      call_hello(*this, options_.instance, options_.rank, deadline_in_ms(kHelloMs));
  if (!hello.ok()) return hello.status();
  life_ = std::make_shared<Life>(std::move(hello->engine_pidfd));
  {
    std::lock_guard lock(mutex_);
    outbox_life_ = life_.get();
  }
  EngineState next = state();
  next.reason.clear();
  const std::shared_ptr<Owner> owner = owner_.lock();
  if (owner == nullptr) return not_attached();
  if (Status status = owner->attached(*hello, life_, &next.reason); !status.ok()) return status;
  if (!connected_) return not_attached();
  next.life = life_from(hello->state);
  next.engine = hello->engine;
  next.incarnation = hello->engine_incarnation;
  ++next.attached;
  if (early_event_.has_value()) {
    next.life = early_event_->life;
    next.reason = early_event_->reason;
  }
  delay_ms_ = 0;
  change_state(next, true);
  return {};
}

Status Keeper::not_in_callback(const char* type) const {
  if (!is_driver() || !in_callback_) return {};
  return {Code::kInvalidArgument,
          std::string(type) +
              ": wanted a call from another thread, got one from the state callback, where no "
              "answer can come; only note the change there"};
}

Status Keeper::may_call(const char* type) const {
  if (Status status = not_in_callback(type); !status.ok()) return status;
  std::lock_guard lock(mutex_);
  return open_ ? Status() : not_attached();
}

Result<Answer> Keeper::call(const char* type, const JsonWriter& body,
                            std::vector<shm::UniqueFd> descriptors, uint64_t deadline_ns) {
  if (Status status = not_in_callback(type); !status.ok()) return status;
  const bool driver = is_driver();
  deadline_ns = std::min(deadline_ns, kLatestNs);
  const uint64_t id = ++last_id_;
  std::string text = encode_request(type, id, body);
  if (text.size() > shm::kMaxPayloadBytes) {
    return Status(Code::kInvalidArgument, std::string(type) + ": wanted a message of at most " +
                                              std::to_string(shm::kMaxPayloadBytes) +
                                              " bytes, got " + std::to_string(text.size()) +
                                              "; name fewer parts at once");
  }
  const auto pending = std::make_shared<Pending>();
  std::unique_lock lock(mutex_);
  if (driver ? !connected_ : !open_) return not_attached();
  pending_.emplace(id, pending);
  try {
    outbox_.push_back({id, std::move(text), std::move(descriptors)});
  } catch (...) {
    pending_.erase(id);
    throw;
  }
  shm::ring_eventfd(wake_.get());
  const auto waiting = [&pending] { return pending->state == Pending::State::kWaiting; };
  if (driver) {
    // Only the driver itself changes what is pending.
    lock.unlock();
    while (waiting() && !stopping() && monotonic_ns() < deadline_ns) pump(deadline_ns);
    lock.lock();
  } else {
    const std::chrono::steady_clock::time_point deadline{
        std::chrono::nanoseconds(static_cast<int64_t>(deadline_ns))};
    answered_.wait_until(lock, deadline, [&waiting] { return !waiting(); });
  }
  switch (pending->state) {
    case Pending::State::kAnswered:
      return std::move(pending->result);
    case Pending::State::kLost:
      return gone_meanwhile(type, lost_reason_);
    case Pending::State::kWaiting:
      break;
  }
  pending_.erase(id);
  return Status(Code::kTimedOut,
                std::string(type) +
                    ": wanted an answer of the engine in time, got none; is it alive? wherryctl "
                    "status tells");
}

void Keeper::post_close_channel(uint32_t number, const Life* life) {
  std::lock_guard lock(mutex_);
  // A number of a former life names somebody else's channel now.
  if (outbox_life_ != life) return;
  closing_.push_back(number);
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
  send_outbox();
  if (connected_ && fds[1].revents != 0) read_socket();
  if (connected_ && fds[2].revents != 0) {
    // Dead, whatever its socket looks like: somebody else may hold that open.
    life_->end();
    read_socket();  // what it said last
    if (connected_) lost("the engine's process has ended");
  }
}

void Keeper::send_outbox() {
  std::deque<Outgoing> outbox;
  {
    std::lock_guard lock(mutex_);
    for (; !closing_.empty(); closing_.pop_back()) {
      const uint64_t id = ++last_id_;
      const JsonWriter body = JsonWriter().number("channel", closing_.back());
      outbox_.push_back({id, encode_request("close_channel", id, body), {}});
    }
    outbox.swap(outbox_);
  }
  for (Outgoing& out : outbox) {
    if (!connected_) return;  // its caller has been told
    Status status = socket_.send(std::move(out.text), std::move(out.descriptors));
    if (status.ok()) continue;
    if (status.code() != Code::kUnreachable) {
      answer(out.id, status);  // this one could not be sent; the others can
      continue;
    }
    read_socket();  // it may have said why
    lost(status.message());
  }
}

void Keeper::read_socket() {
  const Status flushed = socket_.flush();
  while (connected_ && !stopping()) {
    Result<std::optional<shm::ControlMessage>> message = socket_.receive();
    if (!message.ok()) return lost(message.status().message());
    if (!message->has_value()) break;
    handle(std::move(**message));
  }
  if (!flushed.ok()) lost(flushed.message());
}

void Keeper::handle(shm::ControlMessage message) {
  Result<Incoming> incoming = decode_incoming(message.text);
  if (!incoming.ok()) return lost(incoming.status().message());
  switch (incoming->kind) {
    case Incoming::Kind::kReply:
      if (!incoming->status.ok()) return answer(incoming->id, incoming->status);
      return answer(incoming->id,
                    Answer{std::move(incoming->body), std::move(message.descriptors)});
    case Incoming::Kind::kState: {
      EngineState next = state();
      next.life = life_from(incoming->state);
      next.reason = incoming->reason;
      bool open = false;
      {
        std::lock_guard lock(mutex_);
        open = open_;
      }
      if (open) return change_state(next, true);
      early_event_ = StateEvent{next.life, std::move(next.reason)};
      return;
    }
    case Incoming::Kind::kStale:
      if (const std::shared_ptr<Owner> owner = owner_.lock()) {
        owner->stale(std::move(incoming->handles));
      }
      return;
    case Incoming::Kind::kClosing:
      closing_reason_ = incoming->reason;
      return;
    case Incoming::Kind::kOther:
      return;
  }
}

void Keeper::answer(uint64_t id, Result<Answer> result) {
  std::lock_guard lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;  // nobody waits any more
  found->second->result = std::move(result);
  found->second->state = Pending::State::kAnswered;
  pending_.erase(found);
  answered_.notify_all();
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
    was_open = std::exchange(open_, false);
    outbox_.clear();
    closing_.clear();
    outbox_life_ = nullptr;
    for (auto& [id, pending] : pending_) pending->state = Pending::State::kLost;
    pending_.clear();
    try {
      lost_reason_ = why;
    } catch (...) {
      lost_reason_.clear();
    }
  }
  answered_.notify_all();
  if (!was_open) return;  // start() or turn() reports the failed attempt
  next_attempt_ns_ = monotonic_ns() + next_delay_ns();
  EngineState next = state();
  if (detaching_.load(std::memory_order_acquire)) {
    next.life = EngineLife::kDetached;
    next.reason.clear();
  } else if (next.life != EngineLife::kStopped && next.life != EngineLife::kFailed) {
    next.life = EngineLife::kGone;
    next.reason = closing_reason_.empty() ? why : closing_reason_;
  }
  change_state(next, false);
}

void Keeper::change_state(const EngineState& next, bool open) {
  std::function<void(const EngineState&)> callback;
  {
    std::lock_guard lock(mutex_);
    callback = callback_;
    const bool same = state_.life == next.life && state_.reason == next.reason &&
                      state_.attached == next.attached;
    EngineState copy = next;
    state_ = std::move(copy);
    open_ = open;
    if (same) return;
  }
  if (!callback) return;
  in_callback_ = true;
  try {
    callback(next);
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
  callback_.swap(callback);
}

}  // namespace wherry::detail
