// Weight files that are damaged, hostile or of another model are refused, and the message names the
// part at fault.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/demo/tiny_lm.h"

namespace wherry::demo {
namespace {

using nlohmann::json;

const std::string kModelPath = std::string(WHERRY_DEMO_MODEL_DIR) + "/tiny_lm.safetensors";

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Damaged copies of the model in a folder that goes with the test.
class DamagedModel : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "wherry-tiny-lm-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const std::string bytes = read_file(kModelPath);
    std::uint64_t header_size = 0;
    std::memcpy(&header_size, bytes.data(), sizeof(header_size));
    header_ = json::parse(bytes.substr(8, header_size));
    data_ = bytes.substr(8 + header_size);
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file_of(const std::string& header) const {
    const std::uint64_t size = header.size();
    std::string bytes(sizeof(size), '\0');
    std::memcpy(bytes.data(), &size, sizeof(size));
    return bytes + header + data_;
  }

  // The message with which a file of these bytes is refused.
  std::string refusal(const std::string& bytes) const {
    const std::string path = folder_ + "/model.safetensors";
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const Result<TinyLm> loaded = TinyLm::load(path);
    EXPECT_FALSE(loaded.ok());
    if (loaded.ok()) return "";
    EXPECT_EQ(loaded.code(), Code::kInvalidArgument);
    EXPECT_EQ(loaded.status().message().find(path), 0u) << loaded.status().message();
    return loaded.status().message();
  }
  std::string refusal() const { return refusal(file_of(header_.dump())); }

  json& tensor(const std::string& name) { return header_[name]; }

  std::string folder_;
  json header_;
  std::string data_;
};

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << '"' << part << "\" in: " << message;
  }
}

TEST_F(DamagedModel, AnUndamagedCopyIsAccepted) {
  const std::string path = folder_ + "/copy";
  const std::string bytes = file_of(header_.dump());
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(TinyLm::load(path).ok());
}

TEST_F(DamagedModel, AMissingFileIsRefusedWithItsPath) {
  const Result<TinyLm> loaded = TinyLm::load(folder_ + "/none");
  EXPECT_EQ(loaded.code(), Code::kStorage);
  expect_parts(loaded.status().message(), {folder_ + "/none", "No such file"});
  EXPECT_EQ(TinyLm::load(folder_).code(), Code::kStorage);
}

TEST_F(DamagedModel, AFileTruncatedAnywhereIsRefusedAndThePartThatFailedIsNamed) {
  const std::string whole = file_of(header_.dump());
  const std::size_t data_begin = whole.size() - data_.size();
  expect_parts(refusal(""), {"bytes, got 0"});
  expect_parts(refusal(whole.substr(0, 7)), {"bytes, got 7"});
  expect_parts(refusal(whole.substr(0, 8)), {"wanted a header of at most 0 bytes"});
  expect_parts(refusal(whole.substr(0, data_begin - 1)), {"wanted a header of"});
  expect_parts(refusal(whole.substr(0, data_begin)), {"tensor layers.0.attn_norm.weight"});
  expect_parts(refusal(whole.substr(0, whole.size() - 1)),
               {"tensor layers.5.w_down.weight", "offsets ["});
}

TEST_F(DamagedModel, BytesAfterTheTensorsAreRefused) {
  data_ += "x";
  expect_parts(refusal(), {"bytes of data, got " + std::to_string(data_.size())});
}

TEST_F(DamagedModel, AHeaderThatIsNoJsonObjectIsRefused) {
  for (const char* header : {"", "{", "[]", "null", "{\"a\": \xff}", "{}x"}) {
    expect_parts(refusal(file_of(header)), {"wanted a JSON object"});
  }
  expect_parts(refusal(file_of("{}")), {"bytes of data, got"});
  std::string huge_length = file_of("{}");
  huge_length.replace(0, 8, 8, '\xff');
  expect_parts(refusal(huge_length), {"a header of at most", "got 18446744073709551615"});
  expect_parts(refusal(file_of(std::string(1 << 20, '['))), {"wanted a JSON object"});
  expect_parts(refusal(file_of(std::string((1 << 20) + 1, ' '))), {"at most 1048576 bytes"});
}

