#include "convert/cli/bench_replay.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convert/cli/bench_table.h"
#include "convert/cli/model_path.h"
#include "formats/model_dir.h"
#include "runtime/advice/disk_rates.h"
#include "runtime/model/routing_recorder.h"
#include "runtime/replay/replay.h"
#include "runtime/replay/synthetic_trace.h"
#include "runtime/store/cache_policy.h"
#include "runtime/store/pack_files.h"

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSynthetic = "synthetic:";
// Parts of all experts that are tried where no budget is given.
constexpr std::array<std::uint64_t, 6> kDivisors{32, 16, 8, 4, 2, 1};

Result<std::unique_ptr<TraceSource>> open_source(const std::string& name) {
  if (!std::string_view(name).starts_with(kSynthetic)) return open_trace(name);
  MOE_ASSIGN_OR_RETURN(const SyntheticTrace spec,
                       parse_synthetic_trace(std::string_view(name).substr(kSynthetic.size())));
  return make_synthetic_trace(spec);
}

// A trace of another model says nothing about this one.
Status check_model(const ModelDir& dir, const TraceModel& trace, const std::string& file) {
  const TraceModel model = trace_model(trace.name, trace.fingerprint, dir.config, dir.pack);
  if (model == trace) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                    "is of another model or pack, " + printable(trace.name, 64) + " with " +
                        to_string(ExpertShape{trace.num_layers, trace.num_experts}),
                    "name that one, or no model");
}

double mean_record(const TraceModel& model) {
  double sum = 0;
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < model.num_experts; ++e) {
      sum += static_cast<double>(model.bytes_of(layer, e));
    }
  }
  return sum / (double{1} * model.expert_layers() * model.num_experts);
}

// What a layer's reads take beyond their bytes is what a single read takes longer.
ReadSpeed read_speed(double record_bytes, const ReadRates& rates) {
  return {std::max(0.0, record_bytes / rates.one - record_bytes / rates.many), rates.many};
}

// Of the disk under the pack, as moepack plan measures it.
Result<ReadSpeed> measure_reading(const ReplayFlags& flags, const ModelDir& dir,
                                  double record_bytes) {
  MOE_ASSIGN_OR_RETURN(const PackFiles files,
                       find_pack_files(dir.pack_path, dir.pack, flags.pack_directories));
  MOE_ASSIGN_OR_RETURN(
      const DiskMeasurement measured,
      measure_file(files.first(), {.record_bytes = static_cast<std::uint64_t>(record_bytes),
                                   .depth = dir.config.experts_per_token}));
  if (measured.cached_share > 0) {
    std::cerr << "moepack: note: part of the reads came from the page cache; give --disk-gbs\n";
  }
  return read_speed(record_bytes, measured.rates);
}

// A trace whose run read of its disk tells how fast that was, as it tells how long computing took.
// Another's is measured.
Result<SpeedSettings> speed_settings(const ReplayFlags& flags, const TraceModel& model,
                                     const TraceTimes& times, const std::optional<ModelDir>& dir) {
  SpeedSettings settings;
  if (flags.token_ms > 0) settings.token_seconds = flags.token_ms / 1e3;
  if (!flags.disk_gbs.empty()) {
    settings.reading = read_speed(mean_record(model), {.one = flags.disk_gbs.back() * 1e9,
                                                       .many = flags.disk_gbs.front() * 1e9});
  } else if (dir.has_value() && !times.reading.has_value()) {
    MOE_ASSIGN_OR_RETURN(settings.reading, measure_reading(flags, *dir, mean_record(model)));
  }
  return settings;
}

std::vector<std::uint64_t> budgets_of(const ReplayFlags& flags, const TraceModel& model) {
  std::vector<std::uint64_t> budgets;
  const std::uint64_t all = all_record_memory(model);
  for (const std::uint64_t mib : flags.cache_mib) budgets.push_back(mib == 0 ? all : mib << 20);
  if (!budgets.empty()) return budgets;
  const std::uint64_t floor = token_record_memory(model);
  for (const std::uint64_t divisor : kDivisors) {
    if (all / divisor >= floor) budgets.push_back(all / divisor);
  }
  return budgets;
}

// A cache and what it is called.
struct Variant {
  std::uint64_t budget = 0;
  std::string policy;
  std::uint64_t kept_bytes = 0;
};

struct Variants {
  std::vector<Variant> names;
  std::vector<std::unique_ptr<CacheReplay>> caches;
};

