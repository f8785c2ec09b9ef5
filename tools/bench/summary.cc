#include "tools/bench/summary.h"

#include <algorithm>
#include <cmath>

namespace wherry::bench {

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  Summary summary;
  summary.median =
      values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  if (summary.median > 0) summary.spread = (values.back() - values.front()) / summary.median;
  return summary;
}

double percentile(std::vector<uint32_t> samples, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(samples.size())));
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

}  // namespace wherry::bench
