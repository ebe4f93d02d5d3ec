#include "convert/cli/cmd_profile.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "convert/cli/given_flags.h"
#include "convert/cli/kept_inputs.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "convert/cli/token_input.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/calibration/calibration_profile.h"
#include "formats/calibration/expert_counts.h"
#include "formats/calibration/foreign_profile.h"
#include "formats/calibration/hot_experts.h"
#include "formats/model_dir.h"
#include "runtime/corpus/profile.h"

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

// Shares of a layer's uses that the summary tells the experts for.
constexpr std::array kShares{0.5, 0.8, 0.95};

struct ProfileFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string token_ids;
  std::vector<std::string> adds;
  std::string calibration;
  std::string output;
  std::string hot_experts;
  double coverage = 0;    // 0: not given
  std::uint32_t top = 0;  // 0: not given
  ExpertShape shape;
  std::uint32_t context = 512;
  std::uint64_t max_tokens = 0;
  std::uint64_t ram_mib = 128;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
  GivenFlags given;

  bool runs() const { return !texts.empty() || !token_ids.empty(); }
};

struct ProfileOutcome {
  ExpertProfile profile;
  std::optional<HotExperts> hot;
  std::optional<ProfileReport> run;
  std::vector<std::string> notes;  // about inputs, one line each
};

Status check_flags(const ProfileFlags& flags) {
  if (!flags.runs() && flags.adds.empty() && flags.calibration.empty()) {
    return invalid_argument("there is nothing to count",
                            "give -f TEXT, --token-ids FILE, --calibration CALIB or --add FILE");
  }
  if (flags.runs() && flags.model.model.empty()) {
    return invalid_argument("a text needs a model to run through", "name the model directory");
  }
  if (!flags.runs()) {
    MOE_RETURN_IF_ERROR(flags.given.check_idle(
        {"--ctx-size", "--max-tokens", "--ram-mb", "--threads", "--cpu", "--backend", "--overlay"},
        "without a text to run"));
  }
  if (flags.model.model.empty()) {
    MOE_RETURN_IF_ERROR(flags.given.check_idle({"--pack"}, "without a model"));
  }
  if (flags.output.empty() && flags.hot_experts.empty() && !flags.dry_run) {
    return invalid_argument("there is nothing to write", "give -o PROFILE or --hot-experts FILE");
  }
  if (!flags.hot_experts.empty() && flags.coverage == 0 && flags.top == 0) {
    return invalid_argument("--hot-experts needs --coverage SHARE or --top N");
  }
  if (!flags.output.empty() && !flags.hot_experts.empty() &&
      is_same_place(flags.output, flags.hot_experts)) {
    return invalid_argument("-o and --hot-experts name the same file");
  }
  if (flags.json && (flags.output == "-" || flags.hot_experts == "-")) {
    return invalid_argument("--json and a file on stdout do not go together");
  }
  return Status::ok();
}

// What is known about the model before anything is counted.
Result<ExpertProfile> known_model(const ProfileFlags& flags) {
  ExpertProfile known;
  known.shape = flags.shape;
  if (flags.model.model.empty()) return known;
  MOE_RETURN_IF_ERROR(check_model_path(flags.model.model));
  const std::filesystem::path path = flags.model.model;
  MOE_ASSIGN_OR_RETURN(const ModelDir model, open_model_dir(path, flags.model.pack));
  const ExpertShape shape{model.config.num_layers, model.config.num_experts};
  MOE_ASSIGN_OR_RETURN(known.shape, settle_shape(shape, flags.shape, path.string()));
  known.model = directory_name(path);
  known.source_fingerprint = model.pack.source.fingerprint;
  return known;
}

// Sums profiles and says which of them does not fit.
class Sum {
 public:
  explicit Sum(ExpertProfile known) : known_(std::move(known)) {}

  const ExpertShape& shape() const { return known_.shape; }

  Status add(const std::string& name, ExpertProfile profile) {
    const auto named = [&](const Status& status) {
      return make_error(status.code(), Where{.file = name}, status.message());
    };
    MOE_ASSIGN_OR_RETURN(known_.shape, settle_shape(profile.shape, known_.shape, name));
    const Status same = check_same_model(known_, profile);
    if (!same.is_ok()) return named(same);
    if (!sum_.has_value()) {
      sum_ = std::move(profile);
      return Status::ok();
    }
    auto sum = add_profiles(*sum_, profile);
    if (!sum.is_ok()) return named(sum.status());
    sum_ = std::move(sum).value();
    return Status::ok();
  }

