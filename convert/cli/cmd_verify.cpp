#include "convert/cli/cmd_verify.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/progress.h"
#include "convert/cli/tokenizer_check.h"
#include "convert/verify/verify.h"

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyFlags {
  std::string model;
  std::string against;
  std::string pack;
  std::uint32_t threads = 0;
  bool json = false;
  bool quiet = false;
};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

Json difference_json(const Difference& d) {
  Json json{{"file", d.file}};
  if (d.layer.has_value()) json["layer"] = *d.layer;
  if (d.expert.has_value()) json["expert"] = *d.expert;
  if (!d.tensor.empty()) json["tensor"] = d.tensor;
  if (d.offset.has_value()) json["offset"] = *d.offset;
  json["what"] = d.what;
  if (!d.expected.empty()) json["expected"] = d.expected;
  if (!d.found.empty()) json["found"] = d.found;
  return json;
}

Json compared_json(const ComparedFormat& c) {
  Json json{{"part", c.part},     {"source_format", c.source_format}, {"format", c.format},
            {"copied", c.copied}, {"matrices", c.matrices},           {"bytes", c.bytes}};
  if (!c.copied) {
    json["relative_rms"] = c.relative_rms;
    json["largest_error"] = c.largest;
    json["worst_tensor"] = c.worst;
    json["worst_relative_rms"] = c.worst_relative_rms;
  }
  return json;
}

void print_json(const VerifyReport& report, const VerifyFlags& flags) {
  Json json{{"model", flags.model},
            {"ok", report.num_differences == 0},
            {"num_differences", report.num_differences},
            {"differences", Json::array()},
            {"packs", Json::array()}};
  for (const Difference& d : report.differences) json["differences"].push_back(difference_json(d));
  for (const VerifiedPack& p : report.packs) {
    json["packs"].push_back({{"name", p.name},
                             {"records", p.records},
                             {"bytes", p.bytes},
                             {"has_checksums", p.has_checksums},
                             {"compared", p.compared}});
  }
  json["overlays"] = Json::array();
  for (const VerifiedOverlay& o : report.overlays) {
    json["overlays"].push_back({{"name", o.name}, {"matrices", o.matrices}, {"bytes", o.bytes}});
  }
  json["resident_tensors"] = report.resident_tensors;
  json["resident_bytes"] = report.resident_bytes;
  if (report.prediction_tensors > 0) {
    json["prediction_tensors"] = report.prediction_tensors;
    json["prediction_bytes"] = report.prediction_bytes;
  }
  if (!flags.against.empty()) {
    json["against"] = flags.against;
    json["compared"] = Json::array();
    for (const ComparedFormat& c : report.compared) json["compared"].push_back(compared_json(c));
  }
  json["notes"] = report.notes;
  json["threads"] = report.threads;
  json["seconds"] = report.seconds;
  print_json_line(json);
}

void print_differences(const VerifyReport& report) {
  for (const Difference& d : report.differences) std::cout << difference_text(d) << "\n";
  const std::uint64_t more = report.num_differences - report.differences.size();
  if (more > 0) std::cout << "and " << more << " more differences\n";
}

void print_summary(const VerifyReport& report, const VerifyFlags& flags) {
  for (const VerifiedPack& p : report.packs) {
    std::cerr << "pack " << printable(p.name) << ": " << p.records << " records, "
              << format_bytes(p.bytes) << (p.has_checksums ? "" : ", no checksums") << "\n";
  }
  for (const VerifiedOverlay& o : report.overlays) {
    std::cerr << "overlay " << printable(o.name) << ": " << o.matrices
              << (o.matrices == 1 ? " matrix, " : " matrices, ") << format_bytes(o.bytes) << "\n";
  }
  if (report.kind == PathKind::kModel) {
    std::cerr << "resident tensors: " << report.resident_tensors << ", "
              << format_bytes(report.resident_bytes) << "\n";
  }
  if (report.prediction_tensors > 0) {
    std::cerr << "prediction tensors: " << report.prediction_tensors << ", "
              << format_bytes(report.prediction_bytes) << "\n";
  }
  for (const ComparedFormat& c : report.compared) {
    std::cerr << printable(c.part) << ", " << c.source_format << " to " << c.format << ": "
              << c.matrices << " matrices, " << format_bytes(c.bytes);
    if (c.copied) {
      std::cerr << ", compared byte for byte\n";
    } else {
      std::cerr << ", relative error " << number(c.relative_rms) << ", largest "
                << number(c.largest) << "; worst " << printable(c.worst) << " "
                << number(c.worst_relative_rms) << "\n";
    }
  }
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
  std::cerr << printable(flags.model, 4096) << ": ";
  if (report.num_differences == 0) {
    std::cerr << "no difference";
  } else {
    std::cerr << report.num_differences
              << (report.num_differences == 1 ? " difference" : " differences");
  }
  std::cerr << ", " << format_duration(report.seconds) << "\n";
}

Result<VerifyReport> run(const VerifyFlags& flags) {
  VerifyOptions options{.path = flags.model,
                        .against = std::nullopt,
                        .pack = flags.pack,
                        .threads = flags.threads,
                        .tokenizer = check_tokenizer};
  if (!flags.against.empty()) options.against = flags.against;
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return verify_model(options, line.callback());
}

}  // namespace

void register_verify(CLI::App& app, Action& action) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command =
      app.add_subcommand("verify", "Check every byte of a model directory or a pack");
  command
      ->add_option("-m,--model,MODEL", flags->model, "Model directory, or the directory of a pack")
      ->required();
  command->add_option("--against", flags->against,
                      "Compare every expert and resident tensor with this checkpoint");
  command->add_option("--pack", flags->pack, "Only this expert pack of the model; else all");
  add_threads(*command, flags->threads);
  add_report_flags(*command, flags->json, flags->quiet);
  command->callback([flags, &action] {
    action = [flags] {
      const Result<VerifyReport> report = run(*flags);
      if (!report.is_ok()) return fail(report.status());
      if (flags->json) {
        print_json(report.value(), *flags);
      } else {
        print_differences(report.value());
      }
      if (!flags->quiet) print_summary(report.value(), *flags);
      return report.value().num_differences == 0 ? kExitOk : kExitDifference;
    };
  });
}

}  // namespace moepack::cli
