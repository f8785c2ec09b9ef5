// Handles: stale ones are found to be stale, and tables show exactly what is there.
#include "engine/control/handle_table.h"

#include <gtest/gtest.h>

namespace wherry::engine {
namespace {

Holding holding(Holding::Kind kind = Holding::Kind::kRegion) {
  Holding holding;
  holding.kind = kind;
  holding.rights = kRightRead;
  holding.view = std::make_shared<View>();
  return holding;
}

TEST(HandleTable, AHandleIsFoundUntilItIsRetiredAndNeverAgain) {
  HandleTable table(41);
  const uint64_t first = table.add(holding());
  ASSERT_NE(table.find(first), nullptr);
  table.retire(first);
  EXPECT_EQ(table.find(first), nullptr);
  table.erase(first);
  const uint64_t second = table.add(holding());
  EXPECT_EQ(static_cast<uint32_t>(second), static_cast<uint32_t>(first))
      << "the slot is used again";
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_NE(table.find(second), nullptr);
}

TEST(HandleTable, ARetiredHandleKeepsItsSlotUntilItIsErased) {
  HandleTable table(1);
  const uint64_t going = table.add(holding());
  table.retire(going);
  EXPECT_NE(static_cast<uint32_t>(table.add(holding())), static_cast<uint32_t>(going));
  EXPECT_EQ(table.count(Holding::Kind::kRegion), 2u);
}

TEST(HandleTable, ASnapshotHoldsWhatCanBeNamed) {
  HandleTable table(7);
  const uint64_t stays = table.add(holding());
  const uint64_t goes = table.add(holding(Holding::Kind::kLayout));
  const auto before = table.snapshot();
  table.retire(goes);
  const auto after = table.snapshot();
  EXPECT_NE(before->find(goes), nullptr);
  EXPECT_EQ(after->find(goes), nullptr);
  ASSERT_NE(after->find(stays), nullptr);
  EXPECT_EQ(after->find(stays)->view, table.find(stays)->view.get());
  EXPECT_EQ(after->find(stays)->rights, kRightRead);
}

TEST(HandleTable, NoGenerationIsZeroAlsoWhenTheyWrapAround) {
  HandleTable table(UINT32_MAX);
  const uint64_t last = table.add(holding());
  table.erase(last);
  const uint64_t next = table.add(holding());
  EXPECT_NE(next >> 32, 0u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(HandleTable(0).find(0), nullptr);
}

TEST(HandleTable, HandlesNeverGivenOutAreStale) {
  HandleTable table(5);
  EXPECT_EQ(table.find(make_handle(5, 0)), nullptr);
  EXPECT_EQ(table.find(UINT64_MAX), nullptr);
}

}  // namespace
}  // namespace wherry::engine
