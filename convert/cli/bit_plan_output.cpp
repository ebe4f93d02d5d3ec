#include "convert/cli/bit_plan_output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>

#include "convert/cli/progress.h"

namespace moepack::cli {
namespace {

// An explanation names this many experts at either end.
constexpr std::size_t kNamed = 8;

template <typename... Args>
std::string formatted(const char* format, Args... args) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

std::string triple_text(const BitTriple& bits) {
  return std::to_string(bits[0]) + "/" + std::to_string(bits[1]) + "/" + std::to_string(bits[2]);
}

double mean_bits(const std::vector<std::uint8_t>& bits) {
  double sum = 0;
  for (const std::uint8_t width : bits) sum += width;
  return sum / static_cast<double>(bits.size());
}

// One expert and why it has its bits.
struct Ranked {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  BitTriple bits{};
  double share = 0;
  double loss = 0;  // KLD if it alone had the smallest widths
};

std::vector<Ranked> rank_experts(const SensitivityTable& t, const std::optional<BitPlan>& plan) {
  std::vector<Ranked> out;
  for (std::uint32_t l = 0; l < t.num_layers; ++l) {
    const LayerSensitivity& layer = t.layers[l];
    for (std::uint32_t e = 0; e < layer.experts(); ++e) {
      Ranked r{.layer = l, .expert = e, .bits = {}, .share = layer.share[e], .loss = 0};
      double error = 0;
      for (std::size_t p = 0; p < kProjections; ++p) {
        error += layer.error[p].front()[e];
        if (plan.has_value()) r.bits[p] = plan->bits.layers[l][p][e];
      }
      r.loss = divergence_of(layer.response, error, r.share);
      out.push_back(r);
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Ranked& a, const Ranked& b) { return a.loss > b.loss; });
  return out;
}

void print_expert(const Ranked& r, bool planned) {
  std::cout << formatted("  layer %3u expert %4u: used by %5.1f %% of the tokens, alone %.3g nats",
                         r.layer, r.expert, 100 * r.share, r.loss);
  if (planned) std::cout << "; bits " << triple_text(r.bits);
  std::cout << "\n";
}

void explain_layers(const SensitivityTable& t, const std::optional<BitPlan>& plan) {
  std::cout << "predicted KL divergence of each layer, all its experts in one width; nats";
  if (plan.has_value()) std::cout << "; mean bits chosen";
  std::cout << "\nlayer";
  for (const std::uint32_t bits : t.bits) std::cout << formatted("  %7u-bit", bits);
  if (plan.has_value()) std::cout << "     chosen    gate      up    down";
  std::cout << "\n";
  for (std::uint32_t l = 0; l < t.num_layers; ++l) {
    if (t.layers[l].experts() == 0) continue;
    std::cout << formatted("%5u", l);
    for (std::size_t k = 0; k < t.bits.size(); ++k) {
      double error = 0;
      for (std::size_t p = 0; p < kProjections; ++p) {
        for (const double e : t.layers[l].error[p][k]) error += e;
      }
      std::cout << formatted("  %11.5f", divergence_of(t.layers[l].response, error));
    }
    if (plan.has_value()) {
      const LayerExpertBits& bits = plan->bits.layers[l];
      std::cout << formatted("  %9.5f  %6.2f  %6.2f  %6.2f", plan->layer_divergence[l],
                             mean_bits(bits[0]), mean_bits(bits[1]), mean_bits(bits[2]));
    }
    std::cout << "\n";
  }
}

void explain_projections(const SensitivityTable& t) {
  std::cout << "share of the squared error, by projection and width:\n";
  for (std::size_t k = 0; k < t.bits.size(); ++k) {
    std::array<double, kProjections> sums{};
    for (const LayerSensitivity& layer : t.layers) {
      const double gain = layer.response.per_energy;
      for (std::size_t p = 0; p < kProjections; ++p) {
        for (const double e : layer.error[p][k]) sums[p] += gain * e;
      }
    }
    const double all = std::max(sums[0] + sums[1] + sums[2], 1e-300);
    std::cout << formatted("  %u bits: gate %.0f %%, up %.0f %%, down %.0f %%\n", t.bits[k],
                           100 * sums[0] / all, 100 * sums[1] / all, 100 * sums[2] / all);
  }
}

void explain_choice(const BitPlan& plan) {
  std::map<BitTriple, std::size_t> counts;
  for (const LayerExpertBits& layer : plan.bits.layers) {
    for (std::size_t e = 0; e < layer[0].size(); ++e) {
      ++counts[{layer[0][e], layer[1][e], layer[2][e]}];
    }
  }
  std::cout << "experts by bits of gate/up/down:\n";
  for (const auto& [bits, count] : counts) {
    std::cout << formatted("  %s: %zu\n", triple_text(bits).c_str(), count);
  }
  std::cout << "uniform packs, bits of gate/up/down:\n";
  for (const UniformPack& pack : plan.uniform) {
    std::cout << formatted("  %s: %s, predicted %.4g nats\n", triple_text(pack.bits).c_str(),
                           format_bytes(pack.bytes).c_str(), pack.divergence);
  }
}

}  // namespace

std::string gain_warning(const AllocationForecast& forecast) {
  if (!(forecast.uniform_divergence > 0) || forecast.gain() >= kWorthwhileGain) return "";
  return formatted(
      "the predicted gain over a uniform pack of equal size is %.1f %%: below 3 %% a uniform pack "
      "is the better choice",
      100 * forecast.gain());
}

std::string forecast_text(const AllocationForecast& f) {
  return formatted(
      "predicted KL divergence %.4g nats, uniform packs of this size %.4g (%.1f %% %s)",
      f.divergence, f.uniform_divergence, 100 * std::abs(f.gain()), f.gain() < 0 ? "more" : "less");
}

void print_bit_plan(const BitPlan& plan, const std::string& file) {
  const AllocationForecast& f = plan.bits.forecast;
  std::cerr << (file.empty() ? "allocation" : file) << ": " << format_bytes(f.pack_bytes) << " of "
            << format_bytes(plan.bits.target_bytes)
            << formatted(", %.4g bits a weight; ", f.bits_per_weight) << forecast_text(f) << "\n";
  if (plan.gap > 1e-6) {
    std::cerr << formatted("the last round's choice is within %.2g %% of its best one\n",
                           100 * plan.gap);
  }
  const std::string warning = gain_warning(f);
  if (!warning.empty()) std::cerr << "note: " << warning << "\n";
}

void explain_sensitivity(const SensitivityTable& table, const std::optional<BitPlan>& plan) {
  explain_layers(table, plan);
  explain_projections(table);
  const std::vector<Ranked> ranked = rank_experts(table, plan);
  const std::size_t count = std::min(kNamed, ranked.size() / 2);
  std::cout << "experts that lose most and least when they alone have the smallest widths:\n";
  for (std::size_t i = 0; i < count; ++i) print_expert(ranked[i], plan.has_value());
  std::cout << "  …\n";
  for (std::size_t i = ranked.size() - count; i < ranked.size(); ++i) {
    print_expert(ranked[i], plan.has_value());
  }
  if (plan.has_value()) explain_choice(*plan);
}

nlohmann::ordered_json bit_plan_json(const BitPlan& plan) {
  const AllocationForecast& f = plan.bits.forecast;
  nlohmann::ordered_json json{{"target_bytes", plan.bits.target_bytes},
                              {"pack_bytes", f.pack_bytes},
                              {"bits_per_weight", f.bits_per_weight},
                              {"predicted_divergence", f.divergence},
                              {"gap", plan.gap},
                              {"uniform_divergence", f.uniform_divergence},
                              {"predicted_gain", f.gain()}};
  for (std::size_t l = 0; l < plan.bits.layers.size(); ++l) {
    const LayerExpertBits& bits = plan.bits.layers[l];
    if (bits[0].empty()) {
      json["layers"].push_back({{"layer", l}, {"dense", true}});
      continue;
    }
    json["layers"].push_back({{"layer", l},
                              {"mean_gate_bits", mean_bits(bits[0])},
                              {"mean_up_bits", mean_bits(bits[1])},
                              {"mean_down_bits", mean_bits(bits[2])},
                              {"predicted_divergence", plan.layer_divergence[l]}});
  }
  for (const UniformPack& pack : plan.uniform) {
    json["uniform"].push_back({{"gate_bits", pack.bits[0]},
                               {"up_bits", pack.bits[1]},
                               {"down_bits", pack.bits[2]},
                               {"pack_bytes", pack.bytes},
                               {"predicted_divergence", pack.divergence}});
  }
  return json;
}

}  // namespace moepack::cli
