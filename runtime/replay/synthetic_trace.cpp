#include "runtime/replay/synthetic_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/limits.h"
#include "formats/calibration/expert_profile.h"

namespace moepack {
namespace {

// Of an expert, before the most popular ones that are left are taken: what is rare enough takes
// for ever.
constexpr int kMostTries = 100;

struct Preset {
  std::string_view name;
  SyntheticTrace trace;
};

// Shapes of published models with experts of 4 bits in groups of 64. The exponents give what was
// measured of them (docs/cli.md): a quarter of the experts has 80 % of the uses, and a token
// shares a quarter of its experts with the last one.
const std::array<Preset, 4>& presets() {
  static const std::array<Preset, 4> all{{
      {"35b-a3b", {}},
      {"122b-a10b", {.layers = 48, .record_bytes = 5308416, .zipf = 1.15}},
      {"397b-a17b",
       {.layers = 60,
        .experts = 512,
        .experts_per_token = 10,
        .record_bytes = 7077888,
        .zipf = 1.1}},
      {"even", {.zipf = 0.5, .locality = 0.2}},
  }};
  return all;
}

bool parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most,
                 std::uint64_t& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && value >= least &&
         value <= most;
}

bool parse_real(std::string_view text, double most, double& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && value >= 0 &&
         value <= most;
}

bool parse_count(std::string_view text, std::uint32_t& value) {
  std::uint64_t whole = 0;
  if (!parse_whole(text, 1, kMaxModelExperts, whole)) return false;
  value = static_cast<std::uint32_t>(whole);
  return true;
}

// False where the key is not known or the value out of range.
bool set_key(SyntheticTrace& trace, std::string_view key, std::string_view value) {
  if (key == "layers") return parse_count(value, trace.layers);
  if (key == "experts") return parse_count(value, trace.experts);
  if (key == "k") return parse_count(value, trace.experts_per_token);
  if (key == "tokens") return parse_whole(value, 1, std::uint64_t{1} << 32, trace.tokens);
  if (key == "seed") return parse_whole(value, 0, ~std::uint64_t{0}, trace.seed);
  if (key == "zipf") return parse_real(value, 10, trace.zipf);
  if (key == "locality") return parse_real(value, 0.99, trace.locality);
  if (key == "drift") return parse_real(value, 1000, trace.drift);
  if (key != "record-kib" || !parse_whole(value, 1, std::uint64_t{1} << 24, trace.record_bytes)) {
    return false;
  }
  trace.record_bytes <<= 10;
  return true;
}

class SyntheticSource final : public TraceSource {
 public:
  explicit SyntheticSource(const SyntheticTrace& spec) : spec_(spec) {
    model_.name = "synthetic";
    model_.num_layers = spec.layers;
    model_.num_experts = spec.experts;
    model_.experts_per_token = spec.experts_per_token;
    model_.record_bytes = {spec.record_bytes};
    begin();
  }

  const TraceModel& model() const override { return model_; }

  Result<const TracePass*> next() override {
    if (made_ == spec_.tokens) return static_cast<const TracePass*>(nullptr);
    ++made_;
    for (Layer& layer : layers_) drift(layer);
    for (std::uint32_t l = 0; l < spec_.layers; ++l) {
      choose(layers_[l]);
      std::vector<TraceUse>& uses = pass_.layers[l].uses;
      uses.clear();
      for (const std::uint32_t expert : layers_[l].chosen) {
        uses.push_back({.expert = expert, .tokens = 1});
      }
      // As the engine asks for them.
      std::sort(uses.begin(), uses.end(),
                [](const TraceUse& a, const TraceUse& b) { return a.expert < b.expert; });
    }
    return static_cast<const TracePass*>(&pass_);
  }

  Status rewind() override {
    begin();
    return Status::ok();
  }

 private:
  struct Layer {
    std::vector<std::uint32_t> by_rank;  // expert ids, most popular first
    std::vector<std::uint32_t> last;     // the last token's
    std::vector<std::uint32_t> chosen;
    std::vector<std::uint64_t> chosen_at;  // by expert: the last token that chose it
    double drifted = 0;                    // exchanges that are due
  };

