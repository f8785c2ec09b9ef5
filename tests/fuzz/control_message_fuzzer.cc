// Any bytes as a control message: refused in few and printable words, or decoded within bounds; and
// what a layout message then makes lies inside the region it names.
#include <algorithm>
#include <memory>
#include <string>
#include <variant>

#include "engine/control/layout_view.h"
#include "engine/control/messages.h"
#include "shm/protocol.h"
#include "tests/fuzz/fuzz_check.h"

namespace wherry::fuzz {
namespace {

using namespace engine;  // NOLINT: all of it is about these

constexpr uint64_t kRegionBytes = 1 << 20;
constexpr uint64_t kSkip = 4096;  // where the region begins in its mapping

// A client's handles with one region, which is 1 << 32 (slot 0 of generation 1).
HandleTable handles_with_a_region() {
  HandleTable handles(1);
  auto mapping = std::make_shared<Mapping>();
  mapping->backing = 7;
  mapping->length = kSkip + kRegionBytes;
  auto view = std::make_shared<View>();
  view->parts.push_back({mapping.get(), kSkip, kRegionBytes, 0});
  Holding holding;
  holding.rights = kRightRead | kRightWrite;
  holding.view = view;
  holding.mapping = mapping;
  check(handles.add(std::move(holding)) == uint64_t{1} << 32, "the corpus knows the handle");
  return handles;
}

void check_text(const std::string& text) {
  check(!text.empty() && text.size() < 4096, "a refusal has words, and not many: " + text);
  check(std::none_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; }),
        "a refusal is one printable line: " + text);
}

void check_body(const Hello& hello) {
  check(valid_instance(hello.instance), "a hello names an instance");
  check(hello.clock_ns >= 0 && hello.protocol_min <= shm::protocol::kVersion, "a hello fits");
}
void check_body(const Publish& publish) {
  check(publish.to_all == publish.to.empty() && publish.to.size() <= kMaxPublishTargets,
        "a publication has its targets");
  check(std::all_of(publish.to.begin(), publish.to.end(), valid_instance), "targets are instances");
}
void check_body(const FindLayout& find) {
  check(valid_instance(find.instance) && find.timeout_ms <= kMaxFindTimeoutMs, "a find fits");
}
void check_body(const Admin& admin) {
  check(admin.reason.size() <= kMaxReasonBytes, "a reason is short");
}
void check_body(const RegisterLayout& layout) {
  check(!layout.parts.empty() && layout.parts.size() <= kMaxLayoutParts, "a layout has parts");
  HandleTable handles = handles_with_a_region();
  const Result<LayoutView> built = build_layout_view(layout, handles);
  if (!built.ok()) return check_text(built.status().message());
  const View& view = *built->view;
  check(view.parts.size() == view.geometry.part_count(), "a part for each of the geometry");
  for (const Part& part : view.parts) {
    check(part.length != 0 && part.offset >= kSkip && part.offset <= kSkip + kRegionBytes &&
              part.length <= kSkip + kRegionBytes - part.offset,
          "a part lies in the region");
  }
  if (view.geometry.raw()) return;
  // The last byte that a transfer can name.
  const Geometry& g = view.geometry;
  const uint32_t block = g.num_blocks - 1;
  const uint32_t layer = g.num_layers - 1;
  check(offset_in_part(g, block, layer, g.outer_dim - 1) + g.region_bytes() <=
            view.parts[part_of(g, block, layer)].length,
        "the last block lies in its part");
}
template <typename Body>
void check_body(const Body&) {}

}  // namespace
}  // namespace wherry::fuzz

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wherry;
  engine::ControlRequest request;
  const Status status =
      engine::decode_request({reinterpret_cast<const char*>(data), size}, &request);
  if (!status.ok()) {
    fuzz::check_text(status.message());
    return 0;
  }
  std::visit([](const auto& body) { fuzz::check_body(body); }, request.body);
  return 0;
}
