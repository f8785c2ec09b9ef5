#include "clientlib/owner.h"

#include <algorithm>
#include <vector>

namespace wherry::detail {
namespace {

void give_up(OwnerWord& word, uint64_t token) {
  word.compare_exchange_strong(token, 0, std::memory_order_acq_rel);
}

// A thread's token, and the words that hold it.
class ThisThread {
 public:
  ThisThread() : token_(next_.fetch_add(1, std::memory_order_relaxed)) {}
  ~ThisThread() {
    for (const auto& one : words_) {
      if (const std::shared_ptr<OwnerWord> word = one.lock()) give_up(*word, token_);
    }
  }

  uint64_t token() const { return token_; }

  // False when there is no memory to remember it.
  bool remember(const std::shared_ptr<OwnerWord>& word) noexcept {
    try {
      // Forgets, in passing, those that are gone or given up, and an earlier entry of this one.
      const auto over = [&](const std::weak_ptr<OwnerWord>& one) {
        const std::shared_ptr<OwnerWord> other = one.lock();
        return other == nullptr || other == word ||
               other->load(std::memory_order_relaxed) != token_;
      };
      words_.erase(std::remove_if(words_.begin(), words_.end(), over), words_.end());
      words_.push_back(word);
      return true;
    } catch (...) {
      return false;
    }
  }

 private:
  static inline std::atomic<uint64_t> next_{1};

  const uint64_t token_;
  std::vector<std::weak_ptr<OwnerWord>> words_;
};

ThisThread& this_thread() {
  thread_local ThisThread self;
  return self;
}

}  // namespace

bool Owner::try_take() noexcept {
  ThisThread& me = this_thread();
  uint64_t owner = word_->load(std::memory_order_acquire);
  if (owner == me.token()) return true;
  if (owner != 0 || !word_->compare_exchange_strong(owner, me.token(), std::memory_order_acq_rel)) {
    return false;
  }
  if (me.remember(word_)) return true;
  give_up(*word_, me.token());
  return false;
}

bool Owner::held() const noexcept {
  return word_->load(std::memory_order_acquire) == this_thread().token();
}

void Owner::release() noexcept { give_up(*word_, this_thread().token()); }

}  // namespace wherry::detail
