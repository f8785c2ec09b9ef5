// Layouts from parts of regions: what fits, and what is refused how.
#include "engine/control/layout_view.h"

#include <gtest/gtest.h>

namespace wherry::engine {
namespace {

class LayoutViewTest : public ::testing::Test {
 protected:
  // A region that begins `skip` bytes into a mapping at `file_offset` of a file.
  uint64_t region(uint64_t length, uint64_t backing, uint64_t file_offset = 0, uint64_t skip = 0,
                  uint8_t rights = kRightRead | kRightWrite) {
    auto mapping = std::make_shared<Mapping>();
    mapping->backing = backing;
    mapping->file_offset = file_offset;
    mapping->length = skip + length;
    auto view = std::make_shared<View>();
    view->parts.push_back({mapping.get(), skip, length, 0});
    Holding holding;
    holding.kind = Holding::Kind::kRegion;
    holding.rights = rights;
    holding.view = view;
    holding.mapping = mapping;
    return handles_.add(std::move(holding));
  }

  Code code(const RegisterLayout& request) {
    const Result<LayoutView> layout = build_layout_view(request, handles_);
    message_ = layout.status().message();
    return layout.code();
  }

  // 4 blocks of 2 layers, K and V, R = 64: a layer's part is 4 * 128 = 512 bytes.
  static Geometry geometry(LayoutKind kind) {
    Geometry g;
    g.kind = kind;
    g.dtype = DType::kUint8;
    g.num_blocks = 4;
    g.num_layers = 2;
    g.outer_dim = 2;
    g.page_size = 4;
    g.inner_dim = 16;
    return g;
  }
  static Geometry raw_list(uint32_t entries) {
    Geometry g;
    g.kind = LayoutKind::kDescriptorList;
    g.dtype = DType::kUint8;
    g.num_blocks = entries;
    return g;
  }

  HandleTable handles_{77};
  std::string message_;
};

TEST_F(LayoutViewTest, PartsPointIntoTheMappingsOfTheirRegions) {
  const uint64_t one = region(4096, 1, 8192, 4096);
  const uint64_t two = region(4096, 2);
  const Result<LayoutView> layout = build_layout_view(
      {geometry(LayoutKind::kLayerSeparateBlockFirst), {{one, 100, 512}, {two, 0, 512}}}, handles_);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  const View& view = *layout->view;
  ASSERT_EQ(view.parts.size(), 2u);
  EXPECT_EQ(view.parts[0].offset, 4196u);
  EXPECT_EQ(view.parts[0].backing_offset(), 12388u);
  EXPECT_EQ(view.parts[1].begin, 512u);
  EXPECT_EQ(view.total_bytes, 1024u);
  EXPECT_EQ(layout->regions.size(), 2u);
  EXPECT_EQ(view.mappings.size(), 2u);
}

TEST_F(LayoutViewTest, ALayoutMayDoWhatAllOfItsRegionsMay) {
  const uint64_t writable = region(4096, 1);
  const uint64_t readable = region(4096, 2, 0, 0, kRightRead);
  const auto kind = LayoutKind::kLayerSeparateBlockFirst;
  EXPECT_EQ(
      build_layout_view({geometry(kind), {{writable, 0, 512}, {writable, 512, 512}}}, handles_)
          ->rights,
      kRightRead | kRightWrite);
  EXPECT_EQ(build_layout_view({geometry(kind), {{writable, 0, 512}, {readable, 0, 512}}}, handles_)
                ->rights,
            kRightRead);
}

TEST_F(LayoutViewTest, PartsOutsideTheirRegionAreRefusedAlsoNearTheEndOfTheNumbers) {
  const uint64_t handle = region(1024, 1);
  const auto fc = geometry(LayoutKind::kFullyContiguous);
  EXPECT_EQ(code({fc, {{handle, 0, 1024}}}), Code::kOk);
  EXPECT_EQ(code({fc, {{handle, 1, 1024}}}), Code::kOutOfRange);
  EXPECT_EQ(code({fc, {{handle, UINT64_MAX - 511, 1024}}}), Code::kOutOfRange);
  EXPECT_EQ(code({raw_list(1), {{handle, 512, UINT64_MAX - 100}}}), Code::kOutOfRange);
  EXPECT_EQ(code({raw_list(1), {{handle, 1024, 1}}}), Code::kOutOfRange);
}

TEST_F(LayoutViewTest, HandlesThatAreNoRegionsAreStale) {
  const uint64_t handle = region(1024, 1);
  const auto fc = geometry(LayoutKind::kFullyContiguous);
  EXPECT_EQ(code({fc, {{handle + 1, 0, 1024}}}), Code::kStale);
  handles_.retire(handle);
  EXPECT_EQ(code({fc, {{handle, 0, 1024}}}), Code::kStale);
}

TEST_F(LayoutViewTest, LengthsAndCountsMustBeThoseOfTheGeometry) {
  const uint64_t handle = region(4096, 1);
  EXPECT_EQ(code({geometry(LayoutKind::kFullyContiguous), {{handle, 0, 1023}}}),
            Code::kInvalidArgument);
  EXPECT_NE(message_.find("1024"), std::string::npos) << message_;
  EXPECT_EQ(code({geometry(LayoutKind::kLayerSeparateBlockSecond), {{handle, 0, 512}}}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({raw_list(2), {{handle, 0, 1}, {handle, 9, 0}}}), Code::kInvalidArgument);
  Geometry none = geometry(LayoutKind::kFullyContiguous);
  none.outer_dim = 3;
  EXPECT_EQ(code({none, {{handle, 0, 1024}}}), Code::kInvalidArgument);
}

TEST_F(LayoutViewTest, LayersThatShareBytesAreRefusedAlsoThroughTwoRegistrationsOfOneFile) {
  const uint64_t one = region(4096, 1);
  const uint64_t again = region(2048, 1, 256);
  const auto kind = LayoutKind::kLayerSeparateBlockFirst;
  EXPECT_EQ(code({geometry(kind), {{one, 0, 512}, {one, 511, 512}}}), Code::kOverlap);
  EXPECT_EQ(code({geometry(kind), {{one, 0, 512}, {again, 0, 512}}}), Code::kOverlap);
  EXPECT_EQ(code({geometry(kind), {{one, 0, 512}, {again, 256, 512}}}), Code::kOk);
}

TEST_F(LayoutViewTest, AListMayNameBytesTwiceAndIsMarked) {
  const uint64_t handle = region(4096, 1);
  const Result<LayoutView> layout = build_layout_view(
      {raw_list(3), {{handle, 0, 100}, {handle, 200, 7}, {handle, 99, 2}}}, handles_);
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->view->overlaps_itself);
  EXPECT_EQ(layout->regions.size(), 1u);
}

}  // namespace
}  // namespace wherry::engine
