#include "convert/cli/cmd_calibrate.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/free_space_text.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/number_range.h"
#include "convert/cli/progress.h"
#include "convert/cli/token_input.h"
#include "formats/base/limits.h"
#include "runtime/corpus/calibrate.h"

namespace moepack::cli {
namespace {

struct CalibrateFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string token_ids;
  std::string output;
  std::uint64_t max_tokens = 0;
  std::uint64_t probe_tokens = CalibrateOptions().probe_tokens;
  std::uint32_t context = 512;
  bool dry_run = false;
  bool restart = false;
  bool json = false;
  bool quiet = false;
};

// Tokens that chose an expert, of one layer.
struct LayerSpread {
  std::uint64_t min = 0;
  double median = 0;
  std::uint64_t max = 0;
};

// `samples`: of a layer with experts.
LayerSpread spread_of(std::vector<std::uint64_t> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  const auto middle = static_cast<double>(samples[(n - 1) / 2] + samples[n / 2]) / 2;
  return {samples.front(), middle, samples.back()};
}

struct StarvedExpert {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::uint64_t tokens = 0;
};

// By falling need.
std::vector<StarvedExpert> starved_experts(const CalibrationManifest& manifest) {
  std::vector<StarvedExpert> starved;
  for (std::uint32_t l = 0; l < manifest.layers.size(); ++l) {
    for (std::uint32_t e = 0; e < manifest.layers[l].samples.size(); ++e) {
      const std::uint64_t tokens = manifest.layers[l].samples[e];
      if (tokens < kStarvedTokens) starved.push_back({l, e, tokens});
    }
  }
  std::stable_sort(starved.begin(), starved.end(),
                   [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  return starved;
}

// Several texts are one after the other; special tokens in them are recognised.
Result<std::vector<std::int32_t>> read_tokens(const CalibrateFlags& flags) {
  if (!flags.token_ids.empty()) return read_token_ids(flags.token_ids);
  if (flags.texts.empty()) {
    return invalid_argument("there is nothing to calibrate with",
                            "give -f TEXT or --token-ids FILE");
  }
  MOE_ASSIGN_OR_RETURN(const auto texts, tokenize_files(flags.model.model, flags.texts));
  std::vector<std::int32_t> tokens;
  for (const auto& ids : texts) tokens.insert(tokens.end(), ids.begin(), ids.end());
  return tokens;
}

Result<CalibrateOptions> options_of(const CalibrateFlags& flags) {
  CalibrateOptions options;
  MOE_ASSIGN_OR_RETURN(static_cast<ModelSelection&>(options), select_model(flags.model));
  options.output = flags.output;
  options.context = flags.context;
  options.max_tokens = flags.max_tokens;
  options.probe_tokens = flags.probe_tokens;
  options.restart = flags.restart;
  return options;
}

void print_json(const CalibrateReport& report, const CalibrateFlags& flags) {
  const CalibrationManifest& m = report.manifest;
  nlohmann::ordered_json json{{"model", m.model},
                              {"output", flags.output},
                              {"dry_run", flags.dry_run},
                              {"text_tokens", report.text_tokens},
                              {"tokens", m.tokens},
                              {"windows", report.windows},
                              {"context", m.context},
                              {"num_layers", m.num_layers},
                              {"num_experts", m.num_experts},
                              {"experts_per_token", m.experts_per_token},
                              {"kernels", report.kernels},
                              {"layer_bytes", report.layer_bytes},
                              {"total_bytes", report.total_bytes},
                              {"needed_bytes", report.needed_bytes},
                              {"free_bytes", free_space_json(report.free_bytes)},
                              {"memory_bytes", report.memory_bytes},
                              {"available_memory_bytes", report.available_bytes},
                              {"layers_resumed", report.layers_resumed}};
  if (flags.dry_run) {
    json["estimated_seconds"] = report.estimated_seconds;
  } else {
    json["read_bytes"] = report.read_bytes;
    json["seconds"] = report.seconds;
    for (std::size_t l = 0; l < m.layers.size(); ++l) {
      if (!m.layers[l].has_experts()) {
        json["layers"].push_back({{"layer", l}, {"dense", true}});
        continue;
      }
      const LayerSpread spread = spread_of(m.layers[l].samples);
      json["layers"].push_back({{"layer", l},
                                {"size", m.layers[l].file_size},
                                {"min_tokens", spread.min},
                                {"median_tokens", spread.median},
                                {"max_tokens", spread.max}});
    }
    for (const DivergenceResponse& r : m.response) {
      json["divergence_response"].push_back({r.per_energy, r.per_amplitude});
    }
    json["starved_below"] = kStarvedTokens;
    json["starved"] = nlohmann::ordered_json::array();
    for (const StarvedExpert& s : starved_experts(m)) {
      json["starved"].push_back({{"layer", s.layer}, {"expert", s.expert}, {"tokens", s.tokens}});
    }
  }
  print_json_line(json);
}

void print_plan(const CalibrateReport& report, const CalibrateFlags& flags) {
  std::cerr << flags.output << ": would take about " << format_bytes(report.total_bytes) << ", "
            << format_bytes(report.layer_bytes) << " a layer before compression, and at most "
            << format_bytes(report.needed_bytes) << "; " << free_space_text(report.free_bytes)
            << " are free\nmemory: " << format_bytes(report.memory_bytes);
  if (report.available_bytes != 0) {
    std::cerr << " of " << format_bytes(report.available_bytes) << " that can be used";
  }
  if (report.layers_resumed > 0) {
    std::cerr << "\n" << report.layers_resumed << " layers are finished already";
  }
  if (report.estimated_seconds > 0) {
    std::cerr << "\ntime: about " << format_duration(report.estimated_seconds)
              << ", told by computing a few tokens and experts";
  }
  std::cerr << "\n";
}

void print_experts(const CalibrationManifest& manifest) {
  constexpr std::size_t kShown = 32;
  std::cerr << "tokens per expert, least / median / most:\n";
  for (std::size_t l = 0; l < manifest.layers.size(); ++l) {
    if (!manifest.layers[l].has_experts()) continue;
    const LayerSpread spread = spread_of(manifest.layers[l].samples);
    std::array<char, 96> line{};
    std::snprintf(line.data(), line.size(), "  layer %zu: %llu / %.0f / %llu\n", l,
                  static_cast<unsigned long long>(spread.min), spread.median,
                  static_cast<unsigned long long>(spread.max));
    std::cerr << line.data();
  }
  const std::vector<StarvedExpert> starved = starved_experts(manifest);
  if (starved.empty()) return;
  std::cerr << "starved experts, fewer than " << kStarvedTokens << " tokens: " << starved.size()
            << "\n";
  for (std::size_t i = 0; i < starved.size() && i < kShown; ++i) {
    std::cerr << "  layer " << starved[i].layer << " expert " << starved[i].expert << ": "
              << starved[i].tokens << " tokens\n";
  }
  if (starved.size() > kShown) {
    std::cerr << "  and " << starved.size() - kShown << " more (--json lists all)\n";
  }
}

void print_summary(const CalibrateReport& report, const CalibrateFlags& flags) {
  const CalibrationManifest& m = report.manifest;
  std::cerr << m.tokens << " of " << report.text_tokens << " tokens in " << report.windows
            << " windows, " << m.num_layers << " layers x " << m.num_experts << " experts, "
            << m.experts_per_token << " of them a token\n";
  if (flags.dry_run) {
    print_plan(report, flags);
    return;
  }
  if (report.layers_resumed > 0) {
    std::cerr << "continued an interrupted calibration: " << report.layers_resumed
              << " layers were finished\n";
  }
  print_experts(m);
  std::cerr << flags.output << ": " << format_bytes(report.total_bytes) << " in "
            << format_duration(report.seconds) << "\n";
}

Result<CalibrateReport> run(const CalibrateFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const CalibrateOptions options, options_of(flags));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> tokens, read_tokens(flags));
  if (flags.dry_run) return plan_calibration(options, tokens);
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return calibrate(options, tokens, [&line](const CalibrateProgress& p) {
    line.update_tokens(p.tokens_done, p.tokens_total, p.layers_done, p.layers_total,
                       p.is_response ? "response of layer" : "layer");
  });
}

void add_flags(CLI::App& command, CalibrateFlags& flags) {
  add_model_flags(command, flags.model);
  CLI::Option* texts = command
                           .add_option("-f,--file", flags.texts,
                                       "Text to calibrate with; may be given several times")
                           ->allow_extra_args(false);  // what follows is the model
  command
      .add_option("--token-ids", flags.token_ids,
                  "Calibrate with these ids: raw little-endian int32, or a JSON list")
      ->excludes(texts);
  command
      .add_option("-o,--output", flags.output,
                  "Directory to write: new, empty, or an interrupted calibration to continue")
      ->required();
  command
      .add_option("--max-tokens", flags.max_tokens,
                  "At most so many tokens, in windows spread over the text; 0: all")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command
      .add_option("-c,--ctx-size", flags.context,
                  "Tokens of a window; each starts from a fresh state")
      ->check(whole_number(1, kMaxSequenceTokens))
      ->capture_default_str();
  command
      .add_option("--probe-tokens", flags.probe_tokens,
                  "Measure with at most so many tokens how much an error in each layer changes the "
                  "predictions, for moepack sensitivity; 0: do not")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command.add_flag("--restart", flags.restart,
                   "Drop an interrupted calibration, of whatever it is");
  command.add_flag("--dry-run", flags.dry_run,
                   "Check everything, print sizes, memory and an estimate of the time");
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_calibrate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Record what the experts of every layer are given by a text");
  add_flags(*command, *flags);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
