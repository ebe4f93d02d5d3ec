#include "convert/cli/cmd_plan.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "convert/cli/model_flags.h"
#include "convert/cli/number_range.h"
#include "convert/cli/plan_output.h"
#include "convert/cli/quantizer_flags.h"
#include "formats/base/limits.h"
#include "runtime/advice/compute_rates.h"
#include "runtime/hot_profile.h"
#include "runtime/store/io_choice.h"
#include "runtime/store/kept_records.h"

namespace moepack::cli {
namespace {

constexpr std::uint64_t kMostSequences = 4096;
constexpr double kMostGigabytesPerSecond = 10000;

struct PlanFlags {
  EngineFlags engine;
  std::uint64_t context = 0;
  std::uint32_t sequences = 1;
  std::string expert_format = "source";
  std::string resident_format = "source";
  std::uint32_t group_size = 64;
  double hit_percent = -1;
  std::vector<double> disk_gbs;  // many reads at once, one at a time; empty: measured
  bool json = false;
  GivenFlags given;
};

std::optional<std::uint64_t> free_space(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error) return std::nullopt;
  return space.available;
}

// A GPU that the user only thinks of cannot be opened; --vram-mb alone asks for one.
EngineFlags with_thought_of_device(EngineFlags flags) {
  if (flags.vram_mib != 0 && flags.backend == "auto" && !has_gpu()) flags.backend = "vulkan";
  return flags;
}

void measure_disk(const PlanFlags& flags, PlanReport& report) {
  if (!flags.disk_gbs.empty()) {
    report.disk = {.one = flags.disk_gbs.back() * 1e9, .many = flags.disk_gbs.front() * 1e9};
    return;
  }
  const DiskRequest request{
      .record_bytes = static_cast<std::uint64_t>(std::max(1.0, report.work.record_bytes)),
      .depth = std::max(1U, report.work.experts_per_token)};
  const PlanSource& source = report.source;
  const Result<DiskMeasurement> measured = source.file.empty()
                                               ? measure_directory(source.directory, request)
                                               : measure_file(source.file, request);
  if (!measured.is_ok()) {
    report.disk_unknown = measured.status().message();
    return;
  }
  report.disk_measured = measured.value();
  report.disk = measured.value().rates;
}

// 0, 50, 70 and 90 %, the share of the pack that the cache holds, and the rate that was asked for.
std::vector<double> hit_rates(const PlanFlags& flags, double cache_share) {
  std::vector<double> rates{0, 0.5, 0.7, 0.9, cache_share};
  if (flags.hit_percent >= 0) rates.push_back(flags.hit_percent / 100);
  std::sort(rates.begin(), rates.end());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  return rates;
}

Status predict(const PlanFlags& flags, const Kernels& kernels, PlanReport& report) {
  MOE_ASSIGN_OR_RETURN(
      report.compute,
      measure_compute_rates(report.source.dir, {.kernels = &kernels,
                                                .activations = report.options.activations,
                                                .threads = report.options.threads}));
  measure_disk(flags, report);
  const ReadAhead ahead{.experts = report.plan.lookahead};
  for (const double hit_rate : hit_rates(flags, report.cache_share)) {
    report.speed.push_back(
        predict_speed(report.work, *report.compute, report.disk, ahead, hit_rate));
  }
  return Status::ok();
}

// What is asked for of the readers and of the cache; of what is not converted yet, as far as that
// does not depend on the files.
Status check_reading(const PlanReport& report) {
  const StoreOptions& store = report.options.store;
  if (!store.pinned.empty()) {
    const ProfiledModel model = profiled_model(report.options, report.source.dir);
    MOE_RETURN_IF_ERROR(read_model_profile(store.pinned, model).status());
  }
  const bool is_asked = store.io != IoMode::kAuto || store.engine != IoEngine::kAuto;
  if (!is_asked) return Status::ok();
  return choose_io({.options = store,
                    .manifest = report.source.dir.pack,
                    .files = report.source.files,
                    .spare_bytes = {}})
      .status();
}

Result<PlanReport> make_report(const PlanFlags& flags) {
  MOE_RETURN_IF_ERROR(check_group_size(flags.given, flags.expert_format, flags.resident_format));
  PlanReport report;
  report.model = flags.engine.model;
  const EngineFlags engine = with_thought_of_device(flags.engine);
  const std::uint64_t context = flags.context != 0 ? flags.context : kDefaultContext;
  MOE_ASSIGN_OR_RETURN(report.options, engine_options(engine, context, flags.sequences));
  ConvertOptions convert;
  convert.source = flags.engine.model;
  convert.expert_format = qformat_from_name(flags.expert_format);  // or nullopt
  convert.resident_format = qformat_from_name(flags.resident_format);
  convert.group_size = flags.group_size;
  MOE_ASSIGN_OR_RETURN(report.source, open_plan_source(report.options, convert));
  if (!report.source.is_model) report.free_bytes = free_space(report.source.directory);
  MOE_ASSIGN_OR_RETURN(report.plan, plan_run(report.options, report.source.dir));
  MOE_RETURN_IF_ERROR(check_reading(report));
  report.advice = advise(report.plan, report.source.dir);
  const MemoryPlan& memory = report.plan.memory;
  if (memory.pack_bytes > 0) {
    report.cache_share =
        static_cast<double>(memory.cache_bytes) / static_cast<double>(memory.pack_bytes);
  }
  // Of a GPU nothing is predicted, and run does not ask for the processor's kernels either.
  const bool is_device = report.plan.chosen == Backend::kVulkan;
  MOE_ASSIGN_OR_RETURN(const Kernels* kernels,
                       backend_kernels(is_device ? Backend::kCpu : report.plan.chosen,
                                       is_device ? detect_cpu_level() : report.options.cpu_level));
  MOE_ASSIGN_OR_RETURN(report.work, token_work(report.source.dir, kernels->delta_form()));
  const bool is_predicted =
      report.advice.verdict != Verdict::kRefuse && !report.plan.use.has_value();
  if (is_predicted) MOE_RETURN_IF_ERROR(predict(flags, *kernels, report));
  return report;
}

// A refusal is an error with run's own message; the plan stands on stdout all the same.
Status run_plan(const PlanFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const PlanReport report, make_report(flags));
  if (flags.json) {
    print_json_line(plan_json(report));
  } else {
    print_plan(report);
  }
  std::cout << std::flush;
  if (report.plan.verdict.is_ok()) note_long_context(flags.context, report.source.dir.config);
  return report.plan.verdict;
}

