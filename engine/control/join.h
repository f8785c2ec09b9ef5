// Join: runs one action when several others have been done, on the control thread.
//
//   Join join([] { ... });
//   start_something(join.part());
//   start_something_else(join.part());
//   join.seal();
// The action runs inside the last part() called, or in seal() when none is open. One thread; no
// failures.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace wherry::engine {

class Join {
 public:
  explicit Join(std::function<void()> action) : state_(std::make_shared<State>()) {
    state_->action = std::move(action);
  }

  // To be called exactly once.
  std::function<void()> part() {
    ++state_->open;
    return [state = state_] { close(*state); };
  }

  // No more parts will be made.
  void seal() { close(*state_); }

 private:
  struct State {
    size_t open = 1;  // the seal counts as a part
    std::function<void()> action;
  };

  static void close(State& state) {
    if (--state.open == 0) std::exchange(state.action, nullptr)();
  }

  std::shared_ptr<State> state_;
};

}  // namespace wherry::engine
