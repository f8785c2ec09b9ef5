#include "shm/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "shm/file_descriptor.h"

namespace wherry::shm {
namespace {

constexpr size_t kMaxSmallFile = 256 * 1024;

std::optional<uint64_t> to_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Takes the next line off the front.
std::string_view take_line(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

// Whether a comma-separated list holds the name.
bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = names.find(',');
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
  }
  return false;
}

void add_directories(const std::string& mount, std::string group, bool v2,
                     std::vector<CgroupDirectory>* out) {
  // A group outside of what this namespace shows reads "/../...": only the visible root is left.
  if (group.find("/..") != std::string::npos || group.empty() || group[0] != '/') group = "/";
  while (true) {
    const std::string path = group == "/" ? mount : mount + group;
    struct stat info {};
    if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) out->push_back({path, v2});
    if (group == "/") return;
    const size_t slash = group.rfind('/');
    group.resize(slash == 0 ? 1 : slash);
  }
}

}  // namespace

std::vector<CgroupDirectory> cgroup_directories(std::string_view controller,
                                                const std::string& proc_root,
                                                const std::string& cgroup_root) {
  std::vector<CgroupDirectory> directories;
  const std::optional<std::string> groups = read_small_file(proc_root + "/self/cgroup");
  if (!groups) return directories;
  std::string_view rest = *groups;
  while (!rest.empty()) {
    // hierarchy:controllers:group, where v2 has hierarchy 0 and no controllers
    const std::string_view line = take_line(&rest);
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string group(line.substr(second + 1));
    if (controllers.empty()) {
      const bool hybrid = access((cgroup_root + "/unified/cgroup.procs").c_str(), F_OK) == 0;
      add_directories(hybrid ? cgroup_root + "/unified" : cgroup_root, group, true, &directories);
    } else if (lists(controllers, controller)) {
      const std::string joint = cgroup_root + "/" + std::string(controllers);
      const bool is_joint = access(joint.c_str(), F_OK) == 0;
      add_directories(is_joint ? joint : cgroup_root + "/" + std::string(controller), group, false,
                      &directories);
    }
  }
  return directories;
}

std::optional<std::string> read_small_file(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxSmallFile) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::optional<uint64_t> read_number_file(const std::string& path) {
  const std::optional<std::string> text = read_small_file(path);
  return text ? to_number(*text) : std::nullopt;
}

std::optional<uint64_t> number_of_key(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = take_line(&text);
    if (line.substr(0, key.size()) != key) continue;
    line.remove_prefix(key.size());
    if (line.empty() || (line[0] != ' ' && line[0] != ':')) continue;
    const size_t digit = line.find_first_of("0123456789");
    if (digit == std::string_view::npos) return std::nullopt;
    line.remove_prefix(digit);
    return to_number(line.substr(0, line.find_first_not_of("0123456789")));
  }
  return std::nullopt;
}

}  // namespace wherry::shm