void add_flags(CLI::App& command, PlanFlags& flags) {
  flags.engine.default_activations = kAnswerActivations;
  flags.engine.kv_cache_default = "bf16";
  add_engine_flags(command, flags.engine);
  command.get_option("MODEL")->description(
      "Model directory, checkpoint, GGUF file, or a directory with config.json and "
      "model.safetensors.index.json alone");
  command.add_option("-c,--ctx-size", flags.context, "Most tokens, prompt included; 0: 4096")
      ->check(whole_number(0, kMaxSequenceTokens))
      ->capture_default_str();
  command.add_option("--parallel", flags.sequences, "Sequences at the same time")
      ->check(whole_number(1, kMostSequences))
      ->capture_default_str();
  const auto formats = CLI::IsMember({"source", "f32", "bf16", "q2", "q3", "q4", "q5", "q6", "q8"});
  command
      .add_option("--expert-format", flags.expert_format,
                  "Of what is not converted yet: the format that experts would get")
      ->check(formats)
      ->capture_default_str();
  command
      .add_option("--resident", flags.resident_format,
                  "The same of all other matrices; routers get 8 bits or more")
      ->check(formats)
      ->capture_default_str();
  add_group_size(command, flags.group_size, "Inputs that share a scale, of q formats")
      ->capture_default_str();
  command
      .add_option("--hit-rate", flags.hit_percent,
                  "Predict for this share of cache hits too, in percent")
      ->check(real_number(0, 100));
  command
      .add_option("--disk-gbs", flags.disk_gbs,
                  "GB/s of the disk with many reads at once, and after a comma with one at a time; "
                  "without it measured")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->expected(1, 2)
      ->check(real_number(0.001, kMostGigabytesPerSecond));
  command.add_flag("--json", flags.json, "Print one JSON object on stdout");
}

}  // namespace

void register_plan(CLI::App& app, Action& action) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command =
      app.add_subcommand("plan", "Say what running a model takes, and how fast it would be");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_action(*command, action, flags, run_plan);
}

}  // namespace moepack::cli
