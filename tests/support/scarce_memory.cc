#include "tests/support/scarce_memory.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace wherry::test {
namespace {

thread_local uint32_t t_depth = 0;
thread_local uint64_t t_seen = 0;
thread_local uint64_t t_first = 0;
thread_local uint64_t t_count = 0;
thread_local bool t_hit = false;

bool fails() {
  if (t_depth == 0) return false;
  const uint64_t number = t_seen++;
  if (number < t_first || number - t_first >= t_count) return false;
  t_hit = true;
  return true;
}

}  // namespace

Scarcity::Scarcity() { ++t_depth; }
Scarcity::~Scarcity() { --t_depth; }

void scarcity_begin(uint64_t first, uint64_t count) {
  t_seen = 0;
  t_first = first;
  t_count = count;
  t_hit = false;
}

bool scarcity_hit() { return t_hit; }

}  // namespace wherry::test

namespace {

void* take(std::size_t size, std::size_t alignment) {
  if (wherry::test::fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* take_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = take(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return take_or_throw(size, 1); }
void* operator new[](std::size_t size) { return take_or_throw(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return take(size, 1); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return take(size, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
