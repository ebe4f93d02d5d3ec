#include "convert/cli/bench_output.h"

#include <array>
#include <cmath>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>

#include "convert/cli/bench_table.h"
#include "runtime/speed/sample_stats.h"
#include "runtime/store/cache_policy.h"

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string model_text(const Engine& engine) {
  return engine.config().model_type + " " + engine.model_size().expert_format;
}

// "2026-01-31T23:59:59Z".
std::string time_text(std::chrono::system_clock::time_point when) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::ostringstream out;
  out << std::put_time(&utc, "%Y-%m-%dT%H:%M:%SZ");
  return out.str();
}

// The rates of a result in GB = 1e9 bytes.
struct Rates {
  double tokens_per_second = 0;
  double deviation = 0;
  // Only of tests that generate alone: a prompt's tokens share what they read.
  std::optional<double> gb_per_token;
  std::optional<double> gb_per_second;
  std::optional<double> share;  // of the read rate
  // Of experts, over the whole time of the test: what a token misses, the rate, and its share of
  // the disk's. Only where not all experts fit.
  std::optional<double> disk_gb_per_token;
  std::optional<double> disk_gb_per_second;
  std::optional<double> disk_share;
};

void add_disk_rates(const BenchSubject& subject, const SpeedResult& result, Rates& rates) {
  if (!subject.disk_rate.has_value()) return;
  double seconds = 0;
  for (const double ns : result.samples_ns) seconds += ns / 1e9;
  const auto bytes = static_cast<double>(result.experts.bytes_read);
  const auto tokens = static_cast<double>(result.test.tokens() * result.samples_ns.size());
  rates.disk_gb_per_token = bytes / tokens / 1e9;
  rates.disk_gb_per_second = bytes / seconds / 1e9;
  if (*subject.disk_rate > 0) rates.disk_share = bytes / seconds / *subject.disk_rate;
}

Rates rates_of(const BenchSubject& subject, const SpeedResult& result) {
  Rates rates;
  const std::vector<double> samples = result.samples_ts();
  rates.tokens_per_second = sample_mean(samples);
  rates.deviation = sample_deviation(samples);
  add_disk_rates(subject, result, rates);
  if (result.token_bytes <= 0) return rates;
  const double bytes_per_second = result.token_bytes * rates.tokens_per_second;
  rates.gb_per_token = result.token_bytes / 1e9;
  rates.gb_per_second = bytes_per_second / 1e9;
  if (subject.read_rate > 0) rates.share = bytes_per_second / subject.read_rate;
  return rates;
}

// llama-bench's keys in its order.
Json llama_bench_json(const BenchSubject& subject, const SpeedResult& result) {
  const ModelSize& size = subject.engine->model_size();
  const KvEncoding kv_encoding = subject.engine->options().kv_encoding;
  const std::optional<DeviceUse>& device = subject.engine->device_use();
  const std::vector<double> rates = result.samples_ts();
  std::vector<std::int64_t> samples;
  for (const double ns : result.samples_ns) samples.push_back(std::llround(ns));
  return {{"build_commit", MOEPACK_VERSION},
          {"cpu_info", subject.processor},
          {"gpu_info", device.has_value() ? device->name + ", " + device->driver : ""},
          {"backends", device.has_value() ? "Vulkan" : "CPU"},
          {"model_filename", subject.model},
          {"model_type", model_text(*subject.engine)},
          {"model_size", size.bytes},
          {"model_n_params", size.parameters},
          {"n_batch", subject.chunk_tokens},
          {"n_ubatch", subject.chunk_tokens},
          {"n_threads", subject.threads},
          {"type_k", kv_encoding_name(kv_encoding)},
          {"type_v", kv_encoding_name(kv_encoding)},
          {"n_prompt", result.test.prompt},
          {"n_gen", result.test.generated},
          {"n_depth", result.test.depth},
          {"test_time", time_text(result.start)},
          {"avg_ns", std::llround(sample_mean(result.samples_ns))},
          {"stddev_ns", std::llround(sample_deviation(result.samples_ns))},
          {"avg_ts", sample_mean(rates)},
          {"stddev_ts", sample_deviation(rates)},
          {"samples_ns", samples},
          {"samples_ts", rates}};
}

