// Choices by chance, all from one seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace wherry::fuzz {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  uint64_t any() { return random_(); }
  uint64_t below(uint64_t end) { return random_() % end; }
  bool one_in(uint64_t count) { return below(count) == 0; }

  template <typename List>
  const auto& of(const List& list) {
    return list[below(std::size(list))];
  }

  // A number at the edge of something, or any.
  uint64_t number() {
    switch (below(8)) {
      case 0:
        return 0;
      case 1:
        return UINT64_MAX - below(3);
      case 2:
        return (uint64_t{1} << below(64)) - below(2);
      case 3:
        return any();
      default:
        return below(70);
    }
  }

  std::string bytes(size_t most) {
    std::string text(below(most + 1), '\0');
    for (char& c : text) c = static_cast<char>(any());
    return text;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace wherry::fuzz
