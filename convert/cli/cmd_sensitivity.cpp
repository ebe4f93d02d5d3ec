#include "convert/cli/cmd_sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "convert/cli/bit_plan_output.h"
#include "convert/cli/kept_inputs.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "convert/cli/quantizer_flags.h"
#include "convert/quantize/bit_plan.h"
#include "convert/quantize/sensitivity.h"

namespace moepack::cli {
namespace {

namespace fs = std::filesystem;

struct SensitivityFlags {
  std::string model;
  std::string from;
  std::string calibration;
  std::string method = "gptq";
  std::vector<std::uint32_t> bits{2, 3, 4};
  std::uint32_t group_size = SensitivityOptions().group_size;
  std::uint32_t rows = SensitivityOptions().rows;
  std::string measurements;
  double target_bpw = 0;
  double target_gb = 0;
  std::string output;
  std::uint32_t threads = 0;
  bool explain = false;
  bool restart = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

bool has_target(const SensitivityFlags& flags) {
  return flags.target_bpw > 0 || flags.target_gb > 0;
}

std::uint64_t budget_of(const SensitivityFlags& flags, const SensitivityTable& table) {
  if (flags.target_gb > 0) return static_cast<std::uint64_t>(flags.target_gb * 1e9);
  return bytes_of_bits_per_weight(table, flags.target_bpw);
}

Result<SensitivityOptions> options_of(const SensitivityFlags& flags) {
  if (!flags.output.empty() && !has_target(flags)) {
    return invalid_argument("without a target there is no allocation to write",
                            "give --target-bpw or --target-gb, or leave out -o");
  }
  SensitivityOptions options;
  options.model = flags.model;
  options.from = flags.from;
  options.calibration = flags.calibration;
  options.method = *quant_method_from_name(flags.method);
  options.bits = flags.bits;
  options.group_size = flags.group_size;
  options.rows = flags.rows;
  options.measurements = flags.measurements;
  options.threads = flags.threads;
  options.restart = flags.restart;
  options.check = [flags](const SensitivityTable& head) -> Status {
    if (!has_target(flags)) return Status::ok();
    return check_budget(head, budget_of(flags, head));
  };
  return options;
}

// Such a target in bytes fits 64 bits; NaN passes none of the library's own checks of a range.
CLI::Validator target_number(double most) {
  return CLI::Validator(
      [most](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && value <= most;
        return good ? std::string() : text + " is no possible target";
      },
      "POSITIVE");
}

void print_json(const SensitivityReport& report, const std::optional<BitPlan>& plan,
                const SensitivityFlags& flags) {
  const SensitivityTable& t = report.table;
  nlohmann::ordered_json json{{"model", flags.model},
                              {"source", report.source},
                              {"calibration", flags.calibration},
                              {"measurements", flags.measurements},
                              {"dry_run", flags.dry_run},
                              {"method", t.method},
                              {"bits", t.bits},
                              {"group_size", t.group_size},
                              {"num_layers", t.num_layers},
                              {"num_experts", t.num_experts},
                              {"layers_resumed", report.layers_resumed},
                              {"memory_bytes", report.memory_bytes}};
  if (flags.dry_run) {
    json["estimated_seconds"] = report.estimated_seconds;
  } else {
    json["seconds"] = report.seconds;
  }
  if (plan.has_value()) {
    json["output"] = flags.output;
    json["allocation"] = bit_plan_json(*plan);
  }
  print_json_line(json);
}

void print_summary(const SensitivityReport& report, const std::optional<BitPlan>& plan,
                   const SensitivityFlags& flags) {
  const SensitivityTable& t = report.table;
  std::cerr << flags.model << ": " << t.num_layers << " layers x " << t.num_experts
            << " experts, weights of " << report.source << "\n";
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
  if (report.layers_resumed > 0) {
    std::cerr << report.layers_resumed << " layers were measured before (" << flags.measurements
              << ")\n";
  }
  if (flags.dry_run) {
    std::cerr << "memory: at most " << format_bytes(report.memory_bytes) << "\n";
    if (report.estimated_seconds > 0) {
      std::cerr << "time: about " << format_duration(report.estimated_seconds)
                << ", told by measuring one expert\n";
    }
    return;
  }
  std::cerr << flags.measurements << ": measured in " << format_duration(report.seconds) << "\n";
  if (plan.has_value()) print_bit_plan(*plan, flags.output);
}

Result<SensitivityReport> measure(const SensitivityFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const SensitivityOptions options, options_of(flags));
  if (flags.dry_run) return plan_sensitivity(options);
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return measure_sensitivity(options, line.callback());
}

Result<std::optional<BitPlan>> allocate(const SensitivityReport& report,
                                        const SensitivityFlags& flags) {
  if (!has_target(flags) || !report.table.is_finished()) return std::optional<BitPlan>();
  MOE_ASSIGN_OR_RETURN(BitPlan plan, plan_bits(report.table, budget_of(flags, report.table)));
  if (!flags.output.empty() && !flags.dry_run) {
    MOE_RETURN_IF_ERROR(write_output(flags.output, expert_bits_text(plan.bits)));
  }
  return std::optional<BitPlan>(std::move(plan));
}

// Neither result may replace the other, or what is read.
Status check_replaces_nothing(const SensitivityFlags& flags) {
  const std::array<fs::path, 3> inputs{flags.model, flags.from, flags.calibration};
  MOE_RETURN_IF_ERROR(check_keeps_inputs("-o", flags.output, inputs));
  MOE_RETURN_IF_ERROR(check_keeps_inputs("--measurements", flags.measurements, inputs));
  if (flags.output.empty() || !is_same_place(flags.output, flags.measurements)) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = flags.output},
                    "-o and the measurements name the same file", "name another file with -o");
}

