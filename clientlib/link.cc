#include "clientlib/link.h"

#include <sys/stat.h>

#include <cerrno>

namespace wherry::detail {
namespace {

Result<shm::MappedSegment> map_whole(int fd, shm::Access access) {
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    return errno_status(Code::kInvalidArgument, "looking at a channel's segment", errno);
  }
  return shm::MappedSegment::map(fd, static_cast<uint64_t>(info.st_size), access);
}

}  // namespace

Result<LinkParts> map_link(int c2e_fd, int e2c_fd) {
  LinkParts parts;
  Result<shm::MappedSegment> c2e = map_whole(c2e_fd, shm::Access::kReadWrite);
  if (!c2e.ok()) return c2e.status();
  Result<shm::MappedSegment> e2c = map_whole(e2c_fd, shm::Access::kRead);
  if (!e2c.ok()) return e2c.status();
  Result<shm::SegmentHeader> c2e_header = shm::read_header(*c2e, shm::SegmentKind::kC2e);
  if (!c2e_header.ok()) return c2e_header.status();
  Result<shm::SegmentHeader> e2c_header = shm::read_header(*e2c, shm::SegmentKind::kE2c);
  if (!e2c_header.ok()) return e2c_header.status();
  if (c2e_header->submission_slots != e2c_header->submission_slots) {
    return Status(Code::kInvalidArgument, "channel: wanted two segments of one size, got " +
                                              std::to_string(c2e_header->submission_slots) +
                                              " and " +
                                              std::to_string(e2c_header->submission_slots) +
                                              " submission slots; do not use this channel");
  }
  parts.c2e = std::move(*c2e);
  parts.e2c = std::move(*e2c);
  parts.c2e_header = *c2e_header;
  parts.e2c_header = *e2c_header;
  return parts;
}

Link::Link(LinkParts parts)
    : parts_(std::move(parts)),
      client_(parts_.c2e.at<shm::ClientWords>(parts_.c2e_header.words_offset)),
      engine_(parts_.e2c.at<const shm::EngineWords>(parts_.e2c_header.words_offset)),
      submission_slots_(parts_.c2e_header.submission_slots),
      credits_(parts_.e2c_header.completion_slots),
      writer_(parts_.c2e.at<shm::Slot>(parts_.c2e_header.submission_offset), submission_slots_),
      completions_(parts_.e2c.at<const shm::Slot>(parts_.e2c_header.completion_offset), credits_),
      inflight_(parts_.e2c.at<const std::atomic<uint64_t>>(parts_.e2c_header.inflight_offset),
                credits_),
      records_(credits_) {
  if (has_notifications()) {
    notifications_ =
        shm::RecordReader(parts_.e2c.at<const shm::Slot>(parts_.e2c_header.notification_offset),
                          notification_slots());
  }
}

bool Link::cancel(uint64_t request_id) {
  if (cancel_tail_ - engine_->cancel_head.load(std::memory_order_acquire) >= shm::kCancelSlots) {
    return false;
  }
  client_->cancel_ids[cancel_tail_ % shm::kCancelSlots].store(request_id,
                                                              std::memory_order_relaxed);
  client_->cancel_tail.store(++cancel_tail_, std::memory_order_release);
  return true;
}

}  // namespace wherry::detail