  Status add_file(const std::string& file) {
    MOE_ASSIGN_OR_RETURN(ProfileInput input, read_profile_input(file, known_.shape));
    for (const std::string& note : input.notes) notes_.push_back(printable(file) + ": " + note);
    return add(file, std::move(input.profile));
  }

  // Whether `profile` could be added; before it is worth computing.
  Status check(const ExpertProfile& profile) const {
    return sum_.has_value() ? add_profiles(*sum_, profile).status()
                            : check_same_model(known_, profile);
  }

  const std::vector<std::string>& notes() const { return notes_; }

  ExpertProfile take() {
    ExpertProfile profile = std::move(*sum_);
    if (profile.model.empty()) {
      profile.model = known_.model;
      profile.source_fingerprint = known_.source_fingerprint;
    }
    return profile;
  }

 private:
  ExpertProfile known_;
  std::optional<ExpertProfile> sum_;
  std::vector<std::string> notes_;
};

Result<std::vector<std::vector<std::int32_t>>> read_texts(const ProfileFlags& flags) {
  if (flags.token_ids.empty()) return tokenize_files(flags.model.model, flags.texts);
  std::vector<std::vector<std::int32_t>> texts(1);
  MOE_ASSIGN_OR_RETURN(texts[0], read_token_ids(flags.token_ids));
  return texts;
}

Result<ProfileOptions> options_of(const ProfileFlags& flags) {
  ProfileOptions options;
  MOE_ASSIGN_OR_RETURN(static_cast<ModelSelection&>(options), select_model(flags.model));
  options.context = flags.context;
  options.max_tokens = flags.max_tokens;
  options.ram_bytes = flags.ram_mib << 20;
  return options;
}

// The texts through the model; a dry run stops before.
Result<ProfileReport> run_texts(const ProfileFlags& flags, const Sum& sum) {
  MOE_ASSIGN_OR_RETURN(const ProfileOptions options, options_of(flags));
  MOE_ASSIGN_OR_RETURN(const auto texts, read_texts(flags));
  MOE_ASSIGN_OR_RETURN(ProfileReport plan, plan_profile(options, texts));
  const Status fits = sum.check(plan.profile);
  if (!fits.is_ok()) return fits;
  if (flags.dry_run) return plan;
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return profile_experts(options, texts, [&line](const ProfileProgress& p) {
    line.update_tokens(p.tokens_done, p.tokens_total, p.layers_done, p.layers_total);
  });
}

Result<std::optional<HotExperts>> select_hot(const ProfileFlags& flags,
                                             const ExpertProfile& profile) {
  std::optional<HotExperts> hot;
  if (flags.coverage != 0) {
    MOE_ASSIGN_OR_RETURN(hot, select_hot_by_coverage(profile, flags.coverage));
  } else if (flags.top != 0) {
    MOE_ASSIGN_OR_RETURN(hot, select_hot_by_number(profile, flags.top));
  }
  return hot;
}

// An error that would come after all the work comes first.
Status check_outputs(const ProfileFlags& flags) {
  std::vector<std::filesystem::path> inputs(flags.texts.begin(), flags.texts.end());
  inputs.insert(inputs.end(), {flags.model.model, flags.token_ids, flags.calibration});
  // -o may name a profile that is added, so that counts add up in one file.
  MOE_RETURN_IF_ERROR(check_keeps_inputs("-o", flags.output, inputs));
  inputs.insert(inputs.end(), flags.adds.begin(), flags.adds.end());
  MOE_RETURN_IF_ERROR(check_keeps_inputs("--hot-experts", flags.hot_experts, inputs));
  for (const std::string& path : {flags.output, flags.hot_experts}) {
    if (!path.empty()) MOE_RETURN_IF_ERROR(Output::open(path).status());
  }
  return Status::ok();
}

