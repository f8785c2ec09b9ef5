// What the client library sees is wrong with a request, and its table of handles.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "clientlib/handle_table.h"
#include "clientlib/layout.h"
#include "clientlib/validate.h"
#include "shm/slot.h"

namespace wherry::detail {
namespace {

Geometry geometry(LayoutKind kind = LayoutKind::kFullyContiguous) {
  Geometry g;
  g.kind = kind;
  g.num_blocks = 10;
  g.num_layers = 4;
  g.outer_dim = 2;
  g.page_size = 16;
  g.inner_dim = 8;
  return g;
}

HandleInfo layout(const Geometry& g, bool writable = true) {
  HandleInfo info;
  info.kind = HandleKind::kLayout;
  info.writable = writable;
  info.total_bytes = 1000;
  info.geometry = g;
  return info;
}

class ClientValidate : public ::testing::Test {
 protected:
  Code check(std::vector<BlockId> from, std::vector<BlockId> to,
             const TransferOptions& options = {}) {
    status = check_transfer(a, b, same, from, to, options, scratch);
    return status.code();
  }

  HandleInfo a = layout(geometry());
  HandleInfo b = layout(geometry());
  bool same = false;
  BlockSet scratch;
  Status status;
};

TEST_F(ClientValidate, GoodListsPass) {
  EXPECT_EQ(check({0, 9, 5}, {9, 0, 5}), Code::kOk);
  EXPECT_EQ(check({3, 3, 3}, {0, 1, 2}), Code::kOk) << "a source may be named often";
  EXPECT_EQ(check({}, {}), Code::kOk);
}

TEST_F(ClientValidate, UnequalListsAreRefused) {
  EXPECT_EQ(check({0, 1}, {0}), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("2 source and 1 destination"), std::string::npos);
}

TEST_F(ClientValidate, IdsPastTheEndAreNamedWithTheirIndex) {
  EXPECT_EQ(check({0, 10}, {0, 1}), Code::kOutOfRange);
  EXPECT_NE(status.message().find("source block 1"), std::string::npos);
  EXPECT_EQ(check({0, 1}, {UINT32_MAX, 1}), Code::kOutOfRange);
  EXPECT_NE(status.message().find("destination block 0"), std::string::npos);
}

TEST_F(ClientValidate, DuplicateDestinationsAreRefusedAndTheNextRequestIsNotConfusedByThem) {
  EXPECT_EQ(check({0, 1, 2}, {5, 3, 5}), Code::kOverlap);
  EXPECT_NE(status.message().find("destination block 2"), std::string::npos);
  EXPECT_EQ(check({0, 1, 2}, {5, 3, 4}), Code::kOk);
}

TEST_F(ClientValidate, WithinOneLayoutNoSourceMayBeADestination) {
  same = true;
  EXPECT_EQ(check({0, 1}, {2, 3}), Code::kOk);
  EXPECT_EQ(check({0, 1}, {2, 0}), Code::kOverlap);
  EXPECT_EQ(check({4}, {4}), Code::kOverlap);
  EXPECT_EQ(check({0, 1}, {2, 3}), Code::kOk);
}

TEST_F(ClientValidate, LayerRangesMustBeForwardsAndInside) {
  TransferOptions options;
  options.layer_begin = 1;
  options.layer_end = 4;
  EXPECT_EQ(check({0}, {0}, options), Code::kOk);
  options.layer_end = 5;
  EXPECT_EQ(check({0}, {0}, options), Code::kOutOfRange);
  options.layer_end = 1;
  EXPECT_EQ(check({0}, {0}, options), Code::kOutOfRange) << "empty";
  options.layer_begin = 3;
  EXPECT_EQ(check({0}, {0}, options), Code::kOutOfRange) << "reversed";
  a = layout(geometry(LayoutKind::kDescriptorList));
  options.layer_begin = 0;
  options.layer_end = 2;
  EXPECT_EQ(check({0}, {0}, options), Code::kOk) << "a list against another kind has layers";
  b = layout(geometry(LayoutKind::kDescriptorList));
  EXPECT_EQ(check({0}, {0}, options), Code::kUnsupported);
}

TEST_F(ClientValidate, LayoutsThatDoNotFitAreRefused) {
  b.geometry.page_size = 32;
  EXPECT_EQ(check({0}, {0}), Code::kIncompatibleLayout);
  b = layout(geometry());
  b.geometry.inner_order = InnerOrder::kHnd;
  EXPECT_EQ(check({0}, {0}), Code::kIncompatibleLayout);
}

TEST_F(ClientValidate, AReadOnlyDestinationIsNotPermitted) {
  b.writable = false;
  EXPECT_EQ(check({0}, {0}), Code::kNotPermitted);
}

TEST_F(ClientValidate, OptionsAreChecked) {
  TransferOptions options;
  options.head_slice = HeadSlice{0, 1};
  EXPECT_EQ(check_options(options, 17).code(), Code::kUnsupported);
  options = {};
  options.deadline_ns = 1;
  options.timeout_ns = 1;
  EXPECT_EQ(check_options(options, 17).code(), Code::kInvalidArgument);
  options = {};
  options.notification = std::string(16 * shm::kPayloadBytes, 'x');
  EXPECT_EQ(check_options(options, 17).code(), Code::kOk);
  options.notification += 'x';
  EXPECT_EQ(check_options(options, 17).code(), Code::kInvalidArgument);
}

TEST_F(ClientValidate, RangesAreCheckedWithoutOverflow) {
  const LayoutHandle one{1};
  const LayoutHandle two{2};
  const auto code = [&](const RangeOp& op) { return check_range(a, b, op).code(); };
  EXPECT_EQ(code({one, 0, two, 0, 1000}), Code::kOk);
  EXPECT_EQ(code({one, 0, two, 0, 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({one, 1, two, 0, 1000}), Code::kOutOfRange);
  EXPECT_EQ(code({one, 0, two, 1000, 1}), Code::kOutOfRange);
  EXPECT_EQ(code({one, UINT64_MAX, two, 0, 2}), Code::kOutOfRange);
  EXPECT_EQ(code({one, 0, two, 5, UINT64_MAX}), Code::kOutOfRange);
  EXPECT_EQ(code({one, 0, one, 10, 10}), Code::kOk);
  EXPECT_EQ(code({one, 0, one, 9, 10}), Code::kOverlap);
  b.writable = false;
  EXPECT_EQ(code({one, 0, two, 0, 10}), Code::kNotPermitted);
}

TEST(HandleTable, AFreedHandleIsStaleAlsoWhenItsSlotIsUsedAgain) {
  HandleTable table;
  const uint64_t first = table.add(layout(geometry()));
  HandleInfo info;
  EXPECT_TRUE(table.find(first, &info));
  EXPECT_EQ(info.geometry.num_layers, 4u);
  table.remove(first);
  EXPECT_FALSE(table.find(first, &info));
  const uint64_t second = table.add(layout(geometry()));
  EXPECT_NE(first, second);
  EXPECT_FALSE(table.find(first, &info));
  EXPECT_TRUE(table.find(second, &info));
  EXPECT_FALSE(table.find(0, &info));
  EXPECT_FALSE(table.find(UINT64_MAX, &info));
}

TEST(HandleTable, HandlesOfAFormerLifeAndOfTheWrongKindAreTold) {
  HandleTable table;
  HandleInfo info = layout(geometry());
  const uint64_t handle = table.add(info);
  EXPECT_TRUE(find_layout_handle(table, "source", handle, &info).ok());
  EXPECT_EQ(find_client_handle(table, handle, &info).code(), Code::kInvalidArgument);
  EXPECT_EQ(find_layout_handle(table, "source", handle + 1, &info).code(), Code::kStale);
  info = layout(geometry());
  info.broken = Code::kStale;
  table.change(handle, info);
  EXPECT_EQ(find_memory_handle(table, "source", handle, &info).code(), Code::kStale);
}

TEST(HandleTable, AReaderNeverSeesHalfOfAChange) {
  HandleTable table;
  HandleInfo info = layout(geometry());
  info.engine_handle = 0;
  info.total_bytes = 0;
  const uint64_t handle = table.add(info);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop.load(); ++i) {
      info.engine_handle = i;
      info.total_bytes = ~i;
      info.geometry.num_blocks = static_cast<uint32_t>(i);
      table.change(handle, info);
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    HandleInfo copy;
    ASSERT_TRUE(table.find(handle, &copy));
    if (copy.engine_handle == 0) continue;
    ASSERT_EQ(copy.total_bytes, ~copy.engine_handle);
    ASSERT_EQ(copy.geometry.num_blocks, static_cast<uint32_t>(copy.engine_handle));
  }
  stop = true;
  writer.join();
}

TEST(LayoutSpec, HelpersFillInPartsByKind) {
  const RegionHandle region{7};
  Geometry g = geometry();
  const LayoutSpec whole = fully_contiguous(region, 4096, g);
  ASSERT_EQ(whole.parts.size(), 1u);
  EXPECT_EQ(whole.parts[0].length, g.block_bytes() * 10);
  EXPECT_EQ(whole.parts[0].offset, 4096u);
  const LayoutSpec layers = layer_separate(region, 64, g, false);
  EXPECT_EQ(layers.geometry.kind, LayoutKind::kLayerSeparateBlockSecond);
  ASSERT_EQ(layers.parts.size(), 4u);
  EXPECT_EQ(layers.parts[3].offset, 64 + 3 * g.layer_bytes() * 10);
  EXPECT_EQ(layers.parts[3].length, g.layer_bytes() * 10);
  const LayoutSpec list = descriptor_list({{region, 0, 0}, {region, 8192, 0}}, g);
  EXPECT_EQ(list.geometry.num_blocks, 2u);
  EXPECT_EQ(list.parts[1].length, g.block_bytes());
  for (const LayoutSpec& spec : {whole, layers, list, raw_list({{region, 0, 5}, {region, 5, 3}})}) {
    EXPECT_TRUE(check_geometry(spec.geometry).ok());
    EXPECT_EQ(spec.parts.size(), spec.geometry.part_count());
  }
}

}  // namespace
}  // namespace wherry::detail