  void begin() {
    random_.seed(spec_.seed);
    made_ = 0;
    reach_.resize(spec_.experts);
    double sum = 0;
    for (std::uint32_t r = 0; r < spec_.experts; ++r) {
      reach_[r] = sum += std::pow(r + 1.0, -spec_.zipf);
    }
    layers_.assign(spec_.layers, {});
    for (Layer& layer : layers_) {
      layer.by_rank.resize(spec_.experts);
      std::iota(layer.by_rank.begin(), layer.by_rank.end(), 0U);
      for (std::uint32_t i = spec_.experts; i > 1; --i) {
        std::swap(layer.by_rank[i - 1], layer.by_rank[below(i)]);
      }
      layer.chosen_at.assign(spec_.experts, 0);
    }
    pass_.tokens = 1;
    pass_.layers.assign(spec_.layers, {});
    for (std::uint32_t l = 0; l < spec_.layers; ++l) pass_.layers[l].layer = l;
  }

  // 0 to 1, without 1.
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(uniform() * n); }

  // An exchange moves two experts.
  void drift(Layer& layer) {
    layer.drifted += spec_.drift * spec_.experts / 2000;
    for (; layer.drifted >= 1; --layer.drifted) {
      std::swap(layer.by_rank[below(spec_.experts)], layer.by_rank[below(spec_.experts)]);
    }
  }

  void choose(Layer& layer) {
    layer.last.swap(layer.chosen);
    layer.chosen.clear();
    for (int tries = 0; layer.chosen.size() < spec_.experts_per_token; ++tries) {
      if (tries == kMostTries * static_cast<int>(spec_.experts_per_token)) return fill(layer);
      const bool is_local = !layer.last.empty() && uniform() < spec_.locality;
      const std::uint32_t expert =
          is_local ? layer.last[below(static_cast<std::uint32_t>(layer.last.size()))]
                   : layer.by_rank[popular_rank()];
      if (std::exchange(layer.chosen_at[expert], made_) != made_) layer.chosen.push_back(expert);
    }
  }

  // The most popular experts that were not chosen yet.
  void fill(Layer& layer) const {
    for (const std::uint32_t expert : layer.by_rank) {
      if (layer.chosen.size() == spec_.experts_per_token) return;
      if (std::exchange(layer.chosen_at[expert], made_) != made_) layer.chosen.push_back(expert);
    }
  }

  std::size_t popular_rank() {
    const auto at = std::upper_bound(reach_.begin(), reach_.end(), uniform() * reach_.back());
    return std::min<std::size_t>(static_cast<std::size_t>(at - reach_.begin()), spec_.experts - 1);
  }

  SyntheticTrace spec_;
  TraceModel model_;
  std::mt19937_64 random_;
  std::uint64_t made_ = 0;     // passes
  std::vector<double> reach_;  // by rank: the sum of all weights up to it
  std::vector<Layer> layers_;
  TracePass pass_;
};

}  // namespace

Result<SyntheticTrace> parse_synthetic_trace(std::string_view text) {
  SyntheticTrace trace;
  for (bool is_first = true; !text.empty(); is_first = false) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      const auto preset =
          std::find_if(presets().begin(), presets().end(),
                       [&](const Preset& candidate) { return candidate.name == part; });
      if (is_first && preset != presets().end()) {
        trace = preset->trace;
        continue;
      }
    } else if (set_key(trace, part.substr(0, equals), part.substr(equals + 1))) {
      continue;
    }
    return invalid_argument(
        "synthetic routing cannot be " + printable(part, 64),
        "begin with 35b-a3b, 122b-a10b, 397b-a17b or even; keys are layers, experts, k, "
        "record-kib, tokens, zipf, locality, drift and seed");
  }
  const std::uint64_t all = std::uint64_t{trace.layers} * trace.experts;
  if (trace.experts_per_token <= trace.experts && all <= kMaxModelExperts) return trace;
  return invalid_argument("synthetic routing of " + std::to_string(trace.layers) + " layers of " +
                              std::to_string(trace.experts) + " experts, " +
                              std::to_string(trace.experts_per_token) + " a token, is of no model",
                          "a layer has at least k experts, all layers at most 131072");
}

std::unique_ptr<TraceSource> make_synthetic_trace(const SyntheticTrace& spec) {
  return std::make_unique<SyntheticSource>(spec);
}

}  // namespace moepack