Json to_json(const BenchSubject& subject, const SpeedResult& result) {
  const Rates rates = rates_of(subject, result);
  Json json = llama_bench_json(subject, result);
  json["kernels"] = subject.engine->kernels_name();
  json["activations"] = activation_type_name(subject.engine->options().activations);
  json["io"] = io_mode_name(subject.engine->io_choice().mode);
  json["io_engine"] = io_engine_name(subject.engine->io_choice().engine);
  json["hit_percent"] = 100 * result.experts.hit_rate();
  json["gb_per_token"] = or_null(rates.gb_per_token);
  json["gb_per_s"] = or_null(rates.gb_per_second);
  json["read_rate_gb_s"] = subject.read_rate / 1e9;
  json["share_of_read_rate"] = or_null(rates.share);
  const auto disk_rate = subject.disk_rate;
  json["disk_gb_per_token"] = or_null(rates.disk_gb_per_token);
  json["disk_gb_s"] = or_null(rates.disk_gb_per_second);
  json["disk_rate_gb_s"] = disk_rate.has_value() ? Json(*disk_rate / 1e9) : Json(nullptr);
  json["share_of_disk_rate"] = or_null(rates.disk_share);
  json["cache_policy"] = cache_policy_name(subject.engine->options().store.policy);
  json["cache_bytes"] = subject.engine->memory_plan().cache_bytes;
  if (subject.engine->options().car.is_on()) {
    json["routing_agreement"] = result.agreement.share();
  }
  if (const auto device = subject.engine->device_report(); device.has_value()) {
    json["lanes"] = lanes_json(device->lanes, subject.engine->lane_use());
  }
  if (subject.has_timing) {
    json["stages_ms_per_token"] =
        stages_json(result.stages, result.test.tokens() * result.samples_ns.size());
  }
  return json;
}

constexpr std::array<Column, 13> kColumns{{{"model", 30, true},
                                           {"size", 10},
                                           {"params", 10},
                                           {"backend", 10, true},
                                           {"threads", 7},
                                           {"test", 15},
                                           {"t/s", 20},
                                           {"hit %", 6},
                                           {"GB/token", 8},
                                           {"GB/s", 7},
                                           {"% of read rate", 14},
                                           {"disk GB/token", 13},
                                           {"% of disk rate", 14}}};
constexpr std::size_t kDiskColumns = 2;  // at the end

// Those that have anything to say.
std::span<const Column> columns_of(const BenchSubject& subject) {
  return std::span(kColumns).first(kColumns.size() -
                                   (subject.disk_rate.has_value() ? 0 : kDiskColumns));
}

void print_markdown_head(std::span<const Column> columns) {
  for (const Column& column : columns) {
    std::cout << "| " << (column.is_text ? std::left : std::right) << std::setw(column.width)
              << column.name << " ";
  }
  std::cout << "|\n";
  for (const Column& column : columns) {
    const std::string dashes(static_cast<std::size_t>(column.width) - 1, '-');
    std::cout << "| " << dashes << (column.is_text ? "- " : ": ");
  }
  std::cout << "|\n";
}

std::string size_text(std::uint64_t bytes) {
  const auto mebibytes = static_cast<double>(bytes) / 1048576.0;
  return mebibytes < 1024 ? fixed(mebibytes, 2) + " MiB" : fixed(mebibytes / 1024, 2) + " GiB";
}

std::string count_text(std::uint64_t parameters) {
  const auto millions = static_cast<double>(parameters) / 1e6;
  return millions < 1000 ? fixed(millions, 2) + " M" : fixed(millions / 1000, 2) + " B";
}

void print_markdown(const BenchSubject& subject, const SpeedResult& result) {
  const Rates rates = rates_of(subject, result);
  const auto text = [](const std::optional<double>& value, int digits, double factor = 1) {
    return value.has_value() ? fixed(*value * factor, digits) : std::string("-");
  };
  const ModelSize& size = subject.engine->model_size();
  const std::string speed = fixed(rates.tokens_per_second, 2) + " ± " + fixed(rates.deviation, 2);
  const std::array<std::string, kColumns.size()> cells{
      model_text(*subject.engine),
      size_text(size.bytes),
      count_text(size.parameters),
      subject.engine->device_use().has_value() ? "Vulkan" : "CPU",
      std::to_string(subject.threads),
      speed_test_name(result.test) + subject.cache,
      speed,
      fixed(100 * result.experts.hit_rate(), 2),
      text(rates.gb_per_token, 4),
      text(rates.gb_per_second, 2),
      text(rates.share, 1, 100),
      text(rates.disk_gb_per_token, 4),
      text(rates.disk_share, 1, 100)};
  for (std::size_t i = 0; i < columns_of(subject).size(); ++i) {
    // The width counts bytes, and ± has two.
    const int width = kColumns[i].width + (&cells[i] == &cells[6] ? 1 : 0);
    std::cout << "| " << (kColumns[i].is_text ? std::left : std::right) << std::setw(width)
              << cells[i] << " ";
  }
  std::cout << "|\n";
}

}  // namespace

void BenchOutput::add(const BenchSubject& subject, const SpeedResult& result) {
  if (format_ != BenchFormat::kMarkdown) {
    Json row = to_json(subject, result);
    if (format_ == BenchFormat::kCsv) row.erase("lanes");  // no columns: not of every row
    return rows_.add(row);
  }
  if (!std::exchange(has_head_, true)) print_markdown_head(columns_of(subject));
  print_markdown(subject, result);
  std::cout << std::flush;
  if (!subject.has_timing) return;
  parts_.push_back({speed_test_name(result.test) + ", t" + std::to_string(subject.threads),
                    result.stages, result.test.tokens() * result.samples_ns.size()});
}

void BenchOutput::finish() {
  if (!parts_.empty()) std::cout << "\n" << timing_table(parts_);
  rows_.finish();
}

}  // namespace moepack::cli
