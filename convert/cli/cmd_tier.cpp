#include "convert/cli/cmd_tier.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "convert/cli/bit_plan_output.h"
#include "convert/cli/free_space_text.h"
#include "convert/cli/layer_list.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/progress.h"
#include "convert/cli/quantizer_flags.h"
#include "convert/cli/row_order_flag.h"
#include "convert/quantize/bit_plan.h"
#include "convert/quantize/quantize.h"
#include "convert/quantize/sensitivity.h"
#include "formats/base/paths.h"
#include "formats/calibration/foreign_profile.h"
#include "formats/calibration/hot_experts.h"
#include "formats/config/model_config.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/model_dir.h"
#include "formats/pack_directory.h"

namespace moepack::cli {
namespace {

namespace fs = std::filesystem;

struct TierFlags {
  std::string model;
  std::string name = "tiered";
  std::string allocation;
  std::string hot_experts;
  std::string profile;
  double coverage = 0.8;
  std::uint32_t hot_bits = 4;
  std::uint32_t cold_bits = 2;
  std::string measurements;
  std::string from;
  std::string method = "gptq";
  std::uint32_t group_size = 0;  // 0: the allocation's, else 64
  std::string row_order = "rows";
  std::string calibration;
  std::vector<std::string> reuse;
  std::uint32_t threads = 0;
  std::string layers = "all";
  bool restart = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

// The widths, and the list they come from where there is one.
struct Tiers {
  ExpertBits bits;
  std::vector<std::string> notes;
  std::string hot_text;  // hot_experts.json; "" with an allocation
};

Status check_flags(const TierFlags& flags) {
  const int sources = (flags.allocation.empty() ? 0 : 1) + (flags.hot_experts.empty() ? 0 : 1) +
                      (flags.profile.empty() ? 0 : 1);
  if (sources != 1) {
    return invalid_argument("one source of widths is needed",
                            "give one of --allocation, --hot-experts and --profile");
  }
  if (flags.allocation.empty() && flags.hot_bits <= flags.cold_bits) {
    return invalid_argument("hot experts would have no more bits than cold ones",
                            "give --hot-bits more than --cold-bits");
  }
  return Status::ok();
}

Result<Tiers> tiers_of_allocation(const TierFlags& flags) {
  Tiers tiers;
  MOE_ASSIGN_OR_RETURN(tiers.bits, read_expert_bits(flags.allocation));
  if (flags.group_size != 0 && flags.group_size != tiers.bits.group_size) {
    return invalid_argument("--group-size " + std::to_string(flags.group_size) +
                                " is not that of the allocation, " +
                                std::to_string(tiers.bits.group_size),
                            "leave it out, or run moepack sensitivity with it");
  }
  if (!tiers.bits.method.empty() && tiers.bits.method != flags.method) {
    tiers.notes.push_back("the allocation was measured with " + printable(tiers.bits.method) +
                          ", the pack is made with " + flags.method);
    tiers.bits.forecast = {};
  }
  return tiers;
}

// What any pack of the model says it was made from; 0: none says.
std::uint64_t model_fingerprint(const fs::path& model, const ModelConfig& config) {
  const auto packs = list_packs(model);
  if (!packs.is_ok()) return 0;
  for (const std::string& name : packs.value()) {
    const auto pack = read_pack_directory(model / name, pack_dimensions(config));
    if (pack.is_ok() && pack.value().source.fingerprint != 0) {
      return pack.value().source.fingerprint;
    }
  }
  return 0;
}

// Profiles of other models of the same shape are told by name or source; one that counts nothing
// says nothing.
Status check_profile(const TierFlags& flags, const ModelConfig& config,
                     const ExpertProfile& profile) {
  ExpertProfile known;
  known.model = directory_name(flags.model);
  known.source_fingerprint = model_fingerprint(flags.model, config);
  known.shape = {config.num_layers, config.num_experts};
  known.experts_per_token = config.experts_per_token;
  const Status same = check_same_model(known, profile);
  if (!same.is_ok()) return make_error(same.code(), Where{.file = flags.profile}, same.message());
  for (std::size_t l = 0; profile.has_counts() && l < profile.layers.size(); ++l) {
    if (!has_experts(config.layers[l]) || layer_uses(profile.layers[l]) > 0) continue;
    return make_error(StatusCode::kInvalidArgument, Where{.file = flags.profile},
                      "counts no use of any expert in layer " + std::to_string(l),
                      "profile a text with all layers");
  }
  return Status::ok();
}

Result<HotExperts> hot_of(const TierFlags& flags, const ModelConfig& config, Tiers& tiers) {
  const ExpertShape shape{config.num_layers, config.num_experts};
  if (!flags.hot_experts.empty()) return read_hot_experts(flags.hot_experts, shape);
  MOE_ASSIGN_OR_RETURN(ProfileInput input, read_profile_input(flags.profile, shape));
  for (const std::string& note : input.notes) tiers.notes.push_back(note);
  if (!(input.profile.shape == shape)) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = flags.profile},
                      "is of another model, with " + to_string(input.profile.shape) +
                          "; this one has " + to_string(shape),
                      "run moepack profile on this model");
  }
  MOE_RETURN_IF_ERROR(check_profile(flags, config, input.profile));
  return select_hot_by_coverage(input.profile, flags.coverage);
}

