#include "runtime/replay/speed_model.h"

#include <algorithm>

namespace moepack {
namespace {

// Of a trace without times: the share of a layer's computing that is of experts.
constexpr double kExpertShare = 0.5;
// Reads from which their speed can be told.
constexpr std::uint64_t kLeastReads = 32;

double seconds(std::uint32_t us) { return 1e-6 * us; }

double computing_of(const TracePass& pass) {
  double sum = seconds(pass.head_us);
  for (const TraceLayer& layer : pass.layers) {
    sum += seconds(layer.mix_us) + seconds(layer.expert_us);
  }
  return sum;
}

// The straight line through reading times over bytes, by least squares.
class ReadLine {
 public:
  void add(const TraceModel& model, const TraceLayer& layer) {
    if (layer.misses == 0 || layer.read_us == 0) return;
    double bytes = 0;  // of an expert of the layer, in the mean
    for (const TraceUse& use : layer.uses) {
      bytes += static_cast<double>(model.bytes_of(layer.layer, use.expert));
    }
    const double x = bytes * layer.misses / static_cast<double>(layer.uses.size());
    const double y = seconds(layer.read_us);
    ++count_;
    x_ += x;
    y_ += y;
    xx_ += x * x;
    xy_ += x * y;
  }

  // Where the line would begin below zero, the one through it.
  std::optional<ReadSpeed> speed() const {
    if (count_ < kLeastReads) return std::nullopt;
    const auto n = static_cast<double>(count_);
    const double spread = n * xx_ - x_ * x_;
    const double slope = spread > 1e-6 * n * xx_ ? (n * xy_ - x_ * y_) / spread : 0;
    const double first = (y_ - slope * x_) / n;
    if (slope <= 0 || first < 0) return ReadSpeed{0, x_ / y_};
    return ReadSpeed{first, 1 / slope};
  }

 private:
  std::uint64_t count_ = 0;
  double x_ = 0;
  double y_ = 0;
  double xx_ = 0;
  double xy_ = 0;
};

}  // namespace

Result<TraceTimes> measure_trace(TraceSource& source, std::uint64_t skip) {
  TraceTimes times;
  ReadLine line;
  for (std::uint64_t seen = 0;; ++seen) {
    MOE_ASSIGN_OR_RETURN(const TracePass* const pass, source.next());
    if (pass == nullptr) break;
    if (seen < skip) continue;
    ++times.passes;
    times.tokens += pass->tokens;
    if (pass->tokens == 1) {
      ++times.single_passes;
      times.single_seconds += computing_of(*pass);
    }
    for (const TraceLayer& layer : pass->layers) line.add(source.model(), layer);
  }
  times.reading = line.speed();
  times.cut_bytes = source.cut_bytes();
  return times;
}

SpeedModel::SpeedModel(const TraceTimes& times, const SpeedSettings& settings)
    : has_times_(times.single_seconds > 0),
      knows_computing_(has_times_ || settings.token_seconds.has_value()),
      reading_(settings.reading.has_value() ? settings.reading : times.reading) {
  if (has_times_) token_seconds_ = times.single_seconds / static_cast<double>(times.single_passes);
  if (!settings.token_seconds.has_value()) return;
  if (has_times_) scale_ = *settings.token_seconds / token_seconds_;
  token_seconds_ = *settings.token_seconds;
}

double SpeedModel::read_seconds(const CacheUse& use) const {
  if (use.misses == 0 || !reading_.has_value()) return 0;
  return reading_->first_seconds +
         static_cast<double>(use.missed_bytes) / reading_->bytes_per_second;
}

double SpeedModel::layer_seconds(const TracePass& pass, const TraceLayer& layer,
                                 const CacheUse& use) const {
  double mix = scale_ * seconds(layer.mix_us);
  double experts = scale_ * seconds(layer.expert_us);
  if (!has_times_) {
    const double all = token_seconds_ * pass.tokens / static_cast<double>(pass.layers.size());
    mix = (1 - kExpertShare) * all;
    experts = kExpertShare * all;
  }
  if (use.misses == 0) return mix + experts;
  const double last = experts / static_cast<double>(layer.uses.size());
  return mix + std::max(experts, read_seconds(use)) + last;
}

double SpeedModel::head_seconds(const TracePass& pass) const {
  return scale_ * seconds(pass.head_us);
}

}  // namespace moepack
