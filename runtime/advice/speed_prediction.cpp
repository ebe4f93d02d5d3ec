#include "runtime/advice/speed_prediction.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

double binomial(std::uint32_t n, std::uint32_t k, double probability) {
  double value = 1;
  for (std::uint32_t i = 0; i < k; ++i) {
    value *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  }
  return value * std::pow(probability, k) * std::pow(1 - probability, n - k);
}

// Of one layer's mixer: what of the residents is not the head, and its states.
double mixer_seconds(const TokenWork& work, const ComputeRates& compute) {
  const double bytes = std::max(0.0, work.resident_bytes - work.head_bytes);
  return (bytes / compute.residents + work.state_bytes / compute.memory) / work.layers;
}

}  // namespace

double layer_seconds(const TokenWork& work, const ComputeRates& compute, const ReadRates& disk,
                     const ReadAhead& ahead, std::uint32_t missing) {
  const double one = work.record_bytes / compute.experts;
  const double all = work.experts_per_token * one;
  if (missing == 0) return all;
  const double each = work.record_bytes / disk.many;
  const double latency = work.record_bytes / disk.one - each;
  const double begun = double{1} * ahead.experts * missing / work.experts_per_token;
  const double left = missing - ahead.used * begun;
  const double waits = std::max(0.0, begun * each - mixer_seconds(work, compute));
  const double read = waits + left * each + (waits > 0 ? 0 : latency);
  return std::max(all, read + one);
}

SpeedPrediction predict_speed(const TokenWork& work, const ComputeRates& compute,
                              const ReadRates& disk, const ReadAhead& ahead, double hit_rate) {
  SpeedPrediction prediction{.hit_rate = hit_rate,
                             .missed_bytes = work.expert_bytes() * (1 - hit_rate)};
  const bool misses = hit_rate < 1;
  if (compute.residents <= 0 || compute.experts <= 0 || compute.memory <= 0) return prediction;
  if (misses && !disk.is_known()) return prediction;
  double layer = 0;
  for (std::uint32_t m = 0; m <= work.experts_per_token; ++m) {
    const double probability = binomial(work.experts_per_token, m, 1 - hit_rate);
    if (probability > 0) layer += probability * layer_seconds(work, compute, disk, ahead, m);
  }
  const double computed = layer_seconds(work, compute, disk, ahead, 0);
  const double total = work.resident_bytes / compute.residents + work.state_bytes / compute.memory +
                       work.layers * layer;
  if (!(total > 0)) return prediction;
  prediction.tokens_per_second = 1 / total;
  prediction.disk_share = work.layers * (layer - computed) / total;
  return prediction;
}

}  // namespace moepack
