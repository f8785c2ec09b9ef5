// What wherry-bench prints: one figure beside its floor, as a table row or as a line of JSON.
#pragma once

#include <cstdint>
#include <string>

#include "shm/status.h"

namespace wherry::bench {

struct Figure {
  std::string bench;       // "ring"
  std::string name;        // the case: "rtt/two_cores/p50"
  double value = 0;        // median over the rounds
  std::string unit;        // "ns": smaller is better; "GB/s", "1/s", "index": larger is
  double floor = 0;        // the same without the engine, median over the same rounds
  std::string floor_name;  // how the floor did it
  uint32_t rounds = 0;
  uint32_t disturbed = 0;  // rounds among them during which others used the cores
  double spread = 0;       // of the value: (largest - smallest) / median

  bool rate() const { return unit != "ns"; }
  // How much of what the machine can do is reached: 1 = all of it.
  double reach() const { return rate() ? value / floor : floor / value; }
};

// One JSON object without a line end.
std::string to_json(const Figure& figure);

std::string table_header();
std::string to_row(const Figure& figure);

// Prints figures to standard output as they come. Main thread.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  // NO_RESOURCES when nobody can read the output (any more).
  Status add(const Figure& figure);
  // Explains the marks of a table, if there were any.
  void finish() const;

 private:
  bool json_;
  bool begun_ = false;
  bool marked_ = false;
};

}  // namespace wherry::bench
