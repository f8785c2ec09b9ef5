// Control messages: what is accepted, and that whatever else comes ends in a Status that names it.
#include "engine/control/messages.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/control/replies.h"

namespace wherry::engine {
namespace {

const char kHello[] =
    R"({"type":"hello","version":1,"id":7,"protocol_min":1,"protocol_max":1,"layout_major":1,)"
    R"("layout_minor":0,"features":0,"instance":"prefill.a-1","rank":3,"pid":42,"clock_ns":123})";

std::string refusal(const std::string& text, Code code = Code::kInvalidArgument) {
  ControlRequest request;
  const Status status = decode_request(text, &request);
  EXPECT_EQ(code_name(status.code()), code_name(code)) << text << "\n" << status.to_string();
  return status.message();
}

// A message of this type with these further keys.
std::string message(const std::string& type, const std::string& keys = "") {
  return R"({"type":")" + type + R"(","version":1,"id":9)" + (keys.empty() ? "" : "," + keys) + "}";
}

template <typename Body>
Body decoded(const std::string& text) {
  ControlRequest request;
  const Status status = decode_request(text, &request);
  EXPECT_TRUE(status.ok()) << text << "\n" << status.to_string();
  EXPECT_TRUE(std::holds_alternative<Body>(request.body)) << text;
  return std::holds_alternative<Body>(request.body) ? std::get<Body>(request.body) : Body{};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Messages, AHelloIsDecodedFieldByField) {
  const auto hello = decoded<Hello>(kHello);
  EXPECT_EQ(hello.instance, "prefill.a-1");
  EXPECT_EQ(hello.rank, 3u);
  EXPECT_EQ(hello.pid, 42u);
  EXPECT_EQ(hello.clock_ns, 123);
}

TEST(Messages, AHelloWithoutACommonProtocolVersionNamesBothSidesBeforeAnythingElse) {
  const std::string text =
      refusal(message("hello", R"("protocol_min":5,"protocol_max":6,"key_of_later_times":1)"),
              Code::kVersionMismatch);
  EXPECT_TRUE(contains(text, "from 1 to 1")) << text;
  EXPECT_TRUE(contains(text, "5 to 6")) << text;
}

TEST(Messages, EveryTypeOfTheProtocolIsKnown) {
  decoded<OpenChannel>(message("open_channel"));
  EXPECT_EQ(decoded<OpenChannel>(message("open_channel")).submission_slots, OpenChannel::kDefault);
  EXPECT_TRUE(decoded<OpenChannel>(
                  message("open_channel",
                          R"("submission_slots":64,"notification_slots":0,"descriptor":true)"))
                  .descriptor);
  EXPECT_EQ(decoded<ChannelMapped>(message("channel_mapped", R"("channel":2)")).channel, 2u);
  EXPECT_EQ(decoded<CloseChannel>(message("close_channel", R"("channel":2)")).channel, 2u);
  EXPECT_EQ(
      decoded<RegisterRegion>(message("register_region", R"("offset":4096,"length":8192)")).length,
      8192u);
  EXPECT_EQ(decoded<FreeRegion>(message("free_region", R"("handle":18446744073709551615)")).handle,
            UINT64_MAX);
  const auto layout = decoded<RegisterLayout>(message(
      "register_layout",
      R"("geometry":{"kind":2,"inner_order":1,"dtype":5,"num_blocks":8,"num_layers":2,)"
      R"("outer_dim":2,"page_size":16,"inner_dim":64},"parts":[[1,0,4096],[1,4096,4096]])"));
  EXPECT_EQ(layout.geometry.kind, LayoutKind::kLayerSeparateBlockFirst);
  ASSERT_EQ(layout.parts.size(), 2u);
  EXPECT_EQ(layout.parts[1].offset, 4096u);
  EXPECT_EQ(decoded<FreeLayout>(message("free_layout", R"("handle":5)")).handle, 5u);
  EXPECT_TRUE(
      decoded<Publish>(message("publish", R"("layout":5,"tier":2,"rights":"read","to":"*")"))
          .to_all);
  const auto publish = decoded<Publish>(
      message("publish", R"("layout":5,"tier":2,"rights":"read_write","to":["a","b"])"));
  EXPECT_TRUE(publish.writable);
  EXPECT_EQ(publish.to, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(decoded<Unpublish>(message("unpublish", R"("layout":5)")).layout, 5u);
  EXPECT_EQ(decoded<FindLayout>(
                message("find_layout", R"("instance":"a","rank":0,"tier":1,"timeout_ms":250)"))
                .timeout_ms,
            250u);
  EXPECT_EQ(decoded<FindClient>(message("find_client", R"("instance":"a","rank":1)")).rank, 1u);
  EXPECT_EQ(decoded<ReleaseFound>(message("release_found", R"("handle":5)")).handle, 5u);
  decoded<ListTransports>(message("transports"));
  decoded<Detach>(message("detach"));
  const auto admin =
      decoded<Admin>(message("admin", R"("command":"drain","reason":"new\nrelease")"));
  EXPECT_EQ(admin.command, Admin::Command::kDrain);
  EXPECT_EQ(admin.reason, "new release");
}

TEST(Messages, ARefusalNamesTheKeyWhatIsWantedAndWhatWasThere) {
  const std::string missing = refusal(message("channel_mapped"));
  EXPECT_TRUE(contains(missing, "\"channel\"")) << missing;
  const std::string kind = refusal(message("channel_mapped", R"("channel":"two")"));
  EXPECT_TRUE(contains(kind, "\"channel\"") && contains(kind, "\"two\"")) << kind;
  const std::string range =
      refusal(message("find_layout", R"("instance":"a","rank":0,"tier":9,"timeout_ms":0)"));
  EXPECT_TRUE(contains(range, "\"tier\"") && contains(range, "1 to 4") && contains(range, "9"))
      << range;
  const std::string unknown = refusal(message("detach", R"("colour":"red")"));
  EXPECT_TRUE(contains(unknown, "\"colour\"")) << unknown;
  const std::string type = refusal(message("dance"), Code::kUnsupported);
  EXPECT_TRUE(contains(type, "\"dance\"")) << type;
}

TEST(Messages, NumbersOutsideTheirTypeAreRefused) {
  for (const char* value :
       {"-1", "1.0", "1e3", "4294967296", "null", "true", "[]", "{}", "99999999999999999999"}) {
    refusal(message("channel_mapped", std::string("\"channel\":") + value));
  }
  for (const char* value : {"-1", "0.5", "\"0\"", "18446744073709551616"}) {
    refusal(message("free_region", std::string("\"handle\":") + value));
  }
}

TEST(Messages, InstanceNamesAreFiltered) {
  for (const char* name : {"", "a b", "a/b", "a\\n", "\\u00e4", "a*", "\\u0000"}) {
    refusal(message("find_client", std::string(R"("instance":")") + name + R"(","rank":0)"));
  }
  refusal(message("find_client", R"("instance":")" + std::string(65, 'a') + R"(","rank":0)"));
  EXPECT_TRUE(valid_instance(std::string(64, 'a')));
}

TEST(Messages, TheIdOfARefusedMessageIsKnownWhereThereIsOne) {
  ControlRequest request;
  EXPECT_FALSE(decode_request(message("dance"), &request).ok());
  EXPECT_EQ(request.id, 9u);
}

TEST(Messages, PartsThatAreNoTriplesNameTheirIndex) {
  const std::string geometry =
      R"("geometry":{"kind":4,"inner_order":0,"dtype":1,"num_blocks":2,"num_layers":0,)"
      R"("outer_dim":0,"page_size":0,"inner_dim":0})";
  for (const char* bad : {"[1,2]", "[1,2,3,4]", "[1,2,-3]", "7", "[1,2,[3]]"}) {
    const std::string text =
        refusal(message("register_layout", geometry + R"(,"parts":[[1,2,3],)" + bad + "]"));
    EXPECT_TRUE(contains(text, "parts/1") || contains(text, "nesting")) << text;
  }
}

TEST(Messages, HugeAndDeepTextsAreCutOff) {
  std::string deep(1 << 20, '[');
  refusal(deep);
  std::string wide = R"({"type":"detach","version":1,"id":1,"x":[)";
  for (int i = 0; i < 3'000'000; ++i) wide += "0,";
  refusal(wide + "0]}");
  refusal("");
  refusal("nonsense");
  refusal("[]");
  refusal(std::string("\xff\xfe\0", 3));
  refusal(R"({"type":"\u0000\n","version":1,"id":1})", Code::kUnsupported);
}

TEST(Messages, TooManyKeysAreCutOff) {
  std::string keys = "\"k\":1";
  for (int i = 0; i < 1000; ++i) keys += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_TRUE(contains(refusal(message("detach", keys)), "at most 64 keys"));
}

TEST(Messages, TheLargestLayoutThatIsAllowedIsDecoded) {
  std::string parts = "[1,2,3]";
  for (uint32_t i = 1; i < kMaxLayoutParts; ++i) parts += ",[1,2,3]";
  const std::string geometry =
      R"("geometry":{"kind":4,"inner_order":0,"dtype":1,"num_blocks":1,"num_layers":0,)"
      R"("outer_dim":0,"page_size":0,"inner_dim":0},"parts":[)";
  EXPECT_EQ(
      decoded<RegisterLayout>(message("register_layout", geometry + parts + "]")).parts.size(),
      kMaxLayoutParts);
  EXPECT_TRUE(contains(refusal(message("register_layout", geometry + parts + ",[1,2,3]]")),
                       std::to_string(kMaxLayoutParts)));
}

TEST(Messages, NoMutationOfAValidMessageDoesMoreThanFail) {
  std::mt19937_64 random(20240229);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kHello;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), 1 + random() % 8));
          break;
      }
      if (text.empty()) text = "{";
    }
    ControlRequest request;
    const Status status = decode_request(text, &request);
    // What a refusal says must be fit to be sent.
    EXPECT_NO_THROW(error_reply({request.id, 1}, status));
  }
}

TEST(Messages, AReplyIsValidWhateverTheClientWrote) {
  const std::string reply =
      error_reply({1, 1}, {Code::kInvalidArgument, "got \xc3\x28 \xff \"quoted\""});
  EXPECT_TRUE(contains(reply, R"("code":"INVALID_ARGUMENT")")) << reply;
  EXPECT_TRUE(contains(reply, R"(\"quoted\")")) << reply;
}

}  // namespace
}  // namespace wherry::engine
