#include "tools/demo/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace wherry::demo {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
// Far above the demo's model: these only bound what a hostile file can cost.
constexpr std::uint64_t kMaxFileBytes = 64u << 20;
constexpr std::uint64_t kMaxHeaderBytes = 1u << 20;

std::uint64_t little_endian_u64(const std::string& bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int fraction = half & 0x3ff;
  float magnitude;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else if (exponent == 31) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

std::string to_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

// False unless `value` is an array of unsigned integers.
bool read_numbers(const json& value, std::vector<std::uint64_t>* out) {
  if (!value.is_array()) return false;
  for (const json& number : value) {
    if (!number.is_number_unsigned()) return false;
    out->push_back(number.get<std::uint64_t>());
  }
  return true;
}

}  // namespace

Status Safetensors::damaged(const std::string& what) const {
  return {Code::kInvalidArgument,
          path_ + ": " + what + "; restore the file, it is damaged or not a safetensors file"};
}

Status Safetensors::bad_tensor(const std::string& name, const std::string& what) const {
  return damaged("tensor " + name + ": " + what);
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  Safetensors file;
  file.path_ = path;
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) {
    return Status{Code::kStorage, path + ": wanted a readable file, got \"" + error.message() +
                                      "\"; check the path of the model"};
  }
  if (size < kLengthBytes || size > kMaxFileBytes) {
    return file.damaged("wanted 8 to " + std::to_string(kMaxFileBytes) + " bytes, got " +
                        std::to_string(size));
  }
  std::string bytes(size, '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return Status{Code::kStorage, path + ": wanted " + std::to_string(size) + " bytes, got " +
                                      std::to_string(stream.gcount()) +
                                      "; check that the file can be read"};
  }
  const std::uint64_t header_size = little_endian_u64(bytes);
  const std::uint64_t limit = std::min(size - kLengthBytes, kMaxHeaderBytes);
  if (header_size > limit) {
    return file.damaged("wanted a header of at most " + std::to_string(limit) + " bytes, got " +
                        std::to_string(header_size));
  }
  file.data_ = bytes.substr(kLengthBytes + header_size);
  if (Status status = file.parse_header(bytes.substr(kLengthBytes, header_size)); !status.ok()) {
    return status;
  }
  if (Status status = file.check_ranges(); !status.ok()) return status;
  return file;
}

Status Safetensors::parse_header(const std::string& header) {
  const json root = json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return damaged("wanted a JSON object as header, got something else");
  for (const auto& item : root.items()) {
    const std::string& name = item.key();
    const json& value = item.value();
    if (!value.is_object()) return bad_tensor(name, "wanted an object, got something else");
    if (name == "__metadata__") {
      for (const auto& pair : value.items()) {
        if (!pair.value().is_string()) {
          return damaged("metadata " + pair.key() + ": wanted a string, got something else");
        }
        metadata_[pair.key()] = pair.value().get<std::string>();
      }
      continue;
    }
    Entry entry;
    std::vector<std::uint64_t> offsets;
    if (!value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
        !read_numbers(value["shape"], &entry.shape) || !value.contains("data_offsets") ||
        !read_numbers(value["data_offsets"], &offsets) || offsets.size() != 2) {
      return bad_tensor(name, "wanted dtype, shape and two data_offsets, got something else");
    }
    entry.dtype = value["dtype"].get<std::string>();
    entry.begin = offsets[0];
    entry.end = offsets[1];
    tensors_[name] = std::move(entry);
  }
  return {};
}

// The format wants the tensors to fill the data section without holes, overlaps or a rest.
Status Safetensors::check_ranges() const {
  std::vector<std::pair<std::uint64_t, std::string>> by_begin;
  for (const auto& [name, entry] : tensors_) {
    if (entry.begin > entry.end || entry.end > data_.size()) {
      return bad_tensor(name, "wanted data within " + std::to_string(data_.size()) +
                                  " bytes, got offsets " + to_text({entry.begin, entry.end}));
    }
    by_begin.emplace_back(entry.begin, name);
  }
  std::sort(by_begin.begin(), by_begin.end());
  std::uint64_t expected = 0;
  for (const auto& [begin, name] : by_begin) {
    if (begin != expected) {
      return bad_tensor(name, "wanted its data to begin at " + std::to_string(expected) + ", got " +
                                  std::to_string(begin));
    }
    expected = tensors_.at(name).end;
  }
  if (expected != data_.size()) {
    return damaged("wanted " + std::to_string(expected) + " bytes of data, got " +
                   std::to_string(data_.size()));
  }
  return {};
}

Result<std::vector<float>> Safetensors::read_f16(const std::string& name,
                                                 const std::vector<std::uint64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return bad_tensor(name, "wanted it in the header, got none");
  const Entry& entry = found->second;
  if (entry.dtype != "F16") return bad_tensor(name, "wanted dtype F16, got " + entry.dtype);
  if (entry.shape != shape) {
    return bad_tensor(name, "wanted shape " + to_text(shape) + ", got " + to_text(entry.shape));
  }
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  if (entry.end - entry.begin != count * sizeof(std::uint16_t)) {
    return bad_tensor(name, "wanted " + std::to_string(count * sizeof(std::uint16_t)) +
                                " bytes of data, got " + std::to_string(entry.end - entry.begin));
  }
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, data_.data() + entry.begin + i * sizeof(half), sizeof(half));
    values[i] = half_to_float(half);
    if (!std::isfinite(values[i])) {
      return bad_tensor(name, "wanted finite values, got inf or nan at " + std::to_string(i));
    }
  }
  return values;
}

Status Safetensors::expect_metadata(const std::string& key, const std::string& wanted) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end() && found->second == wanted) return {};
  return damaged("metadata " + key + ": wanted " + wanted + ", got " +
                 (found == metadata_.end() ? "none" : found->second));
}

}  // namespace wherry::demo