Result<KeptRecords> kept_of(const ReplayFlags& flags, const TraceModel& model,
                            std::uint64_t budget) {
  const std::uint64_t floor = token_record_memory(model);
  if (flags.pin.empty() || budget < floor) return KeptRecords{};
  const ProfiledModel profiled{.name = model.name == "synthetic" ? "" : model.name,
                               .source_fingerprint = 0,
                               .shape = {model.num_layers, model.num_experts},
                               .experts_per_token = model.experts_per_token};
  return read_kept_records(
      flags.pin, profiled,
      [&](std::uint32_t layer, std::uint32_t expert) { return model.bytes_of(layer, expert); },
      std::min(budget, all_record_memory(model)) - floor);
}

Result<Variants> make_variants(const ReplayFlags& flags, const TraceModel& model) {
  Variants variants;
  const std::vector<std::string> policies =
      flags.policies.empty() ? std::vector<std::string>{"lru", "lfru"} : flags.policies;
  for (const std::uint64_t budget : budgets_of(flags, model)) {
    MOE_ASSIGN_OR_RETURN(const KeptRecords kept, kept_of(flags, model, budget));
    for (const std::string& name : policies) {
      MOE_ASSIGN_OR_RETURN(const CachePolicy policy, parse_cache_policy(name));
      MOE_ASSIGN_OR_RETURN(std::unique_ptr<CacheReplay> cache,
                           CacheReplay::create(model, budget, policy, kept));
      variants.names.push_back(
          {.budget = cache->budget_bytes(), .policy = name, .kept_bytes = kept.bytes});
      variants.caches.push_back(std::move(cache));
    }
  }
  return variants;
}

// Everything that the rows of a report have in common.
struct ReplaySubject {
  const TraceModel& model;
  const TraceTimes& times;
  const SpeedModel& speed;
};

// Tokens a second; nullopt where there were none or a time is not known.
std::optional<double> rate_of(const ReplaySubject& subject, const ReplayPart& part) {
  const bool is_known =
      subject.speed.knows_computing() && (part.use.misses == 0 || subject.speed.knows_reading());
  if (part.tokens == 0 || !is_known || part.seconds <= 0) return std::nullopt;
  return static_cast<double>(part.tokens) / part.seconds;
}

Json part_json(const ReplaySubject& subject, const ReplayPart& part) {
  return {{"passes", part.passes},
          {"tokens", part.tokens},
          {"hits", part.use.hits},
          {"misses", part.use.misses},
          {"hit_percent", 100 * part.use.hit_rate()},
          {"missed_bytes", part.use.missed_bytes},
          {"tokens_per_second", or_null(rate_of(subject, part))},
          {"seconds", part.seconds},
          {"read_seconds", part.read_seconds}};
}

Json row_json(const ReplaySubject& subject, const Variant& variant, const ReplayResult& result) {
  const CacheUse use = result.use();
  Json row{{"model", subject.model.name},
           {"cache_bytes", variant.budget},
           {"cache_share", static_cast<double>(variant.budget) /
                               static_cast<double>(all_record_memory(subject.model))},
           {"cache_policy", variant.policy},
           {"pinned_bytes", variant.kept_bytes},
           {"hits", use.hits},
           {"misses", use.misses},
           {"hit_percent", 100 * use.hit_rate()},
           {"decode", part_json(subject, result.decode)},
           {"prompt", part_json(subject, result.prompt)},
           {"token_ms", 1e3 * subject.speed.token_seconds()}};
  const std::optional<ReadSpeed>& reading = subject.speed.reading();
  row["disk_gb_s"] = reading.has_value() ? Json(reading->bytes_per_second / 1e9) : Json(nullptr);
  row["disk_first_us"] = reading.has_value() ? Json(reading->first_seconds * 1e6) : Json(nullptr);
  return row;
}

std::string fixed_or_dash(const std::optional<double>& value, int digits) {
  return value.has_value() ? fixed(*value, digits) : "-";
}

constexpr std::array<Column, 9> kReplayColumns{{{"model", 20, true},
                                                {"cache MiB", 10},
                                                {"% of all", 8},
                                                {"policy", 8, true},
                                                {"hit %", 7},
                                                {"GB/token", 9},
                                                {"prompt t/s", 10},
                                                {"decode t/s", 10},
                                                {"% reading", 9}}};

void print_head() {
  std::ostringstream dashes;
  for (const Column& column : kReplayColumns) {
    std::cout << "| " << (column.is_text ? std::left : std::right) << std::setw(column.width)
              << column.name << " ";
    dashes << "| " << std::string(static_cast<std::size_t>(column.width) - 1, '-')
           << (column.is_text ? "- " : ": ");
  }
  std::cout << "|\n" << dashes.str() << "|\n";
}

