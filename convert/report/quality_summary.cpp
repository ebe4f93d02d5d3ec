#include "convert/report/quality_summary.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace moepack {
namespace {

// One matrix as the ledger has it.
struct Matrix {
  const LayerQuality* layer;
  std::uint32_t expert;
  Projection projection;

  const ProjectionQuality& quality() const { return layer->of(projection); }
  float after() const { return quality().after[expert]; }
};

bool is_worse(const Matrix& a, const Matrix& b) {
  const auto place = [](const Matrix& m) {
    return std::tuple(m.layer->layer, m.expert, m.projection);
  };
  // A missing number is no error, and comes last.
  const float left = std::isnan(a.after()) ? -1.0F : a.after();
  const float right = std::isnan(b.after()) ? -1.0F : b.after();
  return left != right ? left > right : place(a) < place(b);
}

std::vector<const LayerQuality*> layers_of_pack(const QualityLedger& ledger,
                                                const PackManifest& pack) {
  std::vector<const LayerQuality*> layers;
  std::vector<bool> taken(pack.num_layers, false);
  for (const LayerQuality& layer : ledger.layers) {
    if (layer.layer >= pack.num_layers || taken[layer.layer]) continue;
    if (layer.projections.front().method.size() != pack.num_experts) continue;
    taken[layer.layer] = true;
    layers.push_back(&layer);
  }
  return layers;
}

bool is_weight_error(const QualityLedger& ledger, const Matrix& m) {
  const std::vector<std::uint32_t>& listed = m.quality().weight_error;
  return ledger.error == QuantError::kWeight ||
         std::binary_search(listed.begin(), listed.end(), m.expert);
}

class MeanSum {
 public:
  void add(float before, float after) {
    if (!std::isfinite(before) || !std::isfinite(after)) return;
    ++mean_.matrices;
    mean_.before += before;
    mean_.after += after;
  }
  MeanQuality mean() const {
    if (mean_.matrices == 0) return {};
    const auto count = static_cast<double>(mean_.matrices);
    return {
        .matrices = mean_.matrices, .before = mean_.before / count, .after = mean_.after / count};
  }

 private:
  MeanQuality mean_;
};

void summarize_samples(const std::vector<const LayerQuality*>& layers, QualitySummary& out) {
  std::vector<std::uint64_t> samples;
  for (const LayerQuality* layer : layers) {
    samples.insert(samples.end(), layer->samples.begin(), layer->samples.end());
  }
  if (samples.empty()) return;
  std::sort(samples.begin(), samples.end());
  out.has_samples = true;
  out.samples_min = samples.front();
  out.samples_max = samples.back();
  const std::size_t half = samples.size() / 2;
  const auto upper = static_cast<double>(samples[half]);
  out.samples_median =
      samples.size() % 2 == 1 ? upper : (static_cast<double>(samples[half - 1]) + upper) / 2;
  const auto below = [&samples](std::uint64_t limit) {
    return static_cast<std::uint64_t>(std::lower_bound(samples.begin(), samples.end(), limit) -
                                      samples.begin());
  };
  out.starved_experts = below(kStarvedTokens);
  out.unseen_experts = below(1);
}

QualityEntry entry_of(const QualityLedger& ledger, const PackManifest& pack, const Matrix& m) {
  QualityEntry entry;
  entry.layer = m.layer->layer;
  entry.expert = m.expert;
  entry.projection = m.projection;
  entry.format = to_string(pack.layout_of(entry.layer, m.expert).of(m.projection).format);
  entry.method = ledger.methods[m.quality().method[m.expert]];
  if (!m.layer->samples.empty()) entry.samples = m.layer->samples[m.expert];
  entry.error = is_weight_error(ledger, m) ? QuantError::kWeight : QuantError::kOutput;
  entry.before = m.quality().before[m.expert];
  entry.after = m.quality().after[m.expert];
  return entry;
}

}  // namespace

QualitySummary summarize_quality(const QualityLedger& ledger, const PackManifest& pack,
                                 std::size_t num_worst) {
  QualitySummary out;
  out.error = ledger.error;
  const std::vector<const LayerQuality*> layers = layers_of_pack(ledger, pack);
  std::vector<std::uint64_t> counts(ledger.methods.size(), 0);
  std::array<MeanSum, kProjections> sums;
  MeanSum weight_sum;
  std::vector<Matrix> matrices;
  matrices.reserve(layers.size() * pack.num_experts * kProjections);
  for (const LayerQuality* layer : layers) {
    for (std::uint32_t expert = 0; expert < pack.num_experts; ++expert) {
      for (Projection p : kAllProjections) {
        const Matrix matrix{.layer = layer, .expert = expert, .projection = p};
        const ProjectionQuality& quality = matrix.quality();
        ++counts[quality.method[expert]];
        const bool is_aside =
            ledger.error == QuantError::kOutput && is_weight_error(ledger, matrix);
        MeanSum& sum = is_aside ? weight_sum : sums[static_cast<std::size_t>(p)];
        sum.add(quality.before[expert], quality.after[expert]);
        matrices.push_back(matrix);
      }
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) out.methods.push_back({ledger.methods[i], counts[i]});
  }
  for (std::size_t i = 0; i < kProjections; ++i) out.projections[i] = sums[i].mean();
  out.weight_error = weight_sum.mean();
  summarize_samples(layers, out);
  const auto end =
      matrices.begin() + static_cast<std::ptrdiff_t>(std::min(num_worst, matrices.size()));
  std::partial_sort(matrices.begin(), end, matrices.end(), is_worse);
  for (auto m = matrices.begin(); m != end; ++m) out.worst.push_back(entry_of(ledger, pack, *m));
  return out;
}

}  // namespace moepack
