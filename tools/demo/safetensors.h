// A reader for the safetensors weight format: 8 bytes little-endian header length, a JSON header,
// then the data.
//
// The file is not trusted: every length and offset is checked before use, and what does not fit is
// refused with a message that names the file and, where there is one, the tensor. Nothing is
// thrown. An open file is an immutable value in memory, so any thread may read it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shm/status.h"

namespace wherry::demo {

class Safetensors {
 public:
  static Result<Safetensors> open(const std::string& path);

  // The values of tensor `name` as float32; refused unless it is F16, of this shape, and finite.
  Result<std::vector<float>> read_f16(const std::string& name,
                                      const std::vector<std::uint64_t>& shape) const;

  // Refused unless the header's metadata says `key` = `wanted`.
  Status expect_metadata(const std::string& key, const std::string& wanted) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0;  // in data_; open() has checked begin <= end <= data_.size()
    std::uint64_t end = 0;
  };

  Status parse_header(const std::string& header);
  Status check_ranges() const;
  Status damaged(const std::string& what) const;
  Status bad_tensor(const std::string& name, const std::string& what) const;

  std::string path_;
  std::string data_;
  std::map<std::string, Entry> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace wherry::demo
