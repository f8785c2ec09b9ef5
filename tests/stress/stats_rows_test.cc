// A reader that looks all the time while the writer changes rows: never sees half a change.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "shm/stats_reader.h"
#include "shm/stats_writer.h"
#include "tests/support/counts.h"
#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

// Whole rows that are to be seen.
uint64_t wanted() { return test::counted(200'000); }

TEST(StatsRows, AReaderNeverSeesHalfAChange) {
  const tests::TemporaryDirectory directory;
  StatsOptions options;
  options.clients = 1;
  Result<StatsWriter> writer = StatsWriter::create(directory / "stats", options);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  Result<StatsReader> reader = StatsReader::open(directory / "stats");
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();

  std::atomic<bool> enough{false};
  uint64_t rounds = 0;
  std::thread changes([&] {
    for (uint64_t i = 1; !enough.load(); ++i) {
      // Every text and number of a change is made of one letter or one number.
      const std::string text(1 + i % 60, static_cast<char>('a' + i % 26));
      ClientRow* row = writer->add_client({text, i, i, static_cast<uint32_t>(i), 0, 0});
      writer->set_state(EngineState::kRunning, text + text);
      writer->record_error(ErrorId::kInternal, "the one", text + text);
      writer->remove_client(row);
      rounds = i;
    }
  });
  const auto is_one = [](const std::string& text) {
    return text.find_first_not_of(text.empty() ? 'a' : text[0]) == std::string::npos;
  };
  uint64_t seen = 0;
  uint64_t wrong = 0;
  while (seen < wanted()) {
    for (const ClientRecord& client : reader->clients()) {
      if (client.torn) continue;
      ++seen;
      const bool right = is_one(client.instance) && client.session == client.incarnation &&
                         client.rank == client.session &&
                         client.instance.size() == 1 + client.session % 60;
      wrong += right ? 0 : 1;
    }
    const StatsState state = reader->state();
    wrong += state.torn || is_one(state.reason) ? 0 : 1;
    for (const ErrorRecord& error : reader->errors()) {
      wrong += error.torn || is_one(error.text) ? 0 : 1;
    }
  }
  enough.store(true);
  changes.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(reader->errors()[0].count, rounds);
}

}  // namespace
}  // namespace wherry::shm
