#include "convert/quantize/bit_plan.h"

#include <algorithm>
#include <cmath>

#include "formats/base/bytes.h"
#include "quant/bit_allocation.h"

namespace moepack {
namespace {

// What a layer's errors cost depends on how large they are together, so the choice takes rounds;
// more rounds than these do not settle it further.
constexpr int kMostRounds = 12;

double weights_of(const SensitivityTable& t) {
  return 3.0 * static_cast<double>(t.all_experts()) * static_cast<double>(t.hidden_size) *
         static_cast<double>(t.expert_width);
}

std::vector<BitTriple> all_triples(const SensitivityTable& t) {
  std::vector<BitTriple> out;
  for (const std::uint32_t gate : t.bits) {
    for (const std::uint32_t up : t.bits) {
      for (const std::uint32_t down : t.bits) out.push_back({gate, up, down});
    }
  }
  return out;
}

std::size_t width_index(const SensitivityTable& t, std::uint32_t bits) {
  return static_cast<std::size_t>(std::find(t.bits.begin(), t.bits.end(), bits) - t.bits.begin());
}

double expert_error(const SensitivityTable& t, std::size_t layer, std::size_t expert,
                    const BitTriple& bits) {
  double sum = 0;
  for (std::size_t p = 0; p < kProjections; ++p) {
    sum += t.layers[layer].error[p][width_index(t, bits[p])][expert];
  }
  return sum;
}

std::vector<LayerExpertBits> same_bits(const SensitivityTable& t, const BitTriple& triple) {
  std::vector<LayerExpertBits> layers(t.num_layers);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t p = 0; p < kProjections; ++p) {
      layers[l][p].assign(t.layers[l].experts(), static_cast<std::uint8_t>(triple[p]));
    }
  }
  return layers;
}

// The uniform packs of which no other is as small and loses less. `bytes` are those of an expert,
// by triple.
std::vector<UniformPack> uniform_packs(const SensitivityTable& t,
                                       const std::vector<BitTriple>& triples,
                                       const std::vector<std::uint64_t>& bytes) {
  const std::uint64_t experts = t.all_experts();
  std::vector<UniformPack> all;
  for (std::size_t i = 0; i < triples.size(); ++i) {
    all.push_back(
        {triples[i], bytes[i] * experts, predicted_divergence(t, same_bits(t, triples[i]))});
  }
  std::stable_sort(all.begin(), all.end(), [](const UniformPack& a, const UniformPack& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.divergence < b.divergence;
  });
  std::vector<UniformPack> best;
  for (const UniformPack& pack : all) {
    if (best.empty() || pack.divergence < best.back().divergence) best.push_back(pack);
  }
  return best;
}

// The loss of a uniform pack of so many bytes. Between two sizes the logarithm of the loss is taken
// to be straight, as it nearly is.
double uniform_at(const std::vector<UniformPack>& packs, std::uint64_t bytes) {
  const auto above = std::find_if(packs.begin(), packs.end(),
                                  [&](const UniformPack& u) { return u.bytes >= bytes; });
  if (above == packs.end()) return packs.back().divergence;
  if (above == packs.begin() || above->bytes == bytes) return above->divergence;
  const auto below = above - 1;
  const double at =
      static_cast<double>(bytes - below->bytes) / static_cast<double>(above->bytes - below->bytes);
  if (!(above->divergence > 0)) return below->divergence;
  return below->divergence * std::pow(above->divergence / below->divergence, at);
}

Result<std::vector<std::uint64_t>> bytes_of(const SensitivityTable& t,
                                            const std::vector<BitTriple>& triples) {
  std::vector<std::uint64_t> out;
  for (const BitTriple& triple : triples) {
    MOE_ASSIGN_OR_RETURN(const std::uint64_t bytes, stored_bytes(t, triple));
    out.push_back(bytes);
  }
  return out;
}

class Planner {
 public:
  Planner(const SensitivityTable& table, std::uint64_t budget)
      : table_(table), budget_(budget), triples_(all_triples(table)) {}

  Result<BitPlan> run() {
    MOE_ASSIGN_OR_RETURN(bytes_, bytes_of(table_, triples_));
    MOE_RETURN_IF_ERROR(check_budget(table_, budget_));
    uniform_ = uniform_packs(table_, triples_, bytes_);
    BitPlan best = plan_of(start());
    for (int round = 0; round < kMostRounds; ++round) {
      BitPlan plan = allocate_with(gains_at(best.bits.layers));
      if (!(plan.bits.forecast.divergence < best.bits.forecast.divergence)) break;
      best = std::move(plan);
    }
    best.uniform = uniform_;
    best.bits.forecast.uniform_divergence = uniform_at(uniform_, best.bits.forecast.pack_bytes);
    return best;
  }

