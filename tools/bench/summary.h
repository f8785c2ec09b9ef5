// Medians, spread, percentiles. Plain functions over values that are there; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace wherry::bench {

struct Summary {
  double median = 0;
  double spread = 0;  // (largest - smallest) / median
};

// Of at least one value.
Summary summarize(std::vector<double> values);

// The value that `share` (0 to 1) of the samples do not exceed. Of at least one sample.
double percentile(std::vector<uint32_t> samples, double share);

}  // namespace wherry::bench