Result<ProfileOutcome> run(const ProfileFlags& flags) {
  MOE_RETURN_IF_ERROR(check_flags(flags));
  MOE_RETURN_IF_ERROR(check_outputs(flags));
  MOE_ASSIGN_OR_RETURN(ExpertProfile known, known_model(flags));
  Sum sum(std::move(known));
  ProfileOutcome outcome;
  if (!flags.calibration.empty()) {
    MOE_ASSIGN_OR_RETURN(ExpertProfile profile, profile_of_calibration(flags.calibration));
    MOE_RETURN_IF_ERROR(sum.add(flags.calibration, std::move(profile)));
  }
  for (const std::string& file : flags.adds) MOE_RETURN_IF_ERROR(sum.add_file(file));
  if (flags.runs()) {
    MOE_ASSIGN_OR_RETURN(outcome.run, run_texts(flags, sum));
    MOE_RETURN_IF_ERROR(sum.add(flags.model.model, outcome.run->profile));
  }
  outcome.profile = sum.take();
  outcome.notes = sum.notes();
  MOE_ASSIGN_OR_RETURN(outcome.hot, select_hot(flags, outcome.profile));
  if (flags.dry_run) return outcome;
  if (!flags.hot_experts.empty()) {
    MOE_RETURN_IF_ERROR(write_output(flags.hot_experts, hot_experts_text(*outcome.hot)));
  }
  if (!flags.output.empty()) {
    MOE_RETURN_IF_ERROR(write_output(flags.output, expert_profile_text(outcome.profile)));
  }
  return outcome;
}

// ---- what is told about it ----

std::size_t unused_experts(const ProfileOutcome& outcome, std::uint32_t layer) {
  return outcome.profile.shape.num_experts - used_experts(outcome.profile.layers[layer]).size();
}

// As a layer without experts is.
bool is_unused(const LayerProfile& layer) { return used_experts(layer).empty(); }

void print_layers(const ProfileOutcome& outcome) {
  const ExpertProfile& p = outcome.profile;
  const auto share = [&](std::size_t experts) {
    std::array<char, 48> text;
    std::snprintf(text.data(), text.size(), " %5zu (%5.1f %%)", experts,
                  100.0 * static_cast<double>(experts) / p.shape.num_experts);
    return std::string(text.data());
  };
  std::cerr << "experts (share of the layer's) that take 50, 80 and 95 % of its uses; unused"
            << (outcome.hot.has_value() ? "; hot\n" : "\n");
  for (std::uint32_t l = 0; l < p.shape.num_layers; ++l) {
    std::array<char, 32> head;
    std::snprintf(head.data(), head.size(), "layer %3u:", l);
    std::cerr << head.data();
    if (is_unused(p.layers[l])) {
      std::cerr << " no uses\n";
      continue;
    }
    if (p.has_counts()) {
      for (const double s : kShares) std::cerr << share(experts_covering(p.layers[l], s).size());
    } else {
      std::cerr << " no counts;";
    }
    std::cerr << share(unused_experts(outcome, l));
    if (outcome.hot.has_value()) std::cerr << share(outcome.hot->layers[l].size());
    std::cerr << "\n";
  }
}

void print_run(const ProfileReport& run, const ProfileFlags& flags) {
  std::cerr << run.profile.tokens << " of " << run.text_tokens << " tokens in " << run.windows
            << " windows of " << flags.context << ", " << run.batches
            << (run.batches == 1 ? " batch, " : " batches, ") << format_bytes(run.memory_bytes)
            << " of memory, kernels " << run.kernels << "; " << (flags.dry_run ? "at most " : "")
            << format_bytes(run.read_bytes) << " of experts read";
  if (!flags.dry_run) std::cerr << " in " << format_duration(run.seconds);
  std::cerr << "\n";
}

void print_summary(const ProfileOutcome& outcome, const ProfileFlags& flags) {
  const ExpertProfile& p = outcome.profile;
  for (const std::string& note : outcome.notes) std::cerr << note << "\n";
  if (outcome.run.has_value()) print_run(*outcome.run, flags);
  if (flags.dry_run && outcome.run.has_value()) return;
  std::cerr << (p.model.empty() ? "unnamed model" : printable(p.model)) << ": "
            << to_string(p.shape);
  if (p.experts_per_token != 0) std::cerr << ", " << p.experts_per_token << " a token";
  if (p.tokens != 0) std::cerr << ", " << p.tokens << " tokens";
  std::cerr << "\n";
  print_layers(outcome);
  if (outcome.hot.has_value()) {
    const auto layers =
        p.shape.num_layers - std::count_if(p.layers.begin(), p.layers.end(), is_unused);
    std::cerr << outcome.hot->total_hot() << " of "
              << static_cast<std::uint64_t>(layers) * p.shape.num_experts << " experts are hot\n";
  }
}