 private:
  // The best uniform pack that fits.
  std::vector<LayerExpertBits> start() const {
    const UniformPack* pack = &uniform_.front();
    for (const UniformPack& u : uniform_) {
      if (u.bytes <= budget_) pack = &u;
    }
    return same_bits(table_, pack->bits);
  }

  // What a little more squared error costs, with these widths.
  std::vector<double> gains_at(const std::vector<LayerExpertBits>& bits) const {
    std::vector<double> gains;
    for (std::size_t l = 0; l < table_.num_layers; ++l) {
      const double error = layer_error(l, bits[l]);
      const DivergenceResponse& response = table_.layers[l].response;
      const double root = error > 0 ? response.per_amplitude / (2 * std::sqrt(error)) : 0;
      gains.push_back(response.per_energy + root);
    }
    return gains;
  }

  double layer_error(std::size_t l, const LayerExpertBits& bits) const {
    double sum = 0;
    for (std::size_t e = 0; e < table_.layers[l].experts(); ++e) {
      sum += expert_error(table_, l, e, {bits[0][e], bits[1][e], bits[2][e]});
    }
    return sum;
  }

  BitPlan allocate_with(const std::vector<double>& gains) const {
    std::vector<std::vector<AllocationChoice>> items;
    for (std::size_t l = 0; l < table_.num_layers; ++l) {
      for (std::size_t e = 0; e < table_.layers[l].experts(); ++e) {
        std::vector<AllocationChoice> choices;
        for (std::size_t i = 0; i < triples_.size(); ++i) {
          choices.push_back({bytes_[i], gains[l] * expert_error(table_, l, e, triples_[i])});
        }
        items.push_back(std::move(choices));
      }
    }
    const Allocation allocation = *allocate(items, budget_);  // fits: check_budget
    std::vector<LayerExpertBits> layers = same_bits(table_, triples_.front());
    auto choice = allocation.choice.begin();
    for (LayerExpertBits& layer : layers) {
      for (std::size_t e = 0; e < layer[0].size(); ++e, ++choice) {
        const BitTriple& triple = triples_[*choice];
        for (std::size_t p = 0; p < kProjections; ++p) {
          layer[p][e] = static_cast<std::uint8_t>(triple[p]);
        }
      }
    }
    BitPlan plan = plan_of(std::move(layers));
    if (allocation.cost > 0) plan.gap = 1 - allocation.bound / allocation.cost;
    return plan;
  }

  // The plan with everything but what uniform packs lose.
  BitPlan plan_of(std::vector<LayerExpertBits> layers) const {
    BitPlan plan;
    ExpertBits& b = plan.bits;
    b.model = table_.model;
    b.source_fingerprint = table_.source_fingerprint;
    b.method = table_.method;
    b.num_layers = table_.num_layers;
    b.num_experts = table_.num_experts;
    b.group_size = table_.group_size;
    b.target_bytes = budget_;
    b.layers = std::move(layers);
    for (std::size_t l = 0; l < table_.num_layers; ++l) {
      const LayerExpertBits& bits = b.layers[l];
      plan.layer_divergence.push_back(
          divergence_of(table_.layers[l].response, layer_error(l, bits)));
      for (std::size_t e = 0; e < table_.layers[l].experts(); ++e) {
        const BitTriple triple{bits[0][e], bits[1][e], bits[2][e]};
        const auto at = std::find(triples_.begin(), triples_.end(), triple) - triples_.begin();
        b.forecast.pack_bytes += bytes_[static_cast<std::size_t>(at)];
      }
    }
    b.forecast.bits_per_weight =
        8 * static_cast<double>(b.forecast.pack_bytes) / weights_of(table_);
    b.forecast.divergence = predicted_divergence(table_, b.layers);
    return plan;
  }

  const SensitivityTable& table_;
  std::uint64_t budget_;
  std::vector<BitTriple> triples_;
  std::vector<std::uint64_t> bytes_;  // of an expert, by triple
  std::vector<UniformPack> uniform_;
};

