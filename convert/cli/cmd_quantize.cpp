#include "convert/cli/cmd_quantize.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/free_space_text.h"
#include "convert/cli/layer_list.h"
#include "convert/cli/model_path.h"
#include "convert/cli/progress.h"
#include "convert/cli/quantizer_flags.h"
#include "convert/cli/row_order_flag.h"
#include "convert/quantize/quantize.h"

namespace moepack::cli {
namespace {

struct QuantizeFlags {
  std::string model;
  std::string from;
  std::string method = "gptq";
  std::uint32_t bits = 0;
  std::uint32_t gate_up_bits = 0;
  std::uint32_t down_bits = 0;
  std::string layer_bits;
  std::uint32_t group_size = 64;
  std::string row_order = "rows";
  std::string calibration;
  std::string name;
  std::uint32_t threads = 0;
  std::string layers = "all";
  bool restart = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

Status layer_bits_error(const std::string& text) {
  return invalid_argument("--layer-bits " + printable(text) + " is no list of layers and bits",
                          "write it as in 0-1=4,47=3");
}

// Parses lists like "0-1=4,47=3".
Result<std::vector<LayerBits>> parse_layer_bits(const std::string& text) {
  std::vector<LayerBits> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const std::size_t equals = item.find('=');
    std::uint32_t bits = 0;
    if (equals == std::string::npos || item.substr(0, equals) == "all") {
      return layer_bits_error(text);
    }
    const char* last = item.data() + item.size();
    const auto parsed = std::from_chars(item.data() + equals + 1, last, bits);
    const auto layers = parse_layers(item.substr(0, equals));
    if (parsed.ec != std::errc() || parsed.ptr != last || !layers.is_ok()) {
      return layer_bits_error(text);
    }
    for (std::uint32_t layer : layers.value()) {
      const auto same_layer = [&](const LayerBits& other) { return other.layer == layer; };
      const auto before = std::find_if(out.begin(), out.end(), same_layer);
      if (before != out.end() && before->bits != bits) {
        return invalid_argument("--layer-bits " + printable(text) + " gives layer " +
                                    std::to_string(layer) + " two widths",
                                "name every layer once");
      }
      out.push_back({.layer = layer, .bits = bits});
    }
    at = end + 1;
    if (at == text.size()) return layer_bits_error(text);
  }
  return out;
}

Result<QuantizeOptions> options_of(const QuantizeFlags& flags) {
  QuantizeOptions options;
  options.model = flags.model;
  options.from = flags.from;
  options.method = *quant_method_from_name(flags.method);
  options.gate_up_bits = flags.gate_up_bits != 0 ? flags.gate_up_bits : flags.bits;
  options.down_bits = flags.down_bits != 0 ? flags.down_bits : flags.bits;
  if (flags.bits != 0 && flags.gate_up_bits != 0 && flags.down_bits != 0) {
    return invalid_argument("--bits has no matrix left to apply to",
                            "leave it out, or --gate-up-bits or --down-bits");
  }
  if (options.gate_up_bits == 0 || options.down_bits == 0) {
    return invalid_argument(
        "no width was given for some of the matrices",
        "give --bits, or both --gate-up-bits and --down-bits; --layer-bits says what differs");
  }
  MOE_ASSIGN_OR_RETURN(options.layer_bits, parse_layer_bits(flags.layer_bits));
  options.group_size = flags.group_size;
  if (!flags.calibration.empty()) options.calibration = flags.calibration;
  options.name = flags.name;
  options.row_order = row_order_of(flags.row_order);
  options.threads = flags.threads;
  MOE_ASSIGN_OR_RETURN(options.layers, parse_layers(flags.layers));
  options.restart = flags.restart;
  return options;
}

nlohmann::ordered_json errors_json(const QualitySummary& quality) {
  nlohmann::ordered_json out;
  for (Projection p : kAllProjections) {
    const MeanQuality& mean = quality.projections[static_cast<std::size_t>(p)];
    if (mean.matrices == 0) continue;
    out[std::string(projection_name(p))] = {{"mean_before", mean.before},
                                            {"mean_after", mean.after}};
  }
  return out;
}

// The numbers of matrices by method, also of those methods that made none.
nlohmann::ordered_json methods_json(const QuantizeReport& report) {
  nlohmann::ordered_json out;
  for (const std::string& method : report.ledger.methods) out[method] = 0;
  for (const MethodCount& count : report.quality.methods) out[count.method] = count.projections;
  return out;
}

void print_json(const QuantizeReport& report, const QuantizeFlags& flags) {
  nlohmann::ordered_json json{{"model", flags.model},
                              {"pack", report.pack},
                              {"dry_run", flags.dry_run},
                              {"method", flags.method},
                              {"source", report.source},
                              {"calibration", report.calibration},
                              {"formats", report.formats},
                              {"bits_per_weight", report.bits_per_weight},
                              {"num_layers", report.num_layers},
                              {"num_experts", report.num_experts},
                              {"expert_size", report.expert_size},
                              {"pack_bytes", report.pack_bytes},
                              {"needed_bytes", report.needed_bytes},
                              {"free_bytes", free_space_json(report.free_bytes)},
                              {"memory_bytes", report.memory_bytes},
                              {"threads", report.threads},
                              {"notes", report.notes},
                              {"starved_experts", report.starved}};
  if (flags.dry_run) {
    json["estimated_seconds"] = report.estimated_seconds;
  } else {
    json["finished"] = report.finished;
    json["layers_resumed"] = report.layers_resumed;
    json["layers_left"] = report.layers_left;
    json["error"] = quant_error_name(report.ledger.error);
    json["errors"] = errors_json(report.quality);
    json["matrices_by_method"] = methods_json(report);
    json["seconds"] = report.seconds;
  }
  print_json_line(json);
}

void print_starved(const QuantizeReport& report) {
  constexpr std::size_t kShown = 8;
  if (report.starved.empty()) return;
  std::cerr << "experts with few calibration tokens: " << report.starved.size() << "\n";
  for (std::size_t i = 0; i < report.starved.size() && i < kShown; ++i) {
    std::cerr << "  " << report.starved[i] << "\n";
  }
  if (report.starved.size() > kShown) std::cerr << "  ... (all of them with --json)\n";
}

void print_plan(const QuantizeReport& report) {
  std::cerr
      << "would take " << format_bytes(report.pack_bytes) << " of disk, "
      << free_space_text(report.free_bytes) << " are free; and up to "
      << format_bytes(report.memory_bytes) << " of memory with " << report.threads
      << " threads\ntime: about " << format_duration(report.estimated_seconds)
      << ", told by quantizing one expert of random numbers; reading and writing come on top\n";
}

void print_outcome(const QuantizeReport& report) {
  if (report.layers_resumed > 0) {
    std::cerr << "continued an interrupted quantization: " << report.layers_resumed
              << " layers were finished\n";
  }
  std::cerr << "mean relative " << quant_error_name(report.ledger.error)
            << " error, plain rounding -> this pack:";
  for (Projection p : kAllProjections) {
    const MeanQuality& mean = report.quality.projections[static_cast<std::size_t>(p)];
    if (mean.matrices == 0) continue;
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), " %.4f -> %.4f", mean.before, mean.after);
    std::cerr << (p == Projection::kGate ? " " : ", ") << projection_name(p) << text.data();
  }
  std::cerr << "\nmatrices by method:";
  for (const MethodCount& count : report.quality.methods) {
    std::cerr << " " << count.method << " " << count.projections;
  }
  std::cerr << "\n" << report.pack << ": ";
  if (report.finished) {
    std::cerr << format_bytes(report.pack_bytes) << " in " << format_duration(report.seconds)
              << "\n";
  } else {
    std::cerr << report.layers_left << " layers are left; run the same command without --layers\n";
  }
}

