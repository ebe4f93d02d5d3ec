#include "convert/cli/cmd_convert.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/free_space_text.h"
#include "convert/cli/layer_list.h"
#include "convert/cli/number_range.h"
#include "convert/cli/progress.h"
#include "convert/cli/quantizer_flags.h"
#include "convert/cli/row_order_flag.h"
#include "convert/cli/tokenizer_check.h"
#include "convert/pack/plan.h"
#include "convert/pack/reorder.h"

namespace moepack::cli {
namespace {

struct ConvertFlags {
  std::string source;
  std::string output;
  std::string expert_format = "source";
  std::string resident_format = "source";
  std::uint32_t group_size = 64;
  std::uint64_t page_size = kDefaultPageSize;
  std::string row_order = "rows";
  std::uint32_t threads = 0;
  std::string layers = "all";
  bool restart = false;
  bool reclaim = false;
  bool keep_prediction = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
  GivenFlags given;
};

Result<ConvertOptions> options_of(const ConvertFlags& flags) {
  MOE_ASSIGN_OR_RETURN(std::vector<std::uint32_t> layers, parse_layers(flags.layers));
  return ConvertOptions{.source = flags.source,
                        .output = flags.output,
                        .expert_format = qformat_from_name(flags.expert_format),  // or nullopt
                        .resident_format = qformat_from_name(flags.resident_format),
                        .group_size = flags.group_size,
                        .row_order = row_order_of(flags.row_order),
                        .page_size = flags.page_size,
                        .threads = flags.threads,
                        .layers = std::move(layers),
                        .restart = flags.restart,
                        .reclaim = flags.reclaim,
                        .keep_prediction = flags.keep_prediction,
                        .tokenizer = check_tokenizer};
}

double gigabytes_per_second(const ConvertReport& report) {
  return report.seconds > 0 ? static_cast<double>(report.read_bytes) / 1e9 / report.seconds : 0;
}

void print_json(const ConvertReport& report, const ConvertFlags& flags) {
  nlohmann::ordered_json json{{"source", report.source},
                              {"output", flags.output},
                              {"dry_run", flags.dry_run},
                              {"model_type", report.model_type},
                              {"num_layers", report.num_layers},
                              {"num_experts", report.num_experts},
                              {"expert_format", report.expert_format},
                              {"resident_format", report.resident_format},
                              {"page_size", report.page_size},
                              {"expert_size", report.expert_size},
                              {"expert_stride", report.expert_stride},
                              {"expert_bytes", report.expert_bytes},
                              {"resident_bytes", report.resident_bytes},
                              {"prediction_tensors", report.prediction_tensors},
                              {"prediction_bytes", report.prediction_bytes},
                              {"total_bytes", report.total_bytes},
                              {"source_bytes", report.source_bytes},
                              {"needed_bytes", report.needed_bytes},
                              {"free_bytes", free_space_json(report.free_bytes)},
                              {"skipped_tensors", report.skipped_tensors},
                              {"kept_tensors", report.kept_tensors},
                              {"absent_files", report.absent_files},
                              {"notes", report.notes},
                              {"threads", report.threads}};
  if (report.largest_expert != 0) {
    json["smallest_expert"] = report.smallest_expert;
    json["largest_expert"] = report.largest_expert;
  }
  if (flags.dry_run) {
    json["estimated_seconds"] = report.estimated_seconds;
  } else {
    json["finished"] = report.finished;
    json["layers_resumed"] = report.layers_resumed;
    json["layers_left"] = report.layers_left;
    json["not_finite_tensors"] = report.not_finite_tensors;
    json["removed_shards"] = report.removed_shards;
    json["kept_shards"] = report.kept_shards;
    json["read_bytes"] = report.read_bytes;
    json["seconds"] = report.seconds;
    json["gb_per_s"] = gigabytes_per_second(report);
  }
  print_json_line(json);
}

// One line: how many, and the first few names.
void print_names(const std::string& what, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  if (names.empty()) return;
  std::string text = what + ": " + std::to_string(names.size()) + " (";
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  std::cerr << text << (names.size() > kShown ? ", ...)" : ")") << "\n";
}

void print_plan(const ConvertReport& report, const ConvertFlags& flags) {
  std::cerr << flags.output << ": would take " << format_bytes(report.total_bytes);
  if (report.needed_bytes < report.total_bytes) {
    std::cerr << ", with --reclaim at most " << format_bytes(report.needed_bytes) << " more";
  }
  std::cerr << "; " << free_space_text(report.free_bytes) << " are free\n"
            << (report.is_pack ? "" : "time: ");
  if (report.is_pack) {
    // As fast as the disk.
  } else if (report.estimated_seconds > 0) {
    std::cerr << "about " << format_duration(report.estimated_seconds)
              << ", told by converting a few experts\n";
  } else {
    std::cerr << "unknown, there is no room to try it\n";
  }
  if (report.free_bytes.has_value() && report.needed_bytes > *report.free_bytes) {
    std::cerr << "note: that does not fit\n";
  }
}

void print_outcome(const ConvertReport& report, const ConvertFlags& flags) {
  if (report.layers_resumed > 0) {
    std::cerr << "continued an interrupted conversion: " << report.layers_resumed
              << " layers were finished\n";
  }
  print_names("tensors with NaN or infinite values, run stops where it meets them",
              report.not_finite_tensors);
  print_names("source shards removed", report.removed_shards);
  print_names("source shards kept, they hold skipped tensors", report.kept_shards);
  std::array<char, 64> speed{};
  std::snprintf(speed.data(), speed.size(), "%.1f s, %.2f GB/s", report.seconds,
                gigabytes_per_second(report));
  std::cerr << flags.output << ": ";
  if (report.finished) {
    std::cerr << format_bytes(report.total_bytes) << " in " << speed.data() << "\n";
  } else {
    std::cerr << report.layers_left << " layers are left; run the same command without --layers\n";
  }
}

void print_summary(const ConvertReport& report, const ConvertFlags& flags) {
  std::cerr << report.num_layers << " layers x " << report.num_experts << " experts, "
            << report.expert_format << ", ";
  if (report.largest_expert != 0) {
    std::cerr << report.smallest_expert << " to " << report.largest_expert << " bytes each";
  } else {
    std::cerr << report.expert_size << " bytes each";
    if (report.expert_stride != report.expert_size) std::cerr << " in " << report.expert_stride;
  }
  std::cerr << ": " << format_bytes(report.expert_bytes) << "\n";
  if (!report.is_pack) {
    std::cerr << "resident tensors, " << report.resident_format << ": "
              << format_bytes(report.resident_bytes) << "\n";
  }
  if (report.prediction_tensors > 0) {
    std::cerr << "tensors that predict further tokens: " << report.prediction_tensors << ", "
              << format_bytes(report.prediction_bytes) << "\n";
  }
  print_names("skipped tensors", report.skipped_tensors);
  print_names("tensors kept as they are, their inputs are no multiple of the group size",
              report.kept_tensors);
  print_names("absent in the source", report.absent_files);
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
  if (flags.dry_run) {
    print_plan(report, flags);
  } else {
    print_outcome(report, flags);
  }
}

Result<ConvertReport> run(const ConvertFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const ConvertOptions options, options_of(flags));
  MOE_RETURN_IF_ERROR(check_group_size(flags.given, flags.expert_format, flags.resident_format));
  MOE_RETURN_IF_ERROR(check_no_model_directory(options.source));
  const bool is_pack = is_pack_directory(options.source);
  if (flags.dry_run) return is_pack ? plan_reordering(options) : plan_conversion(options);
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return is_pack ? reorder_pack(options, line.callback())
                 : convert_checkpoint(options, line.callback());
}

void add_flags(CLI::App& command, ConvertFlags& flags) {
  command
      .add_option(
          "source", flags.source,
          "Checkpoint: a directory with config.json and safetensors, a HuggingFace cache, or a "
          "GGUF file (of a split one, any part); or a pack, of which a pack in another order of "
          "rows is made")
      ->required();
  command
      .add_option("-o,--output", flags.output,
                  "Model directory to write (of a pack: a pack): new, empty, or an interrupted "
                  "conversion to continue")
      ->required();
  command
      .add_option(
          "--expert-format", flags.expert_format,
          "Format of the experts; source: their bytes unchanged, or bf16 for what must be decoded")
      ->check(CLI::IsMember({"source", "f32", "bf16", "q2", "q3", "q4", "q5", "q6", "q8"}))
      ->capture_default_str();
  add_group_size(command, flags.group_size, "Inputs that share a scale, of q formats")
      ->capture_default_str();
  command
      .add_option(
          "--resident", flags.resident_format,
          "Format of all other matrices; norms stay as they are, routers get 8 bits or more")
      ->check(CLI::IsMember({"source", "f32", "bf16", "q2", "q3", "q4", "q5", "q6", "q8"}))
      ->capture_default_str();
  command
      .add_option("--page-size", flags.page_size,
                  "Records start at multiples of this many bytes; 1: no padding")
      ->check(whole_number(1, kMaxPageSize))
      ->capture_default_str();
  add_row_order(command, flags.row_order);
  add_threads(command, flags.threads);
  add_layers(command, flags.layers, "Convert");
  command.add_flag("--restart", flags.restart,
                   "Drop an interrupted conversion of another source or with other options");
  command.add_flag("--reclaim", flags.reclaim,
                   "Remove each source shard once all its tensors are packed and read back");
  command.add_flag("--keep-prediction", flags.keep_prediction,
                   "Keep the tensors that predict further tokens (MTP), byte for byte, in "
                   "prediction.bin; runs load nothing of them");
  command.add_flag("--dry-run", flags.dry_run,
                   "Check everything, print sizes and an estimate of the time; leave nothing");
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_convert(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand("convert", "Turn a checkpoint into a model directory");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