// Finds, before any work, the errors that would otherwise come after all of it.
Status check_paths(const SensitivityFlags& flags) {
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  if (flags.output == kStdoutName && (flags.json || flags.explain)) {
    return invalid_argument("the chosen widths and --json or --explain cannot both go to stdout",
                            "name a file");
  }
  MOE_RETURN_IF_ERROR(check_replaces_nothing(flags));
  if (!flags.output.empty()) MOE_RETURN_IF_ERROR(Output::open(flags.output).status());
  const Status writable = check_named_file("--measurements", flags.measurements);
  // Measurements that are whole are only read, also where nothing can be written.
  std::error_code ignored;
  const bool may_be_whole =
      writable.code() == StatusCode::kIo && fs::is_regular_file(flags.measurements, ignored);
  return may_be_whole ? Status::ok() : writable;
}

int run(SensitivityFlags flags) {
  if (flags.measurements.empty()) flags.measurements = flags.model + "/" + kSensitivityName;
  if (const Status status = check_paths(flags); !status.is_ok()) return fail(status);
  const Result<SensitivityReport> report = measure(flags);
  if (!report.is_ok()) return fail(report.status());
  const Result<std::optional<BitPlan>> plan = allocate(report.value(), flags);
  if (!plan.is_ok()) return fail(plan.status());
  if (!flags.quiet) print_summary(report.value(), plan.value(), flags);
  if (flags.explain && report.value().table.is_finished()) {
    explain_sensitivity(report.value().table, plan.value());
  }
  if (flags.json) print_json(report.value(), plan.value(), flags);
  return kExitOk;
}

void add_what(CLI::App& command, SensitivityFlags& flags) {
  command.add_option("model,-m,--model", flags.model, "Model directory")->required();
  command
      .add_option("--calibration", flags.calibration,
                  "What moepack calibrate recorded of this model")
      ->required();
  add_from(command, flags.from);
  add_method(command, flags.method, "The quantizer to measure with, as for moepack quantize");
  command.add_option("--bits", flags.bits, "Widths to choose from, as in 2,3,4")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(known_widths())
      ->capture_default_str();
  add_group_size(command, flags.group_size, "Inputs that share a scale and a bias")
      ->capture_default_str();
  command.add_option("--rows", flags.rows, "Rows of each matrix to quantize for measuring; 0: all")
      ->check(whole_number(0, std::numeric_limits<std::uint32_t>::max()))
      ->capture_default_str();
  command.add_option("--measurements", flags.measurements,
                     "File to keep the measurements in, and to continue and take them from "
                     "(default: sensitivity.json in the model directory)");
}

void add_how(CLI::App& command, SensitivityFlags& flags) {
  CLI::Option* bpw = command
                         .add_option("--target-bpw", flags.target_bpw,
                                     "Choose widths: at most so many bits an expert weight, with "
                                     "scales and padding")
                         ->check(target_number(64));
  command
      .add_option("--target-gb", flags.target_gb,
                  "Choose widths: at most so many GB (1e9 bytes) of experts")
      ->check(target_number(1e9))
      ->excludes(bpw);
  command.add_option("-o,--output", flags.output,
                     "Write the chosen widths here, for moepack tier; -: stdout");
  command.add_flag("--explain", flags.explain,
                   "Print what each layer and width loses, and why experts got their bits");
  add_threads(command, flags.threads);
  command.add_flag("--restart", flags.restart, "Replace measurements of something else");
  command.add_flag("--dry-run", flags.dry_run,
                   "Check everything, print memory and an estimate of the time; write nothing");
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_sensitivity(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SensitivityFlags>();
  CLI::App* command = app.add_subcommand(
      "sensitivity", "Measure what experts lose at each width, and choose widths for a size");
  add_what(*command, *flags);
  add_how(*command, *flags);
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace moepack::cli
