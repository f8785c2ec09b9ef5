#include "shm/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

const char* const kGoldenPath = WHERRY_SOURCE_DIR "/tests/unit/golden_layout.txt";

TEST(Golden, OffsetsAndSizesOfAllSharedStructsAreThoseOfTheFile) {
  const std::string now = describe_layout();
  if (const char* write = std::getenv("WHERRY_WRITE_GOLDEN");
      write != nullptr && std::string(write) == "1") {
    tests::write_file(kGoldenPath, now);
  }
  EXPECT_EQ(now, tests::read_file(kGoldenPath))
      << "The layout in shared memory moved. If that is wanted, raise the version as shm/golden.h "
         "says and run this test with WHERRY_WRITE_GOLDEN=1.";
}

}  // namespace
}  // namespace wherry::shm