// The measurements that a forecast needs, where there are some.
Status forecast(const TierFlags& flags, const ModelConfig& config, Tiers& tiers) {
  const fs::path file = flags.measurements.empty() ? fs::path(flags.model) / kSensitivityName
                                                   : fs::path(flags.measurements);
  const auto table = read_sensitivity(file);
  if (!flags.measurements.empty() && !table.is_ok()) return table.status();
  ExpertBits wanted = tiers.bits;
  wanted.method = flags.method;
  wanted.source_fingerprint = model_fingerprint(flags.model, config);
  const bool is_ours = table.is_ok() && table.value().hidden_size == config.hidden_size &&
                       table.value().expert_width == config.expert_width;
  if (is_ours) tiers.bits.forecast = forecast_of(table.value(), wanted);
  if (tiers.bits.forecast.pack_bytes > 0) return Status::ok();
  tiers.notes.push_back(
      "what this gains over a uniform pack is not known: " + file.string() +
      (table.is_ok() ? " has not measured these widths of this model" : " cannot be read") +
      " (moepack sensitivity)");
  return Status::ok();
}

Result<Tiers> tiers_of_list(const TierFlags& flags) {
  Tiers tiers;
  MOE_ASSIGN_OR_RETURN(const ParsedConfig config,
                       read_model_config(fs::path(flags.model) / "config.json"));
  MOE_ASSIGN_OR_RETURN(const HotExperts hot, hot_of(flags, config.model, tiers));
  if (hot.heuristic) {
    tiers.notes.emplace_back("the list of hot experts was not made from any measurement");
  }
  tiers.bits = hot_and_cold_bits(hot, flags.hot_bits, flags.cold_bits,
                                 flags.group_size != 0 ? flags.group_size : 64);
  tiers.hot_text = hot_experts_text(hot);
  MOE_RETURN_IF_ERROR(forecast(flags, config.model, tiers));
  return tiers;
}

Result<QuantizeOptions> options_of(const TierFlags& flags, const Tiers& tiers) {
  QuantizeOptions options;
  options.model = flags.model;
  options.from = flags.from;
  options.method = *quant_method_from_name(flags.method);
  options.expert_bits = tiers.bits;
  options.hot_experts = tiers.hot_text;
  options.reuse = flags.reuse;
  options.group_size = tiers.bits.group_size;
  if (!flags.calibration.empty()) options.calibration = flags.calibration;
  options.name = flags.name;
  options.row_order = row_order_of(flags.row_order);
  options.threads = flags.threads;
  MOE_ASSIGN_OR_RETURN(options.layers, parse_layers(flags.layers));
  options.restart = flags.restart;
  return options;
}

struct TierOutcome {
  Tiers tiers;
  QuantizeReport report;
  bool has_tiered_manifest = false;
};

Result<TierOutcome> run(const TierFlags& flags) {
  MOE_RETURN_IF_ERROR(check_flags(flags));
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  TierOutcome outcome;
  MOE_ASSIGN_OR_RETURN(
      outcome.tiers, flags.allocation.empty() ? tiers_of_list(flags) : tiers_of_allocation(flags));
  MOE_ASSIGN_OR_RETURN(const QuantizeOptions options, options_of(flags, outcome.tiers));
  if (flags.dry_run) {
    MOE_ASSIGN_OR_RETURN(outcome.report, plan_quantization(options));
    return outcome;
  }
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  MOE_ASSIGN_OR_RETURN(outcome.report, quantize_model(options, line.callback()));
  if (!outcome.report.finished) return outcome;
  const fs::path pack = fs::path(flags.model) / outcome.report.pack;
  std::error_code ignored;
  outcome.has_tiered_manifest = fs::exists(pack / kTieredManifestName, ignored);
  return outcome;
}

void print_json(const TierOutcome& outcome, const TierFlags& flags) {
  const QuantizeReport& r = outcome.report;
  const AllocationForecast& f = outcome.tiers.bits.forecast;
  nlohmann::ordered_json notes = outcome.tiers.notes;
  for (const std::string& note : r.notes) notes.push_back(note);
  nlohmann::ordered_json json{{"model", flags.model},
                              {"pack", r.pack},
                              {"dry_run", flags.dry_run},
                              {"source", r.source},
                              {"calibration", flags.calibration},
                              {"method", flags.method},
                              {"formats", r.formats},
                              {"bits_per_weight", r.bits_per_weight},
                              {"num_layers", r.num_layers},
                              {"num_experts", r.num_experts},
                              {"pack_bytes", r.pack_bytes},
                              {"needed_bytes", r.needed_bytes},
                              {"free_bytes", free_space_json(r.free_bytes)},
                              {"memory_bytes", r.memory_bytes},
                              {"records_reused", r.records_reused},
                              {"notes", notes}};
  if (f.pack_bytes > 0) {
    json["predicted_divergence"] = f.divergence;
    json["uniform_divergence"] = f.uniform_divergence;
    json["predicted_gain"] = f.gain();
    json["worthwhile"] = f.gain() >= kWorthwhileGain;
  }
  if (flags.dry_run) {
    json["estimated_seconds"] = r.estimated_seconds;
  } else {
    json["finished"] = r.finished;
    json["layers_resumed"] = r.layers_resumed;
    json["layers_left"] = r.layers_left;
    json["tiered_manifest"] = outcome.has_tiered_manifest;
    json["seconds"] = r.seconds;
  }
  print_json_line(json);
}