void print_summary(const QuantizeReport& report, const QuantizeFlags& flags) {
  std::array<char, 32> bits{};
  std::snprintf(bits.data(), bits.size(), "%.3f", report.bits_per_weight);
  std::cerr << "source: " << report.source << "\n";
  if (!report.calibration.empty()) std::cerr << "calibration: " << report.calibration << "\n";
  std::cerr << report.num_layers << " layers x " << report.num_experts << " experts, "
            << flags.method << ", " << report.formats << ", " << bits.data()
            << " bits a weight: " << format_bytes(report.pack_bytes) << "\n";
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
  print_starved(report);
  if (flags.dry_run) {
    print_plan(report);
  } else {
    print_outcome(report);
  }
}

Result<QuantizeReport> run(const QuantizeFlags& flags) {
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  MOE_ASSIGN_OR_RETURN(const QuantizeOptions options, options_of(flags));
  if (flags.dry_run) return plan_quantization(options);
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return quantize_model(options, line.callback());
}

void add_what(CLI::App& command, QuantizeFlags& flags) {
  command.add_option("model,-m,--model", flags.model, "Model directory")->required();
  command.add_option("--name", flags.name, "Name of the new pack: packed_experts_NAME")->required();
  command.add_option("--from", flags.from,
                     "Where the weights come from: a checkpoint's directory or a pack of the model;"
                     " else the recorded checkpoint if it is found, else the pack with most bits");
  add_method(command, flags.method,
             "rtn: plain rounding; clip: the range shrunk; grid: both ends searched; gptq: "
             "errors made up for by later codes");
  command.add_option("--bits", flags.bits, "Bits of every code")->check(known_widths());
  command.add_option("--gate-up-bits", flags.gate_up_bits, "Bits of gate_proj and up_proj")
      ->check(known_widths());
  command.add_option("--down-bits", flags.down_bits, "Bits of down_proj")->check(known_widths());
  command.add_option("--layer-bits", flags.layer_bits,
                     "Layers with a width of their own, as in 0-1=4,47=3");
  add_group_size(command, flags.group_size, "Inputs that share a scale and a bias")
      ->capture_default_str();
  command.add_option("--calibration", flags.calibration,
                     "What moepack calibrate recorded; gptq needs it, grid is better with it");
}

void add_how(CLI::App& command, QuantizeFlags& flags) {
  add_row_order(command, flags.row_order);
  add_threads(command, flags.threads);
  add_layers(command, flags.layers, "Quantize");
  command.add_flag("--restart", flags.restart,
                   "Drop an interrupted quantization of this name with other options");
  command.add_flag("--dry-run", flags.dry_run,
                   "Check everything, print sizes and an estimate of the time; leave nothing");
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_quantize(CLI::App& app, Action& action) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command =
      app.add_subcommand("quantize", "Make an expert pack of 2 to 8 bits for a model");
  add_what(*command, *flags);
  add_how(*command, *flags);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
