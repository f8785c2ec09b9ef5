// Keeper: the thread that owns the control socket and watches whether the engine lives. Internal.
//
// It matches replies to requests, passes events on, and when the engine is gone attaches again with
// jittered exponential back-off. A socket that hangs up is only a hint: an engine counts as dead
// when its pidfd is readable, because only then are its other descriptors closed for certain.
// "Driver" below is the thread that does the work: the one that calls start(), until that returns,
// then the keeper's own. Other threads may call what is public.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "clientlib/life.h"
#include "clientlib/messages.h"
#include "clientlib/types.h"
#include "shm/control_socket.h"

namespace wherry::detail {

struct KeeperOptions {
  std::string socket_path;
  InstanceId instance;
  uint32_t rank = 0;
  uint64_t wait_ms = 0;  // how long start() goes on trying
  uint64_t back_off_min_ms = 50;
  uint64_t back_off_max_ms = 2000;
  bool reattach = true;
  std::function<void(const EngineState&)> on_state;
};

class Keeper final : public ControlLink, public std::enable_shared_from_this<Keeper> {
 public:
  // What the session does when things change; called by the driver.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The hello is answered: register everything. A failure ends the connection, and it is tried
    // again. `note` is for the state's reason.
    virtual Status attached(const HelloAnswer& hello, std::shared_ptr<Life> life,
                            std::string* note) = 0;
    // These handles of the engine mean nothing any more.
    virtual void stale(std::vector<uint64_t> handles) = 0;
  };

  Keeper(KeeperOptions options, std::weak_ptr<Owner> owner);
  ~Keeper() override;

  // Attaches and starts the thread. Fails with what the engine answered, or UNREACHABLE.
  Status start();

  // Detaches, if there is anybody to detach from, and ends the thread; afterwards no callback runs.
  // Safe on the thread itself (in a callback), which then ends by itself. Not in a forked child.
  void stop() noexcept;

  // ENGINE_GONE while no engine is attached, or when it goes before it has answered;
  // INVALID_ARGUMENT from a state callback, which would wait for itself.
  Result<Answer> call(const char* type, const JsonWriter& body,
                      std::vector<shm::UniqueFd> descriptors, uint64_t deadline_ns) override;

  // What call() would refuse at once: only the callback, or also that no engine is attached.
  Status not_in_callback(const char* type) const;
  Status may_call(const char* type) const;

  // Tells the engine, if it is still that life, that a channel is not used any more; nobody waits
  // for the answer. Needs no memory.
  void post_close_channel(uint32_t number, const Life* life);

  EngineState state() const;
  void set_callback(std::function<void(const EngineState&)> callback);

 private:
  struct Pending {
    enum class State : uint8_t { kWaiting, kAnswered, kLost };
    State state = State::kWaiting;
    Result<Answer> result{Status(Code::kInternal, "")};  // once answered
  };
  struct Outgoing {
    uint64_t id = 0;
    std::string text;
    std::vector<shm::UniqueFd> descriptors;
  };
  struct StateEvent {
    EngineLife life;
    std::string reason;
  };

  bool is_driver() const { return driver_.load() == std::this_thread::get_id(); }
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  void run();
  void turn();
  Status attach_once();
  Status greet();
  void pump(uint64_t until_ns);
  void send_outbox();
  void read_socket();
  void handle(shm::ControlMessage message);
  void answer(uint64_t id, Result<Answer> result);
  void lost(const std::string& why);
  void change_state(const EngineState& next, bool open);
  uint64_t next_delay_ns();

  const KeeperOptions options_;
  const std::weak_ptr<Owner> owner_;

  // The driver's own.
  shm::ControlSocket socket_;
  bool connected_ = false;
  bool in_callback_ = false;
  std::shared_ptr<Life> life_;             // of the last hello that was answered
  std::optional<StateEvent> early_event_;  // came before the attachment was complete
  uint64_t next_attempt_ns_ = 0;
  uint64_t delay_ms_ = 0;
  std::string closing_reason_;
  std::minstd_rand random_;

  shm::UniqueFd wake_;  // eventfd: look at the outbox, or stop
  std::atomic<std::thread::id> driver_{};
  std::atomic<uint64_t> last_id_{0};
  std::atomic<bool> detaching_{false};  // the end of the connection is wanted
  std::atomic<bool> stopping_{false};
  std::unique_ptr<std::thread> thread_;

  mutable std::mutex mutex_;  // everything below
  std::condition_variable answered_;
  bool open_ = false;  // others may call
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> pending_;
  std::deque<Outgoing> outbox_;
  std::vector<uint32_t> closing_;      // channels; goes out with the outbox; has room for all
  const Life* outbox_life_ = nullptr;  // whom both are for, once it has answered the hello
  std::string lost_reason_;            // of the last connection
  EngineState state_;
  std::function<void(const EngineState&)> callback_;
};

}  // namespace wherry::detail
