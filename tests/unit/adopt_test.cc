// Adoption of existing memory, for real: malloc, mmap, writers meanwhile, realloc, and what is
// refused.
#include "clientlib/adopt.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FOREIGN_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FOREIGN_ALLOCATOR 1
#endif
#endif

namespace wherry::detail {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

// Above 32 MiB malloc always maps. Unused with a foreign allocator, as is untouched().
[[maybe_unused]] Buffer large_buffer(size_t bytes) {
  Buffer buffer(static_cast<std::byte*>(std::malloc(bytes)));
  for (size_t i = 0; i < bytes; ++i) buffer.get()[i] = static_cast<std::byte>(i * 31 >> 4);
  return buffer;
}

[[maybe_unused]] bool untouched(const std::byte* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (memory[i] != static_cast<std::byte>(i * 31 >> 4)) return false;
  }
  return true;
}

// Whether the byte at `offset` of the memfd is seen in memory and the other way round.
void expect_shared(const AdoptedMemory& adopted, std::byte* memory, uint64_t at) {
  std::byte seen{};
  const auto file_at = static_cast<off_t>(adopted.offset + at);
  ASSERT_EQ(pread(adopted.memory.get(), &seen, 1, file_at), 1);
  EXPECT_EQ(seen, memory[at]);
  const std::byte changed = ~seen;
  memory[at] = changed;
  ASSERT_EQ(pread(adopted.memory.get(), &seen, 1, file_at), 1);
  EXPECT_EQ(seen, changed);
  memory[at] = ~changed;
  ASSERT_EQ(pwrite(adopted.memory.get(), &changed, 1, file_at), 1);
  EXPECT_EQ(memory[at], changed);
}

#ifndef FOREIGN_ALLOCATOR

TEST(Adopt, AMallocBufferKeepsAddressAndContentsAndIsSharedAfterwards) {
  constexpr size_t kBytes = 150 * kMiB + 12345;  // three steps, the last one odd
  Buffer buffer = large_buffer(kBytes);
  Result<AdoptedMemory> adopted = adopt_memory(buffer.get(), kBytes, false);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_TRUE(untouched(buffer.get(), kBytes));
  EXPECT_EQ(adopted->base + adopted->offset, buffer.get());
  EXPECT_EQ(adopted->offset, 16u);
  EXPECT_GE(adopted->bytes, kBytes + 16);
  for (const uint64_t at :
       {uint64_t{0}, uint64_t{64 * kMiB - 16}, uint64_t{64 * kMiB}, uint64_t{kBytes - 1}}) {
    expect_shared(*adopted, buffer.get(), at);
  }
  struct stat info {};
  ASSERT_EQ(fstat(adopted->memory.get(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), adopted->bytes);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, adopted->bytes) << "every page allocated";
  const int seals = fcntl(adopted->memory.get(), F_GET_SEALS);
  EXPECT_NE(seals & F_SEAL_SHRINK, 0);
  EXPECT_EQ(seals & F_SEAL_WRITE, 0);
}

TEST(Adopt, ReallocCopiesInsteadOfGrowingPastTheMemfd) {
  constexpr size_t kBytes = 40 * kMiB;
  Buffer buffer = large_buffer(kBytes);
  Result<AdoptedMemory> adopted = adopt_memory(buffer.get(), kBytes, false);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  buffer.reset(static_cast<std::byte*>(std::realloc(buffer.release(), 2 * kBytes)));
  ASSERT_NE(buffer, nullptr);
  EXPECT_TRUE(untouched(buffer.get(), kBytes));
  std::memset(buffer.get(), 7, 2 * kBytes);  // a mapping grown past the file would raise SIGBUS
}

TEST(Adopt, AnAlignedBufferIsFoundBehindItsLead) {
  constexpr size_t kBytes = 40 * kMiB;
  void* memory = nullptr;
  ASSERT_EQ(posix_memalign(&memory, 64, kBytes), 0);
  Buffer buffer(static_cast<std::byte*>(memory));
  Result<AdoptedMemory> adopted = adopt_memory(buffer.get(), kBytes, false);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  expect_shared(*adopted, buffer.get(), kBytes / 2);
}

TEST(Adopt, WritersMeanwhileLoseNothingWhereTheKernelHoldsThemUp) {
  constexpr size_t kBytes = 80 * kMiB;
  constexpr size_t kPage = 4096;
  Buffer buffer(static_cast<std::byte*>(std::calloc(kBytes, 1)));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rounds{0};
  std::vector<uint64_t> last(kBytes / kPage, 0);
  std::thread writer([&] {
    for (uint64_t value = 1; !stop.load() || value < 3; ++value) {
      for (size_t page = 0; page < last.size(); ++page) {
        auto* word = reinterpret_cast<volatile uint64_t*>(buffer.get() + page * kPage + 64);
        *word = value;
        last[page] = value;
      }
      rounds = value;
    }
  });
  while (rounds.load() < 1) std::this_thread::yield();
  Result<AdoptedMemory> adopted = adopt_memory(buffer.get(), kBytes, false);
  stop = true;
  writer.join();
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  if (!adopted->guarded) GTEST_SKIP() << "userfaultfd is not permitted here";
  for (size_t page = 0; page < last.size(); ++page) {
    ASSERT_EQ(*reinterpret_cast<uint64_t*>(buffer.get() + page * kPage + 64), last[page]) << page;
  }
}

