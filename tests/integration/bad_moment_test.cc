// Requests that are refused, or end, because of what state the engine or the rings are in.
#include "tests/support/client_world.h"

namespace wherry::test {
namespace {

// What refuses and what waits while the engine does not keep up.
class Admission : public HeldWorld {
 protected:
  static constexpr uint64_t kBytes = uint64_t{4} << 20;  // many turns of the poller

  static AttachOptions eight_slots() {
    AttachOptions options;
    options.channel.submission_slots = 8;  // 16 credits
    return options;
  }
  Result<TransferCompleteNotification> try_copy(uint64_t timeout_ns = 0) {
    TransferOptions options;
    options.timeout_ns = timeout_ns;
    return client_.channel()->try_copy_range({region_.handle, 0, region_.handle, kBytes, kBytes},
                                             options);
  }
  Result<TransferCompleteNotification> copy(uint64_t timeout_ns) {
    TransferOptions options;
    options.timeout_ns = timeout_ns;
    return client_.channel()->copy_range({region_.handle, 0, region_.handle, kBytes, kBytes},
                                         options);
  }

  Client client_ = attach("solo", 0, eight_slots());
  Region region_ = make_region(client_, 2 * kBytes);
};

TEST_F(Admission, AFullRingAndMissingCreditsAreToldApart) {
  std::vector<TransferCompleteNotification> requests;
  {
    Hold engine(*this);
    const auto fill = [&] {
      Result<TransferCompleteNotification> request = try_copy();
      for (; request.ok(); request = try_copy()) requests.push_back(*request);
      return request.status();
    };
    Status refusal = fill();
    EXPECT_TRUE(says(refusal, Code::kRingFull, {"submission ring", "2 free slots"}));
    EXPECT_EQ(requests.size(), 4u) << "of two slots each";
    EXPECT_TRUE(says(copy(2'000'000).status(), Code::kTimedOut,
                     {"wanted room before the deadline", "nothing was accepted"}));
    while (refusal.code() == Code::kRingFull) {  // the engine reads on; nothing is complete yet
      engine.turn();
      refusal = fill();
    }
    EXPECT_TRUE(says(refusal, Code::kNoCredit, {"credits", "wanted 2"}));
    EXPECT_EQ(requests.size(), 8u);
    EXPECT_TRUE(says(copy(2'000'000).status(), Code::kTimedOut, {"room"}));
  }
  Result<TransferCompleteNotification> patient = copy(0);
  ASSERT_TRUE(patient.ok()) << patient.status().to_string();
  requests.push_back(*patient);
  for (TransferCompleteNotification& request : requests) {
    EXPECT_TRUE(outcome(std::move(request)).ok());
  }
}

TEST_F(Admission, ADeadlineThatPassesWhileTheEngineStandsStillEndsTheRequest) {
  Result<TransferCompleteNotification> late = Status(Code::kInternal, "");
  Result<TransferCompleteNotification> patient = late;
  {
    Hold engine(*this);
    constexpr uint64_t kTimeoutNs = 1'000'000;
    late = try_copy(kTimeoutNs);
    patient = try_copy();
    const uint64_t deadline = monotonic_ns() + kTimeoutNs;
    while (monotonic_ns() < deadline) {
    }
  }
  EXPECT_TRUE(says(outcome(late), Code::kTimedOut, {"1 failed", "deadline"}));
  EXPECT_TRUE(outcome(patient).ok());
}

TEST_F(Admission, ADrainingEngineRefusesNewRequestsAndEndsTheOldOnes) {
  Result<TransferCompleteNotification> old = Status(Code::kInternal, "");
  {
    Hold engine(*this);
    old = try_copy();
    ASSERT_TRUE(old.ok());
    for (int i = 0; i < 3; ++i) engine.turn();  // it is under way, and far from its end
    ASSERT_FALSE(old->poll());
    engine_->request_drain(std::chrono::milliseconds(0), "maintenance");
    Status late;
    do {
      engine.turn();
      late = try_copy().status();
    } while (late.code() != Code::kDraining);
    EXPECT_TRUE(says(late, Code::kDraining, {"drains"}));
    EXPECT_TRUE(says(copy(0).status(), Code::kDraining, {"drains"})) << "no waiting for that";
  }
  const Status finished = outcome(old);
  EXPECT_TRUE(finished.ok()) << "what was accepted is finished: " << finished.to_string();
}

TEST_F(Admission, WhenTheEngineHasStoppedRequestsAreAbortedOrRefused) {
  Result<TransferCompleteNotification> unread = Status(Code::kInternal, "");
  {
    Hold engine(*this);
    unread = try_copy();
    ASSERT_TRUE(unread.ok());
    engine_->request_stop("enough");
    while (client_.engine_state().life == EngineLife::kRunning) {
    }
    EXPECT_TRUE(client_.transports().ok()) << "by now the poller has been told, too";
  }
  EXPECT_TRUE(says(outcome(unread), Code::kAborted, {"engine_state()"}));
  while (client_.engine_state().life != EngineLife::kStopped) {
  }
  EXPECT_EQ(client_.engine_state().reason, "enough");
  Status refused = try_copy().status();
  while (refused.code() != Code::kEngineGone) refused = try_copy().status();
  EXPECT_TRUE(says(refused, Code::kEngineGone, {"attached engine", "engine_state()"}));
  refused = client_.create_region(4096).status();
  while (refused.code() != Code::kEngineGone) refused = client_.create_region(4096).status();
  EXPECT_TRUE(says(refused, Code::kEngineGone, {"attached"}));
}

}  // namespace
}  // namespace wherry::test
