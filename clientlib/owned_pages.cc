#include "clientlib/owned_pages.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace wherry::detail {
namespace {

Status refuse(const std::string& why) { return {Code::kInvalidArgument, "adopt: " + why}; }

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Whether [begin, end) is mapped without a hole, private, anonymous, readable and writable, and
// neither a heap nor a stack. Neighbouring mappings merge and one buffer may be several, so all of
// them are walked.
Status check_mappings(uint64_t begin, uint64_t end) {
  const std::unique_ptr<std::FILE, CloseFile> maps(std::fopen("/proc/self/maps", "re"));
  if (maps == nullptr) return refuse("wanted to read /proc/self/maps, could not; mount /proc");
  char line[512];
  uint64_t covered = begin;
  while (covered < end && std::fgets(line, sizeof(line), maps.get()) != nullptr) {
    unsigned long from = 0;
    unsigned long to = 0;
    char access[5] = {};
    unsigned long inode = 0;
    int name_at = 0;
    const int fields =
        std::sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu %n", &from, &to, access, &inode, &name_at);
    if (fields < 4 || to <= covered) continue;
    if (from > covered) break;
    const char* name = line + name_at;
    if (std::strncmp(name, "[heap]", 6) == 0 || std::strncmp(name, "[stack", 6) == 0) {
      return refuse("wanted memory that owns its pages, got part of " +
                    std::string(name, std::strcspn(name, "\n")) +
                    "; use a larger buffer, or memory mapped with mmap");
    }
    if (access[3] != 'p') {
      return refuse(
          "wanted private memory, got memory that is shared already; register its descriptor, "
          "or is it adopted already?");
    }
    if (inode != 0)
      return refuse("wanted anonymous memory, got the mapping of a file; copy it first");
    if (std::strncmp(access, "rw", 2) != 0) {
      return refuse("wanted memory that can be read and written, got " + std::string(access) +
                    "; make it so with mprotect");
    }
    covered = to;
  }
  if (covered >= end) return {};
  return refuse("wanted mapped memory, got a range with a hole; give a range that is all there");
}

uint64_t page_size() {
  static const auto kSize = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return kSize;
}

// The word `before` words before a buffer: the allocator's, which the sanitizer would guard.
[[gnu::no_sanitize_address]] uint64_t allocator_word(const void* buffer, size_t before) {
  return *(static_cast<const volatile uint64_t*>(buffer) - before);
}

Status check_range(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  if (address == 0 || bytes == 0 || __builtin_add_overflow(address, bytes, &end)) {
    return refuse("wanted an address and at least one byte, got " + std::to_string(bytes) +
                  " bytes at " + std::to_string(address) + "; give a buffer");
  }
  return {};
}

}  // namespace

Result<OwnedPages> pages_of_mapping(void* address, uint64_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (Status status = check_range(begin, bytes); !status.ok()) return status;
  if (begin % page_size() != 0 || bytes % page_size() != 0) {
    return refuse("wanted whole pages of " + std::to_string(page_size()) + " bytes, got " +
                  std::to_string(bytes) + " bytes at " + std::to_string(begin % page_size()) +
                  " into a page; give the mapping as mmap returned it");
  }
  if (Status status = check_mappings(begin, begin + bytes); !status.ok()) return status;
  return OwnedPages{static_cast<std::byte*>(address), bytes};
}

// The two words before a buffer of glibc's malloc are the distance from the start of its mapping
// and the chunk's size, whose low bits are flags: exactly 2 says that it has a mapping of its own.
Result<OwnedPages> pages_of_malloc(void* address, uint64_t bytes) {
  constexpr uint64_t kHeader = 16;
  constexpr uint64_t kFlags = 7;
  constexpr uint64_t kMapped = 2;
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (Status status = check_range(begin, bytes); !status.ok()) return status;
  const auto no_chunk = [](const char* what) {
    return refuse(
        std::string("wanted a buffer that malloc gave a mapping of its own (a large one, at its "
                    "start), got ") +
        what + "; use a larger buffer, or AdoptOptions::own_mapping for memory of mmap");
  };
  if (begin % kHeader != 0 || begin < kHeader) return no_chunk("an address malloc does not return");
  // Before the words are read: are they there, and of the same kind of memory?
  if (Status status = check_mappings(begin - kHeader, begin + bytes); !status.ok()) return status;
  const uint64_t lead = allocator_word(address, 2);
  const uint64_t size_and_flags = allocator_word(address, 1);
  if ((size_and_flags & kFlags) != kMapped) return no_chunk("part of a heap");
  uint64_t total = 0;
  if (lead > begin - kHeader || __builtin_add_overflow(size_and_flags & ~kFlags, lead, &total)) {
    return no_chunk("something else");
  }
  const uint64_t base = begin - kHeader - lead;
  uint64_t end = 0;
  const bool fits = base % page_size() == 0 && total % page_size() == 0 &&
                    !__builtin_add_overflow(base, total, &end) && begin + bytes <= end;
  if (!fits) return no_chunk("something else");
  if (Status status = check_mappings(base, end); !status.ok()) return status;
  return OwnedPages{static_cast<std::byte*>(address) - kHeader - lead, total};
}

}  // namespace wherry::detail