TEST(Adopt, AHeapChunkIsRefused) {
  std::vector<char> small(1000);
  Result<AdoptedMemory> adopted = adopt_memory(small.data(), small.size(), false);
  EXPECT_EQ(adopted.code(), Code::kInvalidArgument);
}

TEST(Adopt, TheMiddleOfABufferIsRefused) {
  constexpr size_t kBytes = 40 * kMiB;
  Buffer buffer(static_cast<std::byte*>(std::calloc(kBytes, 1)));
  EXPECT_EQ(adopt_memory(buffer.get() + kMiB, kMiB, false).code(), Code::kInvalidArgument);
}

TEST(Adopt, ARangePastTheEndOfTheBufferIsRefused) {
  constexpr size_t kBytes = 40 * kMiB;
  Buffer buffer = large_buffer(kBytes);
  EXPECT_EQ(adopt_memory(buffer.get(), kBytes + 64 * 1024, false).code(), Code::kInvalidArgument);
  EXPECT_TRUE(untouched(buffer.get(), kBytes));
}

TEST(Adopt, ABufferIsAdoptedOnce) {
  constexpr size_t kBytes = 40 * kMiB;
  Buffer buffer = large_buffer(kBytes);
  Result<AdoptedMemory> adopted = adopt_memory(buffer.get(), kBytes, false);
  ASSERT_TRUE(adopted.ok());
  Result<AdoptedMemory> again = adopt_memory(buffer.get(), kBytes, false);
  EXPECT_EQ(again.code(), Code::kInvalidArgument);
  EXPECT_NE(again.status().message().find("shared already"), std::string::npos);
}

#endif

// A mapping of the test's own.
class OwnPages {
 public:
  OwnPages(size_t bytes, int protection, int flags, int fd = -1)
      : bytes_(bytes), address_(mmap(nullptr, bytes, protection, flags, fd, 0)) {}
  ~OwnPages() { munmap(address_, bytes_); }
  std::byte* get() const { return static_cast<std::byte*>(address_); }

 private:
  size_t bytes_;
  void* address_;
};

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

TEST(Adopt, AMappingOfTheCallersOwnIsAdoptedWholeOrInPart) {
  OwnPages pages(4 * kMiB, kReadWrite, kAnonymous);
  std::memset(pages.get(), 9, 4 * kMiB);
  Result<AdoptedMemory> adopted = adopt_memory(pages.get() + kMiB, 2 * kMiB, true);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_EQ(adopted->offset, 0u);
  EXPECT_EQ(adopted->bytes, 2 * kMiB);
  EXPECT_EQ(pages.get()[kMiB], std::byte{9});
  expect_shared(*adopted, pages.get() + kMiB, 12345);
}

TEST(Adopt, PagesNeverTouchedAreAdoptedAsZeros) {
  OwnPages pages(kMiB, kReadWrite, kAnonymous);
  Result<AdoptedMemory> adopted = adopt_memory(pages.get(), kMiB, true);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_EQ(pages.get()[5000], std::byte{0});
  expect_shared(*adopted, pages.get(), kMiB - 1);
}

TEST(Adopt, MappingsOfOtherKindsAreRefusedWithTheReason) {
  const auto reason = [](void* address, size_t bytes) {
    Result<AdoptedMemory> adopted = adopt_memory(address, bytes, true);
    EXPECT_EQ(adopted.code(), Code::kInvalidArgument);
    return adopted.status().message();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos ? ::testing::AssertionSuccess()
                                                : ::testing::AssertionFailure() << text;
  };
  OwnPages good(kMiB, kReadWrite, kAnonymous);
  EXPECT_TRUE(has(reason(good.get() + 1, kMiB / 2), "whole pages"));
  EXPECT_TRUE(has(reason(good.get(), 100), "whole pages"));
  EXPECT_TRUE(has(reason(good.get(), 0), "at least one byte"));
  EXPECT_TRUE(has(reason(nullptr, 4096), "an address"));
  EXPECT_TRUE(has(reason(good.get(), UINT64_MAX - 4095), "an address"));
  OwnPages read_only(kMiB, PROT_READ, kAnonymous);
  EXPECT_TRUE(has(reason(read_only.get(), kMiB), "read and written"));
  OwnPages shared(kMiB, kReadWrite, MAP_SHARED | MAP_ANONYMOUS);
  EXPECT_TRUE(has(reason(shared.get(), kMiB), "shared already"));
  const shm::UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  OwnPages of_a_file(4096, kReadWrite, MAP_PRIVATE, file.get());
  EXPECT_TRUE(has(reason(of_a_file.get(), 4096), "mapping of a file"));
  OwnPages with_a_hole(3 * 4096, kReadWrite, kAnonymous);
  munmap(with_a_hole.get() + 4096, 4096);
  EXPECT_TRUE(has(reason(with_a_hole.get(), 3 * 4096), "hole"));
  alignas(4096) std::array<std::byte, 8192> on_the_stack{};
  EXPECT_TRUE(has(reason(on_the_stack.data(), 4096), "[stack]"));
}

TEST(Adopt, AChildForkedAfterwardsSharesThePages) {
  OwnPages pages(kMiB, kReadWrite, kAnonymous);
  Result<AdoptedMemory> adopted = adopt_memory(pages.get(), kMiB, true);
  ASSERT_TRUE(adopted.ok());
  const pid_t child = fork();
  if (child == 0) {
    pages.get()[100] = std::byte{42};
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(pages.get()[100], std::byte{42});
}

}  // namespace
}  // namespace wherry::detail