void print_summary(const TierOutcome& outcome, const TierFlags& flags) {
  const QuantizeReport& r = outcome.report;
  const AllocationForecast& f = outcome.tiers.bits.forecast;
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%.4g bits a weight", r.bits_per_weight);
  std::cerr << r.pack << ": " << r.num_layers << " layers x " << r.num_experts << " experts, "
            << r.formats << ", " << text.data() << ": " << format_bytes(r.pack_bytes) << "\n"
            << r.records_reused << " of " << r.all_experts
            << " records are taken from other packs, " << r.all_experts - r.records_reused
            << " quantized from " << r.source << "\n";
  for (const std::string& note : outcome.tiers.notes) std::cerr << "note: " << note << "\n";
  for (const std::string& note : r.notes) std::cerr << "note: " << note << "\n";
  if (f.pack_bytes > 0) {
    std::cerr << forecast_text(f) << "\n";
    const std::string warning = gain_warning(f);
    if (!warning.empty()) std::cerr << "note: " << warning << "\n";
  }
  if (flags.dry_run) {
    std::cerr << "memory: at most " << format_bytes(r.memory_bytes) << "; time: about "
              << format_duration(r.estimated_seconds) << "\n";
  } else if (!r.finished) {
    std::cerr << r.layers_left << " layers are left for a later run\n";
  } else {
    std::cerr << "made in " << format_duration(r.seconds)
              << (outcome.has_tiered_manifest ? ", with tiered_manifest.json for flash-moe\n"
                                              : "\n");
  }
}

void add_what(CLI::App& command, TierFlags& flags) {
  command.add_option("model,-m,--model", flags.model, "Model directory")->required();
  command.add_option("--name", flags.name, "Name of the new pack: packed_experts_NAME")
      ->capture_default_str();
  CLI::Option* allocation =
      command.add_option("--allocation", flags.allocation,
                         "The widths of every matrix, as moepack sensitivity -o wrote them");
  command.add_option("--hot-experts", flags.hot_experts,
                     "A list of hot experts (hot_experts.json); all others are cold");
  command.add_option("--profile", flags.profile,
                     "Counts of expert use, as moepack profile reads them; hot is what --coverage "
                     "takes");
  command
      .add_option("--coverage", flags.coverage,
                  "Of each layer the fewest experts that take this share of its uses")
      ->check(real_number(1e-6, 1))
      ->excludes(allocation)
      ->capture_default_str();
  command.add_option("--hot-bits", flags.hot_bits, "Bits of hot experts")
      ->check(known_widths())
      ->excludes(allocation)
      ->capture_default_str();
  command.add_option("--cold-bits", flags.cold_bits, "Bits of cold experts")
      ->check(known_widths())
      ->excludes(allocation)
      ->capture_default_str();
  command.add_option("--measurements", flags.measurements,
                     "What moepack sensitivity measured, to predict the gain of a list (default: "
                     "sensitivity.json in the model directory)");
}

void add_how(CLI::App& command, TierFlags& flags) {
  add_from(command, flags.from);
  add_method(command, flags.method, "The quantizer, as for moepack quantize");
  add_group_size(command, flags.group_size,
                 "Inputs that share a scale and a bias (default: the allocation's, or 64)");
  command.add_option("--calibration", flags.calibration, "What moepack calibrate recorded");
  command
      .add_option("--reuse", flags.reuse,
                  "Take records from this pack of the model where widths match, whatever it was "
                  "made with; packs made with the same weights, calibration and method are used "
                  "anyhow")
      ->allow_extra_args(false);
  add_row_order(command, flags.row_order);
  add_threads(command, flags.threads);
  add_layers(command, flags.layers, "Make");
  command.add_flag("--restart", flags.restart,
                   "Drop an interrupted pack of this name with other options");
  command.add_flag("--dry-run", flags.dry_run,
                   "Check everything, print sizes, predictions and an estimate of the time");
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_tier(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TierFlags>();
  CLI::App* command =
      app.add_subcommand("tier", "Make an expert pack of mixed widths: by an allocation or a list");
  add_what(*command, *flags);
  add_how(*command, *flags);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