void print_row(const ReplaySubject& subject, const Variant& variant, const ReplayResult& result) {
  const ReplayPart& part = result.decode.tokens > 0 ? result.decode : result.prompt;
  const auto tokens = static_cast<double>(std::max<std::uint64_t>(part.tokens, 1));
  const auto budget = static_cast<double>(variant.budget);
  const std::optional<double> rate = rate_of(subject, part);
  const std::array<std::string, kReplayColumns.size()> cells{
      printable(subject.model.name, 20),
      fixed(budget / 1048576, 0),
      fixed(100 * budget / static_cast<double>(all_record_memory(subject.model)), 1),
      variant.policy + (variant.kept_bytes > 0 ? "+pin" : ""),
      fixed(100 * result.use().hit_rate(), 2),
      fixed(static_cast<double>(part.use.missed_bytes) / 1e9 / tokens, 4),
      fixed_or_dash(rate_of(subject, result.prompt), 2),
      fixed_or_dash(rate_of(subject, result.decode), 2),
      rate.has_value() ? fixed(100 * part.read_seconds / part.seconds, 1) : "-"};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::cout << "| " << (kReplayColumns[i].is_text ? std::left : std::right)
              << std::setw(kReplayColumns[i].width) << cells[i] << " ";
  }
  std::cout << "|\n";
}

// What the numbers rest on.
void print_notes(const ReplayFlags& flags, const ReplaySubject& subject) {
  std::ostringstream out;
  out << "moepack: " << subject.times.passes << " passes of " << subject.times.tokens << " tokens";
  if (subject.speed.knows_computing()) {
    out << "; a generated token without a miss takes "
        << fixed(1e3 * subject.speed.token_seconds(), 2) << " ms"
        << (flags.token_ms > 0 ? " (--token-ms)" : " (as in the trace)");
  }
  if (const std::optional<ReadSpeed>& reading = subject.speed.reading(); reading.has_value()) {
    out << "; the disk reads " << fixed(reading->bytes_per_second / 1e9, 2) << " GB/s after "
        << fixed(reading->first_seconds * 1e6, 0) << " us"
        << (!flags.disk_gbs.empty() ? " (--disk-gbs)"
            : subject.times.reading ? " (as in the trace)"
                                    : " (measured)");
  }
  out << "\n";
  if (subject.times.cut_bytes > 0) {
    out << "moepack: note: the last " << subject.times.cut_bytes
        << " bytes of the trace are no whole block: its run was killed\n";
  }
  if (!subject.speed.knows_computing() || !subject.speed.knows_reading()) {
    out << "moepack: note: tokens a second need --token-ms and --disk-gbs, which the trace does "
           "not tell\n";
  }
  std::cerr << out.str();
}

Status check_flags(const ReplayFlags& flags) {
  if (flags.disk_gbs.size() <= 2 && std::all_of(flags.disk_gbs.begin(), flags.disk_gbs.end(),
                                                [](double gbs) { return gbs > 0; })) {
    return Status::ok();
  }
  return invalid_argument("--disk-gbs takes one rate above 0, or two",
                          "give that of many reads at once, then that of one read at a time");
}

Result<std::optional<ModelDir>> open_model(const ReplayFlags& flags, const TraceModel& trace) {
  std::optional<ModelDir> dir;
  if (flags.model.empty()) return dir;
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  MOE_ASSIGN_OR_RETURN(dir, open_model_dir(flags.model, flags.pack, {}, flags.pack_directories));
  MOE_RETURN_IF_ERROR(check_model(*dir, trace, flags.trace));
  return dir;
}

}  // namespace

Status run_replay(const ReplayFlags& flags) {
  MOE_RETURN_IF_ERROR(check_flags(flags));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<TraceSource> source, open_source(flags.trace));
  const TraceModel& model = source->model();
  MOE_ASSIGN_OR_RETURN(const std::optional<ModelDir> dir, open_model(flags, model));
  MOE_ASSIGN_OR_RETURN(const Variants variants, make_variants(flags, model));
  MOE_ASSIGN_OR_RETURN(const TraceTimes times, measure_trace(*source, flags.skip));
  if (times.passes == 0 && flags.skip > 0) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = flags.trace},
                      "has no passes behind the first " + std::to_string(flags.skip),
                      "lower --skip");
  }
  MOE_ASSIGN_OR_RETURN(const SpeedSettings settings, speed_settings(flags, model, times, dir));
  const SpeedModel speed(times, settings);
  MOE_ASSIGN_OR_RETURN(const std::vector<ReplayResult> results,
                       replay_trace(*source, variants.caches, speed, flags.skip));
  const ReplaySubject subject{model, times, speed};
  RowOutput rows(flags.format);
  if (flags.format == BenchFormat::kMarkdown) print_head();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (flags.format == BenchFormat::kMarkdown) {
      print_row(subject, variants.names[i], results[i]);
    } else {
      rows.add(row_json(subject, variants.names[i], results[i]));
    }
  }
  rows.finish();
  std::cout << std::flush;
  print_notes(flags, subject);
  return Status::ok();
}

}  // namespace moepack::cli
