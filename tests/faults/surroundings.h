// Surroundings to put a process into: namespaces, limits, privileges it does without; and a process
// that is in them.
//
// Each enter_ function changes the calling process, which is a child made for it, and returns "" or
// what the kernel does not allow here.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "shm/cgroup.h"
#include "tests/support/forked_engine.h"

namespace wherry::test {

using Enter = std::function<std::string()>;

inline std::string refused(const std::string& what) { return what + ": " + std::strerror(errno); }

inline std::string enter_nothing() { return ""; }

// Mounts from now on are this process's own.
inline std::string enter_mount_namespace() {
  if (unshare(CLONE_NEWNS) != 0) return refused("a mount namespace");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return refused("mounts");
  return "";
}

// PID, IPC, mount and user namespaces. What goes on is a child, beside a first process that a
// container would have, too.
inline std::string enter_namespaces() {
  const std::string uid = std::to_string(geteuid());
  const std::string gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC) != 0) {
    return refused("user, PID, mount and IPC namespaces");
  }
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
  if (geteuid() != 0) return "a user namespace: its user is not mapped";
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return refused("mounts");
  for (int generation = 0; generation < 2; ++generation) {
    const pid_t child = forked();
    if (child == 0) {
      if (generation == 0 && mount("proc", "/proc", "proc", 0, nullptr) != 0) {
        return refused("a /proc of its own");
      }
      continue;
    }
    // Stays as long as there is anybody, orphans too.
    int status = 0;
    int ended = 0;
    for (pid_t pid = 0; pid >= 0 || errno == EINTR;) {
      pid = wait(&ended);
      if (pid == child) status = ended;
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return "";
}

inline std::string enter_tiny_dev_shm() {
  if (std::string problem = enter_mount_namespace(); !problem.empty()) return problem;
  if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) return refused("a /dev/shm of 1 MiB");
  return "";
}

// Nothing but `writable` can be written to; that is a tmpfs.
inline std::string enter_read_only_root(const std::string& writable) {
  if (std::string problem = enter_mount_namespace(); !problem.empty()) return problem;
  if (mount("tmpfs", writable.c_str(), "tmpfs", 0, "size=16m") != 0) return refused("a tmpfs");
  if (mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
    return refused("a read-only root");
  }
  return "";
}

inline std::string enter_mounts_of(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const int mounts = open((process + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC);
  const int root = open((process + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (setns(mounts, CLONE_NEWNS) != 0) return refused("another's mount namespace");
  // That has led to the top of the namespace; the other one may live in a folder below.
  return fchdir(root) == 0 && chroot(".") == 0 ? "" : refused("another's root");
}

// Not even by executing a program.
inline std::string enter_without_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return refused("capget");
  for (const int capability : {CAP_IPC_LOCK, CAP_SYS_NICE}) {
    const uint32_t bit = 1u << (capability % 32);
    if (prctl(PR_CAPBSET_READ, capability) == 1 && geteuid() == 0 &&
        prctl(PR_CAPBSET_DROP, capability) != 0) {
      return refused("dropping a capability");
    }
    sets[capability / 32].effective &= ~bit;
    sets[capability / 32].permitted &= ~bit;
    sets[capability / 32].inheritable &= ~bit;
  }
  return syscall(SYS_capset, &header, sets) == 0 ? "" : refused("capset");
}

inline std::string enter_little_locked_memory() {
  const rlimit limit{64 * 1024, 64 * 1024};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return refused("RLIMIT_MEMLOCK of 64 KiB");
  return enter_without_capabilities();
}

// A memory group below the test's own, which goes with the object; no process may be left in it.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t bytes) {
    problem_ = "a memory group: no controller that can be had";
    for (const shm::CgroupDirectory& parent : shm::cgroup_directories("memory")) {
      path_ = parent.path + "/wherry-test-" + std::to_string(getpid());
      if (mkdir(path_.c_str(), 0755) != 0) continue;
      const std::string limit = path_ + (parent.v2 ? "/memory.max" : "/memory.limit_in_bytes");
      // Of version 2 a group has the file only where its parent hands the controller down.
      if (access(limit.c_str(), W_OK) == 0 && std::ofstream(limit) << bytes << std::flush) {
        problem_.clear();
        return;
      }
      rmdir(path_.c_str());
    }
  }
  ~MemoryGroup() {
    if (problem_.empty()) rmdir(path_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  std::string enter() const {
    if (!problem_.empty()) return problem_;
    std::ofstream processes(path_ + "/cgroup.procs");
    return processes << getpid() << std::flush ? "" : refused("entering a memory group");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string problem_;
};

// A process that enters surroundings and then does something.
class ProcessIn {
 public:
  // The result of `body` is its exit status.
  ProcessIn(const Enter& enter, const std::function<int()>& body) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    if (process_.start()) {
      const std::string problem = enter();
      [[maybe_unused]] const ssize_t said = write(ends[1], problem.c_str(), problem.size() + 1);
      _exit(problem.empty() ? body() : 0);
    }
    close(ends[1]);
    char byte = 0;
    while (read(ends[0], &byte, 1) == 1 && byte != '\0') problem_ += byte;
    close(ends[0]);
  }

  // Why it could not enter; "" when it could.
  const std::string& problem() const { return problem_; }
  pid_t pid() const { return process_.pid(); }
  void signal(int number) const { process_.signal(number); }
  int exit_status() { return process_.exit_status(); }

 private:
  ForkedProcess process_;
  std::string problem_;
};

}  // namespace wherry::test