Json layers_json(const ProfileOutcome& outcome) {
  Json layers = Json::array();
  for (std::uint32_t l = 0; l < outcome.profile.shape.num_layers; ++l) {
    const LayerProfile& layer = outcome.profile.layers[l];
    Json entry{{"layer", l}};
    if (outcome.profile.has_counts()) {
      entry["uses"] = layer_uses(layer);
      entry["experts_50"] = experts_covering(layer, kShares[0]).size();
      entry["experts_80"] = experts_covering(layer, kShares[1]).size();
      entry["experts_95"] = experts_covering(layer, kShares[2]).size();
    }
    entry["unused"] = unused_experts(outcome, l);
    if (outcome.hot.has_value()) entry["hot"] = outcome.hot->layers[l].size();
    layers.push_back(entry);
  }
  return layers;
}

void print_json(const ProfileOutcome& outcome, const ProfileFlags& flags) {
  const ExpertProfile& p = outcome.profile;
  Json json{{"model", p.model},
            {"output", flags.output},
            {"hot_experts", flags.hot_experts},
            {"dry_run", flags.dry_run},
            {"num_layers", p.shape.num_layers},
            {"num_experts", p.shape.num_experts},
            {"experts_per_token", p.experts_per_token},
            {"tokens", p.tokens},
            {"has_counts", p.has_counts()},
            {"has_weights", p.has_weights()},
            {"notes", outcome.notes}};
  if (outcome.run.has_value()) {
    const ProfileReport& run = *outcome.run;
    json["run"] = {{"text_tokens", run.text_tokens},   {"tokens", run.profile.tokens},
                   {"windows", run.windows},           {"context", flags.context},
                   {"batches", run.batches},           {"kernels", run.kernels},
                   {"memory_bytes", run.memory_bytes}, {"read_bytes", run.read_bytes}};
    if (!flags.dry_run) json["run"]["seconds"] = run.seconds;
  }
  if (outcome.hot.has_value()) json["total_hot"] = outcome.hot->total_hot();
  if (!flags.dry_run || !outcome.run.has_value()) json["layers"] = layers_json(outcome);
  print_json_line(json);
}

void add_sources(CLI::App& command, ProfileFlags& flags) {
  add_model_flags(command, flags.model);
  command.get_option("--model")->required(false)->description(
      "Model directory; needed to run a text, else to check and name what is added");
  CLI::Option* texts =
      command
          .add_option("-f,--file", flags.texts,
                      "Text to count with; given several times, each has windows of its own")
          ->allow_extra_args(false);  // what follows is the model
  command
      .add_option("--token-ids", flags.token_ids,
                  "Count with these ids: raw little-endian int32, or a JSON list")
      ->excludes(texts);
  command
      .add_option("--add", flags.adds,
                  "Add an earlier profile, or another engine's counts; several times")
      ->allow_extra_args(false);
  command.add_option("--calibration", flags.calibration,
                     "Add the routing that moepack calibrate recorded");
  command
      .add_option("--num-layers", flags.shape.num_layers,
                  "Layers of the model, where neither it nor a file says so")
      ->check(whole_number(1, 65536));
  command
      .add_option("--num-experts", flags.shape.num_experts,
                  "Experts of a layer, where neither the model nor a file says so")
      ->check(whole_number(1, 65536));
}

void add_flags(CLI::App& command, ProfileFlags& flags) {
  add_sources(command, flags);
  command.add_option("-o,--output", flags.output, "Profile to write; -: stdout");
  command.add_option("--hot-experts", flags.hot_experts,
                     "List of hot experts to write, as flash-moe's hot_experts.json; -: stdout");
  CLI::Option* coverage =
      command
          .add_option("--coverage", flags.coverage,
                      "Hot are the fewest experts that take this share of a layer's uses")
          ->check(real_number(1e-6, 1));
  command.add_option("--top", flags.top, "Hot are the N most used experts of a layer")
      ->check(whole_number(1, 65536))
      ->excludes(coverage);
  command
      .add_option("--max-tokens", flags.max_tokens,
                  "At most so many tokens, in windows spread over the texts; 0: all")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command
      .add_option("-c,--ctx-size", flags.context,
                  "Tokens of a window; each starts from a fresh state")
      ->check(whole_number(1, kMaxSequenceTokens))
      ->capture_default_str();
  command
      .add_option("--ram-mb", flags.ram_mib,
                  "Memory for the tokens of a batch in MiB; the experts are read once a batch")
      ->check(whole_number(1, kMaxMebibytes))
      ->capture_default_str();
  command.add_flag("--dry-run", flags.dry_run, "Check everything, print sizes; write nothing");
  command.add_flag("--json", flags.json, "Print one JSON object on stdout");
  command.add_flag("--quiet", flags.quiet, "No progress, notes and summary on stderr");
}

}  // namespace

void register_profile(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* command = app.add_subcommand("profile", "Count how often each expert is used");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
