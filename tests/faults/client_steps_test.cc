// A client killed behind each step of its life: nothing is left of it.
#include <sys/wait.h>

#include <csignal>
#include <optional>

#include "shm/doorbell.h"
#include "tests/support/counts.h"
#include "tests/support/engine_holdings.h"

namespace wherry::test {
namespace {

constexpr uint64_t kBytes = uint64_t{4} << 20;  // a transfer of it takes many turns of the poller

// A client's life from the connection to the end, in the smallest steps that an engine can see.
class Guest {
 public:
  struct Step {
    const char* name;
    std::function<void()> take;
  };

  explicit Guest(const std::string& path) : path_(path) {}

  std::vector<Step> steps() {
    std::vector<Step> list;
    list.push_back({"connected", [this] { client_.emplace(path_); }});
    request(
        &list, "hello", [] { return RawClient::hello("guest", 0); },
        [] { return pidfd_of(getpid()); });
    attach_channel(&list);
    register_memory(&list);
    share(&list);
    publish_records(&list);
    take_back(&list);
    return list;
  }

 private:
  using Fields = std::function<json()>;

  // Two steps: the request is sent; its answer is there.
  void request(std::vector<Step>* list, const char* type, const Fields& fields = {},
               const std::function<shm::UniqueFd()>& descriptor = {},
               const std::function<void(const json&)>& answered = {}) {
    list->push_back({type, [this, type, fields, descriptor] {
                       Descriptors with;
                       if (descriptor) with.push_back(descriptor());
                       id_ =
                           client_->send(type, fields ? fields() : json::object(), std::move(with));
                     }});
    list->push_back({"its answer", [this, answered] {
                       received_.clear();
                       const json answer = client_->reply(id_, &received_);
                       if (answered) answered(answer);
                     }});
  }

  void attach_channel(std::vector<Step>* list) {
    request(list, "open_channel", [] { return json{{"descriptor", true}}; });
    for (const auto& [index, access] :
         {std::pair(0u, shm::Access::kReadWrite), std::pair(1u, shm::Access::kRead)}) {
      list->push_back({"mapped a segment", [this, index = index, access = access] {
                         const int fd = received_[index].get();
                         const auto bytes = static_cast<uint64_t>(lseek(fd, 0, SEEK_END));
                         segments_.push_back(*shm::MappedSegment::map(fd, bytes, access));
                       }});
    }
    request(list, "channel_mapped", [] { return json{{"channel", 0}}; });
    list->push_back({"a second channel", [this] { rings_ = client_->channel(); }});
  }

  void register_memory(std::vector<Step>* list) {
    for (uint64_t& region : regions_) {
      list->push_back({"memory", [this] { memory_ = sealed_memory(kBytes); }});
      request(
          list, "register_region",
          [] {
            return json{{"offset", 0}, {"length", kBytes}};
          },
          [this] { return duplicate(memory_.get()); },
          [&region](const json& answer) { region = answer.value("handle", uint64_t{0}); });
    }
    request(
        list, "register_layout",
        [this] {
          json geometry = block_geometry(1);
          geometry["outer_dim"] = 1;
          geometry["page_size"] = kBytes / 16;
          return json{{"geometry", geometry},
                      {"parts", json::array({json::array({regions_[0], 0, kBytes})})}};
        },
        {}, [this](const json& answer) { layout_ = answer.value("handle", uint64_t{0}); });
    list->push_back(
        {"another layout", [this] { other_layout_ = client_->block_layout(regions_[1], kBytes); }});
  }

  void share(std::vector<Step>* list) {
    request(list, "publish", [this] {
      return json{{"layout", layout_}, {"tier", 2}, {"rights", "read"}, {"to", "*"}};
    });
    const auto find = [](const char* instance) {
      return json{{"instance", instance}, {"rank", 0}, {"tier", 2}, {"timeout_ms", 60'000}};
    };
    request(list, "find_layout", [find] { return find("guest"); });
    list->push_back(
        {"a search that waits", [this, find] { client_->send("find_layout", find("nobody")); }});
  }

  void publish_records(std::vector<Step>* list) {
    list->push_back({"an extension slot without its record", [this] {
                       const shm::BlockPair pair{};
                       rings_->writer.put_extension(0, &pair, sizeof(pair));
                     }});
    list->push_back({"a record without its doorbell", [this] {
                       shm::SubmitHead head{};
                       head.op = static_cast<uint8_t>(shm::Op::kTransfer);
                       head.pair_count = 1;
                       head.slot_count = 1;
                       head.source = layout_;
                       head.destination = other_layout_;
                       rings_->writer.publish(&head, head.slot_count);
                     }});
    list->push_back({"its doorbell", [this] { shm::ring_eventfd(rings_->eventfd.get()); }});
    list->push_back({"its completion", [this] {
                       while (!rings_->completions.ready()) std::this_thread::yield();
                     }});
    list->push_back({"reaped it", [this] { rings_->reap(); }});
    list->push_back({"transfers under way", [this] {
                       for (int i = 0; i < 8; ++i) rings_->transfer(layout_, other_layout_);
                     }});
  }

  void take_back(std::vector<Step>* list) {
    request(list, "unpublish", [this] { return json{{"layout", layout_}}; });
    request(list, "free_layout", [this] { return json{{"handle", layout_}}; });
    request(list, "free_region", [this] { return json{{"handle", regions_[0]}}; });
    request(list, "close_channel", [this] { return json{{"channel", rings_->number}}; });
    request(list, "detach");
  }

  std::string path_;
  std::optional<RawClient> client_;
  uint64_t id_ = 0;
  Descriptors received_;
  std::vector<shm::MappedSegment> segments_;
  std::unique_ptr<RawRings> rings_;
  shm::UniqueFd memory_;
  uint64_t regions_[2] = {};
  uint64_t layout_ = 0;
  uint64_t other_layout_ = 0;
};

TEST(ClientSteps, NothingIsLeftOfAClientKilledBehindAnyOfThem) {
  ForkedEngine engine;
  const std::string path = engine.socket_path();
  RawClient admin(path);
  const size_t count = Guest(path).steps().size();
  std::optional<Holdings> before;
  const auto killed_behind = [&](size_t last) {
    const bool failed_before = ::testing::Test::HasFailure();
    const pid_t child = forked();
    if (child == 0) {
      Guest guest(path);
      const std::vector<Guest::Step> steps = guest.steps();
      for (size_t i = 0; i <= last; ++i) steps[i].take();
      kill(getpid(), !failed_before && ::testing::Test::HasFailure() ? SIGABRT : SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "a step failed";
    wait_until_gone(engine, admin, "guest");
    if (before.has_value()) expect_nothing_left(engine, *before);
  };
  const auto passes = static_cast<int>(counted(30));
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t last = 0; last < count; ++last) {
      SCOPED_TRACE("pass " + std::to_string(pass) + ", step " + std::to_string(last) + ": " +
                   Guest(path).steps()[last].name);
      killed_behind(last);
    }
    if (!before.has_value()) before = holdings_of(engine);
  }
}

}  // namespace
}  // namespace wherry::test
