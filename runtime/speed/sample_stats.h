// Mean and spread of repeated measurements, as llama-bench states them.
#pragma once

#include <span>

namespace moepack {

// 0 without samples.
double sample_mean(std::span<const double> samples);
// The sample standard deviation (divided by n - 1); 0 of fewer than two samples.
double sample_deviation(std::span<const double> samples);

}  // namespace moepack
