#include "shm/geometry.h"

#include <string>

namespace wherry {
namespace {

Status bad_field(const char* field, const std::string& wanted, uint64_t got) {
  return {Code::kInvalidArgument, std::string("layout ") + field + ": wanted " + wanted + ", got " +
                                      std::to_string(got) + "; correct the layout's configuration"};
}

Status differs(const char* field, const std::string& source, const std::string& destination) {
  return {Code::kIncompatibleLayout, std::string("layout pair, ") + field + ": source has " +
                                         source + ", destination has " + destination +
                                         "; only layouts of equal " + field + " fit"};
}

}  // namespace

uint32_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
  }
  return 0;
}

std::string_view layout_kind_name(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::kFullyContiguous:
      return "fc";
    case LayoutKind::kLayerSeparateBlockFirst:
      return "ls_block_first";
    case LayoutKind::kLayerSeparateBlockSecond:
      return "ls_block_second";
    case LayoutKind::kDescriptorList:
      return "list";
  }
  return "invalid";
}

std::string_view inner_order_name(InnerOrder order) {
  switch (order) {
    case InnerOrder::kUnknown:
      return "unknown";
    case InnerOrder::kNhd:
      return "nhd";
    case InnerOrder::kHnd:
      return "hnd";
    case InnerOrder::kUniversal:
      return "universal";
  }
  return "invalid";
}

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kG1:
      return "G1";
    case Tier::kG2:
      return "G2";
    case Tier::kG3:
      return "G3";
    case Tier::kG4:
      return "G4";
  }
  return "invalid";
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return "u8";
    case DType::kInt8:
      return "i8";
    case DType::kFloat8E4M3:
      return "f8_e4m3";
    case DType::kFloat8E5M2:
      return "f8_e5m2";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat32:
      return "f32";
    case DType::kInt32:
      return "i32";
    case DType::kFloat64:
      return "f64";
    case DType::kInt64:
      return "i64";
  }
  return "invalid";
}

uint32_t Geometry::part_count() const {
  switch (kind) {
    case LayoutKind::kFullyContiguous:
      return 1;
    case LayoutKind::kLayerSeparateBlockFirst:
    case LayoutKind::kLayerSeparateBlockSecond:
      return num_layers;
    case LayoutKind::kDescriptorList:
      return num_blocks;
  }
  return 0;
}

uint64_t Geometry::part_bytes() const {
  switch (kind) {
    case LayoutKind::kFullyContiguous:
      return block_bytes() * num_blocks;
    case LayoutKind::kLayerSeparateBlockFirst:
    case LayoutKind::kLayerSeparateBlockSecond:
      return layer_bytes() * num_blocks;
    case LayoutKind::kDescriptorList:
      return block_bytes();
  }
  return 0;
}

Status check_geometry(const Geometry& g) {
  if (g.kind < LayoutKind::kFullyContiguous || g.kind > LayoutKind::kDescriptorList) {
    return bad_field("kind", "1 to 4", static_cast<uint64_t>(g.kind));
  }
  if (g.inner_order > InnerOrder::kUniversal) {
    return bad_field("inner_order", "0 to 3", static_cast<uint64_t>(g.inner_order));
  }
  if (dtype_bytes(g.dtype) == 0)
    return bad_field("dtype", "1 to 10", static_cast<uint64_t>(g.dtype));
  if (g.num_blocks == 0 || g.num_blocks > kMaxBlocks) {
    return bad_field("num_blocks", "1 to " + std::to_string(kMaxBlocks), g.num_blocks);
  }
  if (g.kind == LayoutKind::kDescriptorList && g.raw()) {
    if (g.outer_dim != 0 || g.page_size != 0 || g.inner_dim != 0) {
      return bad_field("outer_dim, page_size and inner_dim", "0 for a list of plain byte ranges",
                       uint64_t{g.outer_dim} + g.page_size + g.inner_dim);
    }
    return {};
  }
  if (g.num_layers == 0 || g.num_layers > kMaxLayers) {
    return bad_field("num_layers", "1 to " + std::to_string(kMaxLayers), g.num_layers);
  }
  if (g.outer_dim != 1 && g.outer_dim != 2) return bad_field("outer_dim", "1 or 2", g.outer_dim);
  if (g.page_size == 0) return bad_field("page_size", "1 or more", 0);
  if (g.inner_dim == 0) return bad_field("inner_dim", "1 or more", 0);
  if (g.inner_order == InnerOrder::kUniversal && g.kind != LayoutKind::kFullyContiguous &&
      g.kind != LayoutKind::kDescriptorList) {
    return {Code::kInvalidArgument,
            "layout inner_order: wanted nhd, hnd or unknown for a layer-separate layout, got "
            "universal; heads lie "
            "outside the layers there, so use a fully contiguous layout"};
  }
  uint64_t total = dtype_bytes(g.dtype);
  for (const uint64_t factor :
       {g.page_size, g.inner_dim, g.outer_dim, g.num_layers, g.num_blocks}) {
    if (__builtin_mul_overflow(total, factor, &total)) {
      return {Code::kInvalidArgument,
              "layout size: wanted a product of all dimensions below 2^64, got more; correct the "
              "layout's configuration"};
    }
  }
  return {};
}

Status check_compatible(const Geometry& source, const Geometry& destination) {
  if (compatible(source, destination)) return {};
  const auto check = [](const char* field, uint64_t a, uint64_t b) {
    return a == b ? Status() : differs(field, std::to_string(a), std::to_string(b));
  };
  if (source.raw() != destination.raw()) {
    return differs("block geometry", source.raw() ? "none" : "some",
                   destination.raw() ? "none" : "some");
  }
  if (Status s = check("num_layers", source.num_layers, destination.num_layers); !s.ok()) return s;
  if (Status s = check("outer_dim", source.outer_dim, destination.outer_dim); !s.ok()) return s;
  if (Status s = check("page_size", source.page_size, destination.page_size); !s.ok()) return s;
  if (Status s = check("inner_dim", source.inner_dim, destination.inner_dim); !s.ok()) return s;
  if (source.raw()) return {};
  if (source.dtype != destination.dtype) {
    return differs("dtype", std::string(dtype_name(source.dtype)),
                   std::string(dtype_name(destination.dtype)));
  }
  if (source.inner_order != destination.inner_order) {
    return differs("inner order", std::string(inner_order_name(source.inner_order)),
                   std::string(inner_order_name(destination.inner_order)));
  }
  return {};
}

}  // namespace wherry