bool is_measured(const SensitivityTable& t, const ExpertBits& bits) {
  if (!t.is_finished() || t.num_layers != bits.num_layers || t.num_experts != bits.num_experts ||
      t.group_size != bits.group_size || (!bits.method.empty() && t.method != bits.method)) {
    return false;
  }
  const bool other = t.source_fingerprint != 0 && bits.source_fingerprint != 0 &&
                     t.source_fingerprint != bits.source_fingerprint;
  if (other) return false;
  for (std::size_t l = 0; l < bits.layers.size(); ++l) {
    if (t.layers[l].experts() == 0) continue;
    for (const auto& projection : bits.layers[l]) {
      if (projection.size() < t.layers[l].experts()) return false;
      for (const std::uint8_t width : projection) {
        if (width_index(t, width) == t.bits.size()) return false;
      }
    }
  }
  return true;
}

}  // namespace

AllocationForecast forecast_of(const SensitivityTable& t, const ExpertBits& bits) {
  AllocationForecast out;
  const std::vector<BitTriple> triples = all_triples(t);
  const auto bytes = bytes_of(t, triples);
  if (!bytes.is_ok() || !is_measured(t, bits)) return out;
  for (std::size_t l = 0; l < bits.layers.size(); ++l) {
    const LayerExpertBits& layer = bits.layers[l];
    for (std::size_t e = 0; e < t.layers[l].experts(); ++e) {
      const BitTriple triple{layer[0][e], layer[1][e], layer[2][e]};
      const auto at = std::find(triples.begin(), triples.end(), triple) - triples.begin();
      out.pack_bytes += bytes.value()[static_cast<std::size_t>(at)];
    }
  }
  out.bits_per_weight = 8 * static_cast<double>(out.pack_bytes) / weights_of(t);
  out.divergence = predicted_divergence(t, bits.layers);
  out.uniform_divergence = uniform_at(uniform_packs(t, triples, bytes.value()), out.pack_bytes);
  return out;
}

double predicted_divergence(const SensitivityTable& t, const std::vector<LayerExpertBits>& bits) {
  double sum = 0;
  for (std::size_t l = 0; l < bits.size(); ++l) {
    double error = 0;
    for (std::size_t e = 0; e < t.layers[l].experts(); ++e) {
      error += expert_error(t, l, e, {bits[l][0][e], bits[l][1][e], bits[l][2][e]});
    }
    sum += divergence_of(t.layers[l].response, error);
  }
  return sum;
}

Result<std::uint64_t> stored_bytes(const SensitivityTable& t, const BitTriple& bits) {
  std::array<WeightFormat, kProjections> formats;
  for (std::size_t p = 0; p < kProjections; ++p) {
    const auto id = affine_qformat(bits[p]);
    if (!id.has_value()) return invalid_argument("there is no such affine format");
    formats[p] = {.id = *id, .group_size = t.group_size, .scale_type = DType::kBf16};
  }
  const auto layout = make_expert_layout(t.hidden_size, t.expert_width, formats);
  if (!layout.has_value()) {
    return invalid_argument("experts of " + std::to_string(t.expert_width) + " x " +
                            std::to_string(t.hidden_size) + " are no whole number of groups of " +
                            std::to_string(t.group_size));
  }
  return align_up(layout->record_bytes, t.page_size);
}

Result<BitPlan> plan_bits(const SensitivityTable& table, std::uint64_t budget) {
  return Planner(table, budget).run();
}

Status check_budget(const SensitivityTable& t, std::uint64_t budget) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> bytes, bytes_of(t, all_triples(t)));
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  const std::uint64_t experts = t.all_experts();
  const auto stated = [&](std::uint64_t expert) {
    return std::to_string(expert * experts) + ", " +
           std::to_string(8 * static_cast<double>(expert * experts) / weights_of(t)) +
           " bits a weight";
  };
  const char* remedy = "ask for a size between, or measure with other --bits";
  if (budget < *least * experts) {
    return invalid_argument("the target of " + std::to_string(budget) +
                                " bytes is too small: the smallest widths take " + stated(*least),
                            remedy);
  }
  if (budget <= *most * experts) return Status::ok();
  return invalid_argument("the target of " + std::to_string(budget) +
                              " bytes is too large: the largest widths take " + stated(*most),
                          remedy);
}

std::uint64_t bytes_of_bits_per_weight(const SensitivityTable& table, double bits_per_weight) {
  // More than any model has would not fit the integer.
  constexpr double kMost = 1e18;
  return static_cast<std::uint64_t>(
      std::clamp(bits_per_weight * weights_of(table) / 8, 0.0, kMost));
}

}  // namespace moepack