TEST_F(DamagedModel, AWrongDtypeIsRefusedWithTheTensorsName) {
  tensor("layers.3.wk.weight")["dtype"] = "BF16";
  expect_parts(refusal(), {"tensor layers.3.wk.weight", "wanted dtype F16, got BF16"});
}

TEST_F(DamagedModel, AWrongShapeIsRefusedWithTheTensorsName) {
  tensor("layers.2.w_up.weight")["shape"] = {128, 344};
  expect_parts(refusal(),
               {"tensor layers.2.w_up.weight", "wanted shape [344, 128], got [128, 344]"});
}

TEST_F(DamagedModel, AMissingTensorIsRefusedByName) {
  json renamed = tensor("norm.weight");
  header_.erase("norm.weight");
  header_["norm"] = renamed;  // the data stays covered
  expect_parts(refusal(), {"tensor norm.weight", "wanted it in the header"});
}

TEST_F(DamagedModel, AnOffsetPastTheEndIsRefusedWithTheTensorsName) {
  for (const json& offsets : {json{2202880, 2202882}, json{0, 18446744073709551615u}, json{100, 50},
                              json{18446744073709551615u, 18446744073709551615u}}) {
    tensor("layers.4.wo.weight")["data_offsets"] = offsets;
    expect_parts(refusal(), {"tensor layers.4.wo.weight", "got offsets ["});
  }
}

TEST_F(DamagedModel, OverlapsHolesAndLengthsThatDoNotFitAreRefusedWithTheTensorsName) {
  json& norm = tensor("norm.weight")["data_offsets"];
  json& next = tensor("layers.0.attn_norm.weight")["data_offsets"];
  ASSERT_EQ(norm[1], next[0]);
  norm[1] = norm[1].get<int>() + 2;
  expect_parts(refusal(), {"tensor layers.0.attn_norm.weight", "wanted its data to begin"});
  norm[1] = norm[1].get<int>() - 4;
  expect_parts(refusal(), {"tensor layers.0.attn_norm.weight", "wanted its data to begin"});
  next[0] = norm[1];
  expect_parts(refusal(), {"tensor layers.0.attn_norm.weight", "wanted 256 bytes", "got 258"});
}

TEST_F(DamagedModel, AnEntryOfAnotherFormIsRefusedWithTheTensorsName) {
  const json whole = tensor("norm.weight");
  for (const char* entry :
       {R"(1)", R"({})", R"({"dtype": 1})", R"({"shape": [-1]})", R"({"shape": 128})",
        R"({"shape": [1e2]})", R"({"data_offsets": [1]})", R"({"data_offsets": [0, -1]})",
        R"({"data_offsets": [0, 1, 2]})", R"({"data_offsets": ["0", "1"]})",
        R"({"data_offsets": [0, 18446744073709551616]})", R"({"data_offsets": null})"}) {
    json changed = json::parse(entry);
    if (!changed.empty() && changed.is_object()) {
      json merged = whole;
      merged.update(changed);
      changed = merged;
    }
    tensor("norm.weight") = changed;
    expect_parts(refusal(), {"tensor norm.weight"});
  }
}

TEST_F(DamagedModel, AValueThatIsNotFiniteIsRefusedWithTheTensorsName) {
  const auto begin = tensor("layers.1.wv.weight")["data_offsets"][0].get<std::size_t>();
  data_.replace(begin + 10, 2, {'\x00', '\x7c'});  // +inf
  expect_parts(refusal(), {"tensor layers.1.wv.weight", "inf or nan at 5"});
}

TEST_F(DamagedModel, AModelOfOtherArithmeticIsRefused) {
  header_["__metadata__"]["rope_theta"] = "500000";
  expect_parts(refusal(), {"metadata rope_theta", "wanted 10000, got 500000"});
  header_["__metadata__"]["rope_theta"] = 10000;
  expect_parts(refusal(), {"metadata rope_theta", "wanted a string"});
  header_.erase("__metadata__");
  expect_parts(refusal(), {"metadata head_dim", "got none"});
}

}  // namespace
}  // namespace wherry::demo
