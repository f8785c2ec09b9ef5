// The client library's JSON: what it writes is what a full parser reads, and the other way round.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "clientlib/json.h"
#include "clientlib/messages.h"

namespace wherry::detail {
namespace {

using nlohmann::json;

json parsed(const JsonWriter& writer) { return json::parse("{" + writer.members() + "}"); }

TEST(ClientJson, WhatIsWrittenIsWhatAFullParserReads) {
  JsonWriter inner;
  inner.number("n", 7);
  JsonWriter writer;
  EXPECT_EQ(parsed(writer), json::object());
  writer.number("zero", 0)
      .number("large", UINT64_MAX)
      .boolean("yes", true)
      .boolean("no", false)
      .text("text", "plain")
      .text("odd \"key\"",
            "quotes \" and \\ and \n\t\x01\x1f and \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80")
      .texts("names", {"a", "", "c\"c"})
      .texts("none", {})
      .raw("list", "[[1,2],[3,4]]")
      .object("inner", inner);
  const json wanted = {
      {"zero", 0},
      {"large", UINT64_MAX},
      {"yes", true},
      {"no", false},
      {"text", "plain"},
      {"odd \"key\"",
       "quotes \" and \\ and \n\t\x01\x1f and \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"names", {"a", "", "c\"c"}},
      {"none", json::array()},
      {"list", {{1, 2}, {3, 4}}},
      {"inner", {{"n", 7}}}};
  EXPECT_EQ(parsed(writer), wanted);
}

TEST(ClientJson, BytesThatAreNoUtf8BecomeQuestionMarksAndAllOthersStay) {
  const auto written = [](const std::string& text) {
    return parsed(JsonWriter().text("t", text))["t"].get<std::string>();
  };
  EXPECT_EQ(written("\xff"
                    "a"
                    "\xc3"),
            "?a?");
  EXPECT_EQ(written("\xc0\xaf"), "??") << "too long for what it says";
  EXPECT_EQ(written("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(written("\xf4\x90\x80\x80"), "????") << "past the last character";
  EXPECT_EQ(written(std::string("a\0b", 3)), std::string("a\0b", 3));
  std::minstd_rand random(1);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (size_t length = random() % 8; text.size() < length;) {
      text += static_cast<char>(random() % 3 == 0 ? random() % 128 : 128 + random() % 128);
    }
    const std::string got = written(text);  // throws when a parser does not take it
    bool good = true;
    try {
      json(text).dump();
    } catch (const json::exception&) {
      good = false;
    }
    EXPECT_EQ(got == text, good) << json(text).dump(-1, ' ', true, json::error_handler_t::replace);
  }
}

TEST(ClientJson, ValuesAreFoundByTheirPaths) {
  JsonReader reader;
  ASSERT_TRUE(JsonReader::parse(
      R"({"a": 5, "b": -6, "c": true, "d": "text \u00e9", "e": null, "f": 1.5,
          "g": {"h": 18446744073709551615, "i": {"j": "deep"}, "k": [7, 8]},
          "l": [{"m": "one", "n": 1}, {"m": "two", "n": 2}], "o": [], "p": ["x", "y"],
          "q": [[1, 2], [3]], "r": 9})",
      &reader));
  EXPECT_EQ(*reader.number("a"), 5u);
  EXPECT_EQ(*reader.negative("b"), -6);
  EXPECT_EQ(reader.number("b"), nullptr);
  EXPECT_TRUE(*reader.boolean("c"));
  EXPECT_EQ(*reader.text("d"), "text \xc3\xa9");
  EXPECT_EQ(reader.text("e"), nullptr);
  EXPECT_EQ(reader.number("f"), nullptr) << "no whole number";
  EXPECT_EQ(*reader.number("g/h"), UINT64_MAX);
  EXPECT_EQ(*reader.text("g/i/j"), "deep");
  EXPECT_EQ(*reader.numbers("g/k"), (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(*reader.text("l/0/m"), "one");
  EXPECT_EQ(*reader.number("l/1/n"), 2u);
  EXPECT_EQ(reader.text("l/2/m"), nullptr);
  EXPECT_TRUE(reader.numbers("o")->empty());
  EXPECT_EQ(*reader.text("p/1"), "y");
  EXPECT_EQ(*reader.numbers("q/0"), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(*reader.numbers("q/1"), std::vector<uint64_t>{3});
  EXPECT_EQ(*reader.number("r"), 9u);
  EXPECT_EQ(reader.number("nothing"), nullptr);
}

TEST(ClientJson, WhatIsNoObjectIsRefused) {
  JsonReader reader;
  for (const char* text :
       {"", "{", "5", "\"text\"", "[1]", "null", "{\"a\": }", "{} x", "{\"a\" 1}", "{\"\xff\": 1}",
        "[[[[[[[[[[1]]]]]]]]]]", R"({"a":[[[[[[[[[[1]]]]]]]]]]})"}) {
    EXPECT_FALSE(JsonReader::parse(text, &reader)) << text;
  }
  EXPECT_TRUE(JsonReader::parse("{}", &reader));
}

TEST(ClientMessages, ARequestHasItsHeadAndItsOwnKeys) {
  const json request =
      json::parse(encode_request("free_region", 12, JsonWriter().number("handle", 34)));
  EXPECT_EQ(request, (json{{"type", "free_region"}, {"version", 1}, {"id", 12}, {"handle", 34}}));
  EXPECT_EQ(json::parse(encode_request("detach", 1, {})),
            (json{{"type", "detach"}, {"version", 1}, {"id", 1}}));
}

TEST(ClientMessages, RepliesAndEventsAreTold) {
  Result<Incoming> ok = decode_incoming(R"({"type":"reply","id":5,"ok":true,"handle":9})");
  ASSERT_TRUE(ok.ok());
  EXPECT_EQ(ok->kind, Incoming::Kind::kReply);
  EXPECT_EQ(ok->id, 5u);
  EXPECT_TRUE(ok->status.ok());
  EXPECT_EQ(*ok->body.number("handle"), 9u);
  Result<Incoming> refused = decode_incoming(
      R"({"type":"reply","id":6,"ok":false,"code":"NOT_PERMITTED","message":"no"})");
  EXPECT_EQ(refused->status.code(), Code::kNotPermitted);
  EXPECT_EQ(refused->status.message(), "no");
  EXPECT_EQ(decode_incoming(R"({"type":"reply","id":6,"ok":false,"code":"NEW","message":"m"})")
                ->status.code(),
            Code::kInternal)
      << "a code of a later version";
  EXPECT_EQ(decode_incoming(R"({"type":"reply","id":6,"ok":false,"code":"OK","message":"m"})")
                ->status.code(),
            Code::kInternal);
  Result<Incoming> stale = decode_incoming(R"({"type":"event","event":"stale","handles":[1,2]})");
  EXPECT_EQ(stale->kind, Incoming::Kind::kStale);
  EXPECT_EQ(stale->handles, (std::vector<uint64_t>{1, 2}));
  Result<Incoming> state =
      decode_incoming(R"({"type":"event","event":"state","state":"draining","reason":"r"})");
  EXPECT_EQ(state->state, "draining");
  EXPECT_EQ(state->reason, "r");
  EXPECT_EQ(decode_incoming(R"({"type":"event","event":"new"})")->kind, Incoming::Kind::kOther);
  EXPECT_FALSE(decode_incoming("hello").ok());
  EXPECT_FALSE(decode_incoming(R"({"type":"reply","ok":true})").ok()) << "whose?";
}

}  // namespace
}  // namespace wherry::detail
