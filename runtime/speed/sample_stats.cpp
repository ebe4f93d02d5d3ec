#include "runtime/speed/sample_stats.h"

#include <cmath>

namespace moepack {

double sample_mean(std::span<const double> samples) {
  if (samples.empty()) return 0;
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return sum / static_cast<double>(samples.size());
}

double sample_deviation(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  const double mean = sample_mean(samples);
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

}  // namespace moepack
