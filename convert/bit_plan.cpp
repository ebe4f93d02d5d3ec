#include "convert/bit_plan.h"

#include <algorithm>
#include <cmath>

#include "formats/bytes.h"
#include "quant/bit_allocation.h"

namespace moepack {
namespace {

// What a layer's errors cost depends on how large they are together; more rounds do not settle it
// further.
constexpr int kMostRounds = 12;

double weights_of(const SensitivityTable& t) {
  return 3.0 * static_cast<double>(t.num_layers) * static_cast<double>(t.num_experts) *
         static_cast<double>(t.hidden_size) * static_cast<double>(t.expert_width);
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

class Planner {
 public:
  Planner(const SensitivityTable& table, std::uint64_t budget)
      : table_(table), budget_(budget), triples_(all_triples(table)) {}

  Result<BitPlan> run() {
    for (const BitTriple& triple : triples_) {
      MOE_ASSIGN_OR_RETURN(const std::uint64_t bytes, stored_bytes(table_, triple));
      bytes_.push_back(bytes);
    }
    MOE_RETURN_IF_ERROR(check_budget());
    uniform();
    std::vector<double> gains = gains_at(start());
    BitPlan best;
    bool found = false;
    for (int round = 0; round < kMostRounds; ++round) {
      BitPlan plan = allocate_with(gains);
      if (found && !(plan.bits.forecast.divergence < best.bits.forecast.divergence)) break;
      gains = gains_at(plan.bits.layers);
      best = std::move(plan);
      found = true;
    }
    best.uniform = uniform_;
    best.bits.forecast.uniform_divergence = uniform_at(best.bits.forecast.pack_bytes);
    return best;
  }

 private:
  std::uint64_t experts() const { return std::uint64_t{table_.num_layers} * table_.num_experts; }

  Status check_budget() const {
    const auto [least, most] = std::minmax_element(bytes_.begin(), bytes_.end());
    const auto in_bits = [&](std::uint64_t bytes) {
      return std::to_string(8 * static_cast<double>(bytes * experts()) / weights_of(table_));
    };
    const char* remedy = "ask for a size between, or measure with other --bits";
    if (budget_ < *least * experts()) {
      return invalid_argument("the target of " + std::to_string(budget_) +
                                  " bytes is too small: the smallest widths take " +
                                  std::to_string(*least * experts()) + ", " + in_bits(*least) +
                                  " bits a weight",
                              remedy);
    }
    if (budget_ <= *most * experts()) return Status::ok();
    return invalid_argument("the target of " + std::to_string(budget_) +
                                " bytes is too large: the largest widths take " +
                                std::to_string(*most * experts()) + ", " + in_bits(*most) +
                                " bits a weight",
                            remedy);
  }

  std::vector<LayerExpertBits> same(const BitTriple& triple) const {
    LayerExpertBits layer;
    for (std::size_t p = 0; p < kProjections; ++p) {
      layer[p].assign(table_.num_experts, static_cast<std::uint8_t>(triple[p]));
    }
    return std::vector<LayerExpertBits>(table_.num_layers, layer);
  }

  // Those of which no other is as small and loses less.
  void uniform() {
    std::vector<UniformPack> all;
    for (std::size_t i = 0; i < triples_.size(); ++i) {
      all.push_back(
          {triples_[i], bytes_[i] * experts(), predicted_divergence(table_, same(triples_[i]))});
    }
    std::stable_sort(all.begin(), all.end(), [](const UniformPack& a, const UniformPack& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.divergence < b.divergence;
    });
    for (const UniformPack& pack : all) {
      if (uniform_.empty() || pack.divergence < uniform_.back().divergence) {
        uniform_.push_back(pack);
      }
    }
  }

  // Between two sizes the logarithm of the loss is taken to be straight, as it nearly is.
  double uniform_at(std::uint64_t bytes) const {
    const auto above = std::find_if(uniform_.begin(), uniform_.end(),
                                    [&](const UniformPack& u) { return u.bytes >= bytes; });
    if (above == uniform_.end()) return uniform_.back().divergence;
    if (above == uniform_.begin() || above->bytes == bytes) return above->divergence;
    const auto below = above - 1;
    const double at = static_cast<double>(bytes - below->bytes) /
                      static_cast<double>(above->bytes - below->bytes);
    if (!(above->divergence > 0)) return below->divergence;
    return below->divergence * std::pow(above->divergence / below->divergence, at);
  }

  // The best uniform pack that fits.
  std::vector<LayerExpertBits> start() const {
    const UniformPack* pack = &uniform_.front();
    for (const UniformPack& u : uniform_) {
      if (u.bytes <= budget_) pack = &u;
    }
    return same(pack->bits);
  }

  // Nats per unit of squared error, at the size that errors have with these widths.
  std::vector<double> gains_at(const std::vector<LayerExpertBits>& bits) const {
    std::vector<double> gains;
    for (std::size_t l = 0; l < table_.num_layers; ++l) {
      const double error = layer_error(l, bits[l]);
      const DivergenceResponse& response = table_.layers[l].response;
      gains.push_back(error > 0 ? divergence_of(response, error) / error : response.per_energy);
    }
    return gains;
  }

  double layer_error(std::size_t l, const LayerExpertBits& bits) const {
    double sum = 0;
    for (std::size_t e = 0; e < table_.num_experts; ++e) {
      sum += expert_error(table_, l, e, {bits[0][e], bits[1][e], bits[2][e]});
    }
    return sum;
  }

  BitPlan allocate_with(const std::vector<double>& gains) const {
    std::vector<std::vector<AllocationChoice>> items;
    for (std::size_t l = 0; l < table_.num_layers; ++l) {
      for (std::size_t e = 0; e < table_.num_experts; ++e) {
        std::vector<AllocationChoice> choices;
        for (std::size_t i = 0; i < triples_.size(); ++i) {
          choices.push_back({bytes_[i], gains[l] * expert_error(table_, l, e, triples_[i])});
        }
        items.push_back(std::move(choices));
      }
    }
    const Allocation allocation = *allocate(items, budget_);  // check_budget
    BitPlan plan;
    plan.layer_gain = gains;
    plan.bits.layers = same(triples_.front());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const BitTriple& triple = triples_[allocation.choice[i]];
      for (std::size_t p = 0; p < kProjections; ++p) {
        plan.bits.layers[i / table_.num_experts][p][i % table_.num_experts] =
            static_cast<std::uint8_t>(triple[p]);
      }
    }
    for (std::size_t l = 0; l < table_.num_layers; ++l) {
      plan.layer_divergence.push_back(
          divergence_of(table_.layers[l].response, layer_error(l, plan.bits.layers[l])));
    }
    ExpertBits& b = plan.bits;
    b.model = table_.model;
    b.source_fingerprint = table_.source_fingerprint;
    b.method = table_.method;
    b.num_layers = table_.num_layers;
    b.num_experts = table_.num_experts;
    b.group_size = table_.group_size;
    b.target_bytes = budget_;
    b.forecast.pack_bytes = allocation.size;
    b.forecast.bits_per_weight = 8 * static_cast<double>(allocation.size) / weights_of(table_);
    b.forecast.divergence = predicted_divergence(table_, b.layers);
    plan.bound = allocation.cost > 0 ? b.forecast.divergence * allocation.bound / allocation.cost
                                     : b.forecast.divergence;
    return plan;
  }

  const SensitivityTable& table_;
  std::uint64_t budget_;
  std::vector<BitTriple> triples_;
  std::vector<std::uint64_t> bytes_;  // of an expert, by triple
  std::vector<UniformPack> uniform_;
};

}  // namespace

double predicted_divergence(const SensitivityTable& t, const std::vector<LayerExpertBits>& bits) {
  double sum = 0;
  for (std::size_t l = 0; l < bits.size(); ++l) {
    double error = 0;
    for (std::size_t e = 0; e < t.num_experts; ++e) {
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

std::uint64_t bytes_of_bits_per_weight(const SensitivityTable& table, double bits_per_weight) {
  return static_cast<std::uint64_t>(std::floor(bits_per_weight * weights_of(table) / 8));
}

}  // namespace moepack
