// The export table: who may find what, who waits, who found.
#include "engine/control/exports.h"

#include <gtest/gtest.h>

namespace wherry::engine {
namespace {

Export entry(uint64_t session, uint64_t layout) {
  Export entry;
  entry.session = session;
  entry.layout = layout;
  entry.view = std::make_shared<View>();
  entry.to_all = true;
  return entry;
}

const ExportKey kKey{"prefill", 0, Tier::kG2};

TEST(Exports, OneLayoutIsFoundAtEachPlace) {
  Exports exports;
  EXPECT_EQ(exports.find(kKey), nullptr);
  ASSERT_TRUE(exports.publish(kKey, entry(1, 10)).ok());
  EXPECT_EQ(exports.find(kKey)->layout, 10u);
  EXPECT_EQ(exports.find({"prefill", 1, Tier::kG2}), nullptr);
  EXPECT_EQ(exports.find({"prefill", 0, Tier::kG1}), nullptr);
  const Status again = exports.publish(kKey, entry(1, 11));
  EXPECT_EQ(again.code(), Code::kAlreadyExists);
  EXPECT_NE(again.message().find("10"), std::string::npos) << again.message();
}

TEST(Exports, NamedInstancesOnlyMayFind) {
  Export named = entry(1, 10);
  named.to_all = false;
  named.to = {"decode", "eval"};
  EXPECT_TRUE(named.permits("eval"));
  EXPECT_FALSE(named.permits("deco"));
  EXPECT_TRUE(entry(1, 10).permits("anybody"));
}

TEST(Exports, WithdrawingALayoutTakesBackAllItsTiersAndNothingElse) {
  Exports exports;
  ASSERT_TRUE(exports.publish(kKey, entry(1, 10)).ok());
  ASSERT_TRUE(exports.publish({"prefill", 0, Tier::kG1}, entry(1, 10)).ok());
  ASSERT_TRUE(exports.publish({"prefill", 0, Tier::kG3}, entry(1, 11)).ok());
  ASSERT_TRUE(exports.publish({"decode", 0, Tier::kG3}, entry(2, 10)).ok());
  EXPECT_EQ(exports.withdraw(1, 10).size(), 2u);
  EXPECT_EQ(exports.withdraw(1, 10).size(), 0u);
  EXPECT_EQ(exports.count(1), 1u);
  EXPECT_EQ(exports.withdraw_all(1).size(), 1u);
  EXPECT_NE(exports.find({"decode", 0, Tier::kG3}), nullptr);
}

TEST(Exports, WaitersAreTakenOnceOrRemoved) {
  Exports exports;
  exports.add_waiter(kKey, {7, 1, 100, {}});
  exports.add_waiter(kKey, {8, 2, 100, {}});
  exports.add_waiter(kKey, {9, 2, 100, {}});
  exports.remove_waiter(kKey, 9);
  exports.remove_waiter(kKey, 9);
  exports.remove_waiter({"prefill", 0, Tier::kG1}, 8);
  EXPECT_EQ(exports.take_waiters({"prefill", 0, Tier::kG1}).size(), 0u);
  EXPECT_EQ(exports.take_waiters(kKey).size(), 2u);
  EXPECT_EQ(exports.take_waiters(kKey).size(), 0u);
  exports.add_waiter(kKey, {10, 1, 102, {}});
  exports.add_waiter({"decode", 0, Tier::kG3}, {11, 1, 103, {}});
  EXPECT_EQ(exports.remove_waiters(1).size(), 2u);
}

TEST(Exports, FindersAreKnownByTheViewTheyFound) {
  Exports exports;
  const View first;
  const View second;
  exports.add_finder(&first, {1, 7});
  exports.add_finder(&first, {1, 8});
  exports.add_finder(&second, {2, 7});
  exports.remove_finder(&first, {1, 7});
  exports.remove_finder(&first, {1, 9});
  const auto finders = exports.take_finders(&first);
  ASSERT_EQ(finders.size(), 1u);
  EXPECT_EQ(finders[0].handle, 8u);
  EXPECT_EQ(exports.take_finders(&first).size(), 0u);
  EXPECT_EQ(exports.take_finders(&second).size(), 1u);
}

}  // namespace
}  // namespace wherry::engine
