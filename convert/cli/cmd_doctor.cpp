#include "convert/cli/cmd_doctor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "convert/cli/model_flags.h"
#include "convert/cli/progress.h"
#include "runtime/advice/compute_rates.h"
#include "runtime/advice/findings.h"
#include "runtime/advice/published_models.h"
#include "runtime/model/backend.h"
#include "runtime/run_plan.h"
#include "runtime/speed/processor_name.h"

namespace moepack::cli {
namespace {

// None where the system shows none: asking Vulkan loads every driver there is.
Result<std::vector<VulkanDeviceInfo>> gpus() {
  if (!may_have_gpu()) return std::vector<VulkanDeviceInfo>();
  return list_vulkan_devices();
}

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kContext = 4096;  // of the table
constexpr std::array<std::uint32_t, 2> kBits{4, 2};

struct DoctorFlags {
  std::string directory = ".";
  bool json = false;
};

struct ModelRow {
  const PublishedModel* model = nullptr;
  std::uint32_t bits = 0;
  PublishedFit fit;
};

struct DoctorReport {
  std::vector<Finding> findings;
  std::optional<DiskMeasurement> disk;
  std::array<ComputeRates, kBits.size()> compute;
  std::vector<ModelRow> models;
};

Status check_directory(const std::string& name) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(name, error);
  if (std::filesystem::is_directory(status)) return Status::ok();
  if (status.type() == std::filesystem::file_type::not_found) {
    return not_found(Where{.file = name}, "there is no such directory", "name one with --dir");
  }
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, "is no directory",
                    "name one with --dir");
}

void append(std::vector<Finding> more, std::vector<Finding>& all) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

// The rates of the model that most machines can run.
Status measure_compute(DoctorReport& report) {
  MOE_ASSIGN_OR_RETURN(const Kernels* kernels, cpu_kernels(detect_cpu_level()));
  for (std::size_t i = 0; i < kBits.size(); ++i) {
    const ModelDir sample = sample_of(published_models().front(), kBits[i]);
    MOE_ASSIGN_OR_RETURN(report.compute[i],
                         measure_compute_rates(sample, {.kernels = kernels,
                                                        .activations = kAnswerActivations,
                                                        .threads = thread_count(0)}));
  }
  return Status::ok();
}

void judge_models(const MemoryFacts& memory, const DiskFacts& disk, DoctorReport& report) {
  Machine machine;
  machine.available_bytes = static_cast<double>(memory.available_bytes.value_or(0));
  machine.free_bytes = static_cast<double>(disk.free_bytes.value_or(0));
  if (report.disk.has_value()) machine.disk = report.disk->rates;
  for (const PublishedModel& model : published_models()) {
    for (std::size_t i = 0; i < kBits.size(); ++i) {
      report.models.push_back(
          {.model = &model,
           .bits = kBits[i],
           .fit = published_fit(model, kBits[i], kContext, machine, report.compute[i])});
    }
  }
}

Result<DoctorReport> examine(const DoctorFlags& flags) {
  MOE_RETURN_IF_ERROR(check_directory(flags.directory));
  DoctorReport report;
  const DiskFacts disk = disk_facts(flags.directory);
  const MemoryFacts memory = memory_facts();
  std::string unmeasured;
  const Result<DiskMeasurement> measured = measure_directory(flags.directory, {}, true);
  if (measured.is_ok()) report.disk = measured.value();
  if (!measured.is_ok()) unmeasured = measured.status().message();
  MOE_RETURN_IF_ERROR(measure_compute(report));
  append(disk_findings(disk, printable(flags.directory, 4096), report.disk, unmeasured),
         report.findings);
  append(memory_findings(memory), report.findings);
  append(processor_findings(processor_facts(), processor_name(), cpu_level_name(detect_cpu_level()),
                            report.compute[0].memory),
         report.findings);
  append(gpu_findings(gpus()), report.findings);
  append(limit_findings(limit_facts()), report.findings);
  judge_models(memory, disk, report);
  return report;
}

void print_findings(const DoctorReport& report) {
  std::string area;
  for (const Finding& finding : report.findings) {
    if (finding.area != area) std::cout << finding.area << "\n";
    area = finding.area;
    std::array<char, 16> level{};
    std::snprintf(level.data(), level.size(), "  %-8s",
                  std::string(finding_level_name(finding.level)).c_str());
    std::cout << level.data() << finding.text;
    if (!finding.remedy.empty()) std::cout << "; " << finding.remedy;
    std::cout << "\n";
  }
}

