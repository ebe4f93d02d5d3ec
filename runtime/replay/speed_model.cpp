#include "runtime/replay/speed_model.h"

#include <algorithm>
#include <vector>

namespace moepack {
namespace {

// Of a trace without times: the share of a layer's computing that is of experts.
constexpr double kExpertShare = 0.5;
// Reads from which their speed can be told.
constexpr std::uint64_t kLeastReads = 32;
// Square of the spread of what layers read, over its mean square, from which the time before the
// first byte can be told from the rate: below it nearly all layers miss alike, and a line through
// them says anything of layers that miss little.
constexpr double kLeastSpread = 0.08;

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
    const double slope = spread > kLeastSpread * n * xx_ ? (n * xy_ - x_ * y_) / spread : 0;
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

// How much of the reading was waited for.
class OverlapFit {
 public:
  void add(const TraceLayer& layer) {
    if (layer.misses == 0 || layer.read_us == 0) return;
    wait_ += seconds(layer.wait_us);
    read_ += seconds(layer.read_us);
    ++count_;
    if (samples_.size() < kMostSamples) {
      samples_.push_back({seconds(layer.read_us), seconds(layer.expert_us)});
    }
  }

  ReadOverlap overlap() const {
    if (count_ < kLeastReads) return {};
    const auto layers = static_cast<double>(count_);
    if (wait_ >= read_) return {.share = 0, .delay_seconds = (wait_ - read_) / layers};
    // What is waited for falls as the share grows.
    double low = 0;
    double high = 1;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (waited(middle) * layers > wait_ * static_cast<double>(samples_.size()) ? low : high) =
          middle;
    }
    return {.share = (low + high) / 2, .delay_seconds = 0};
  }

 private:
  static constexpr std::size_t kMostSamples = 100000;
  static constexpr int kHalvings = 20;
  struct Sample {
    double read = 0;
    double computing = 0;
  };

  double waited(double share) const {
    double sum = 0;
    for (const Sample& s : samples_) sum += std::max(0.0, s.read - share * s.computing);
    return sum;
  }

  std::uint64_t count_ = 0;
  double wait_ = 0;
  double read_ = 0;
  std::vector<Sample> samples_;  // the first
};

}  // namespace

Result<TraceTimes> measure_trace(TraceSource& source, std::uint64_t skip) {
  TraceTimes times;
  ReadLine line;
  OverlapFit overlap;
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
    for (const TraceLayer& layer : pass->layers) {
      line.add(source.model(), layer);
      overlap.add(layer);
    }
  }
  times.reading = line.speed();
  times.overlap = overlap.overlap();
  times.cut_bytes = source.cut_bytes();
  return times;
}

SpeedModel::SpeedModel(const TraceTimes& times, const SpeedSettings& settings)
    : has_times_(times.single_seconds > 0),
      knows_computing_(has_times_ || settings.token_seconds.has_value()),
      reading_(settings.reading.has_value() ? settings.reading : times.reading),
      overlap_(times.overlap) {
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
  return mix + experts +
         std::max(0.0, read_seconds(use) + overlap_.delay_seconds - overlap_.share * experts);
}

double SpeedModel::head_seconds(const TracePass& pass) const {
  return scale_ * seconds(pass.head_us);
}

}  // namespace moepack