std::string speed_text(double tokens_per_second) {
  if (tokens_per_second <= 0) return "unknown";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), tokens_per_second < 10 ? "%.2f" : "%.1f",
                tokens_per_second);
  return text.data();
}

std::string bytes_text(double bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

std::string fit_text(const ModelRow& row) {
  std::string text;
  if (!row.fit.fits_memory) {
    text = "no: " + bytes_text(row.fit.size.floor_bytes) + " of memory at least";
  }
  if (!row.fit.fits_disk) {
    text += text.empty() ? "no: " : ", ";
    text += "more disk space";
  }
  if (text.empty()) text = "yes";
  return row.model->is_run_here ? text : text + " (its family is not run yet)";
}

void print_models(const DoctorReport& report) {
  std::cout << "\npublished models, -c " << kContext
            << ", experts in 4 or 2 bits and the rest in 4; experts used evenly, and all from the "
               "disk:\n";
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "  %-18s %4s %9s %9s %7s %9s %7s  %s\n", "model", "bits",
                "disk", "a token", "cached", "tokens/s", "cold", "fits");
  std::cout << text.data();
  for (const ModelRow& row : report.models) {
    const PublishedSize& size = row.fit.size;
    const bool fits = row.fit.fits_memory;
    std::array<char, 16> cached{};
    std::snprintf(cached.data(), cached.size(), "%.0f %%", 100 * row.fit.cache_share);
    std::snprintf(text.data(), text.size(), "  %-18s %4u %9s %9s %7s %9s %7s  ",
                  std::string(row.model->name).c_str(), row.bits,
                  bytes_text(size.pack_bytes + size.resident_bytes).c_str(),
                  bytes_text(row.fit.cold.missed_bytes).c_str(), fits ? cached.data() : "-",
                  fits ? speed_text(row.fit.usual.tokens_per_second).c_str() : "-",
                  fits ? speed_text(row.fit.cold.tokens_per_second).c_str() : "-");
    std::cout << text.data() << fit_text(row) << "\n";
  }
}

Json known(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json report_json(const DoctorReport& report) {
  Json json;
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings) {
    json["findings"].push_back({{"area", finding.area},
                                {"level", finding_level_name(finding.level)},
                                {"text", finding.text},
                                {"remedy", finding.remedy}});
  }
  json["disk"] = nullptr;
  if (report.disk.has_value()) {
    json["disk"] = {{"random_bytes_per_second", report.disk->rates.many},
                    {"one_by_one_bytes_per_second", report.disk->rates.one},
                    {"sequential_bytes_per_second", report.disk->sequential},
                    {"is_direct", report.disk->is_direct},
                    {"is_temporary_file", report.disk->is_temporary}};
  }
  json["memory_bytes_per_second"] = report.compute[0].memory;
  json["models"] = Json::array();
  for (const ModelRow& row : report.models) {
    json["models"].push_back({{"name", row.model->name},
                              {"bits", row.bits},
                              {"pack_bytes", row.fit.size.pack_bytes},
                              {"resident_bytes", row.fit.size.resident_bytes},
                              {"least_memory_bytes", row.fit.size.floor_bytes},
                              {"token_bytes", row.fit.cold.missed_bytes},
                              {"fits_memory", row.fit.fits_memory},
                              {"fits_disk", row.fit.fits_disk},
                              {"is_run_here", row.model->is_run_here},
                              {"cache_share", row.fit.cache_share},
                              {"tokens_per_second", known(row.fit.usual.tokens_per_second)},
                              {"cold_tokens_per_second", known(row.fit.cold.tokens_per_second)}});
  }
  return json;
}

Status run_doctor(const DoctorFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const DoctorReport report, examine(flags));
  if (flags.json) {
    print_json_line(report_json(report));
    return Status::ok();
  }
  print_findings(report);
  print_models(report);
  return Status::ok();
}

}  // namespace

void register_doctor(CLI::App& app, Action& action) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command =
      app.add_subcommand("doctor", "Measure this machine, and say which models it can run");
  command->add_option("--dir", flags->directory, "Directory on the disk where models lie")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object on stdout");
  set_action(*command, action, flags, run_doctor);
}

}  // namespace moepack::cli
