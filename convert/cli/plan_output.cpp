#include "convert/cli/plan_output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "convert/cli/free_space_text.h"
#include "convert/cli/progress.h"
#include "runtime/advice/lane_shares.h"

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string number_text(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string rate_text(double bytes_per_second) {
  return format_bytes(static_cast<std::uint64_t>(bytes_per_second)) + "/s";
}

// Three digits.
std::string speed_text(double tokens_per_second) {
  if (tokens_per_second <= 0) return "unknown";
  const int digits = tokens_per_second < 10 ? 2 : (tokens_per_second < 100 ? 1 : 0);
  return number_text(tokens_per_second, digits);
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  return number_text(percent, std::abs(percent - std::round(percent)) < 0.05 ? 0 : 1) + " %";
}

std::string expert_format(const PlanReport& report) {
  const PackManifest& pack = report.source.dir.pack;
  std::string text = to_string(pack.layouts.front().of(Projection::kGate).format);
  return pack.layouts.size() > 1 ? text + " and others" : text;
}

void print_row(const char* what, std::uint64_t bytes, const std::string& more = "") {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "  %-20s %9s", what, format_bytes(bytes).c_str());
  std::cout << text.data() << (more.empty() ? "" : "  ") << more << "\n";
}

void print_model(const PlanReport& report) {
  const ModelConfig& config = report.source.dir.config;
  std::cout << "model: " << printable(report.model, 4096) << " (" << report.source.kind << "), "
            << config.model_type << ", " << config.num_layers << " layers x " << config.num_experts
            << " experts, " << config.experts_per_token << " a token, experts in "
            << expert_format(report) << "\n";
  if (!report.source.is_model) {
    std::cout << "disk: converted it takes " << format_bytes(report.source.converted_bytes) << "; "
              << free_space_text(report.free_bytes) << " are free there\n";
  }
}

void print_device(const DeviceUse& use) {
  std::cout << "memory of " << use.name << ":\n";
  print_row("residents", use.plan.resident_bytes);
  print_row("keys and values", use.plan.key_value_bytes);
  print_row("recurrent states", use.plan.recurrent_bytes);
  print_row("scratch", use.plan.scratch_bytes);
  print_row("experts", use.plan.expert_bytes,
            "of " + format_bytes(use.plan.all_expert_bytes) + "; at least " +
                format_bytes(use.plan.expert_floor_bytes));
  print_row("total", use.plan.total_bytes());
}

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 1 : std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

// Of decoding: what the GPU keeps for good, or with --cold-experts fetch has room for.
LaneShares lane_shares(const PlanReport& report) {
  const DeviceUse& use = *report.plan.use;
  const bool is_kept = use.cold == ColdExperts::kCpu && !use.plan.holds_all_experts();
  const std::uint64_t all = report.source.dir.pack.all_experts();
  const double experts = is_kept ? share_of(use.hot.slots, all)
                                 : share_of(use.plan.expert_bytes, use.plan.all_expert_bytes);
  const double uses = use.hot.set.has_value() ? use.hot.hit_share : experts;
  return predict_lanes(uses, experts,
                       share_of(report.plan.memory.cache_bytes, report.plan.memory.pack_bytes));
}

void print_lanes(const PlanReport& report) {
  const DeviceUse& use = *report.plan.use;
  const LaneShares lanes = lane_shares(report);
  std::cout << "experts of a token: " << percent_text(lanes.vram) << " in the GPU's memory, "
            << percent_text(lanes.ram) << " in the machine's, " << percent_text(lanes.ssd)
            << " from the disk, "
            << (use.hot.set.has_value() ? "as the profile counts" : "if all are used alike")
            << "\n";
  if (!report.options.hot.profile.empty() && !use.hot.reason.empty()) {
    std::cout << "note: --hot-profile is not used: " << use.hot.reason << "\n";
  }
}

void print_memory(const PlanReport& report) {
  const MemoryPlan& memory = report.plan.memory;
  std::cout << "memory with -c " << report.options.context << ", ";
  if (report.options.sequences > 1) std::cout << report.options.sequences << " sequences, ";
  std::cout << "--chunk " << report.plan.chunk_tokens << ":\n";
  print_row("residents", memory.resident_bytes);
  print_row("keys and values", memory.key_value_bytes);
  print_row("recurrent states", memory.recurrent_bytes);
  print_row("scratch", memory.scratch_bytes);
  print_row("lists", memory.list_bytes + memory.saved_bytes);
  print_row("expert cache", memory.cache_bytes,
            percent_text(report.cache_share) + " of the pack's " + format_bytes(memory.pack_bytes) +
                "; at least " + format_bytes(memory.cache_floor_bytes));
  const auto available = report.plan.request.available_bytes;
  print_row("total", memory.total_bytes(),
            available.has_value() ? "of " + format_bytes(*available) + " that may be used" : "");
}

void print_rates(const PlanReport& report) {
  const auto request = static_cast<std::uint64_t>(report.work.record_bytes);
  std::cout << "rates: disk ";
  if (!report.disk.is_known()) {
    std::cout << "unknown (" << report.disk_unknown << ")";
  } else if (!report.disk_measured.has_value()) {
    std::cout << rate_text(report.disk.many) << ", as given";
  } else {
    std::cout << rate_text(report.disk.many) << " in random reads of " << format_bytes(request)
              << ", " << report.work.experts_per_token << " at once, " << rate_text(report.disk.one)
              << " one by one";
    if (!report.disk_measured->is_direct) std::cout << " (through the page cache)";
    if (report.disk_measured->is_temporary) std::cout << " (a temporary file)";
  }
  std::cout << "; memory " << rate_text(report.compute->memory) << "; one token's residents "
            << rate_text(report.compute->residents) << ", experts "
            << rate_text(report.compute->experts) << "\n";
}

void print_speed(const PlanReport& report) {
  if (report.speed.empty()) return;
  print_rates(report);
  std::cout << "one sequence, early in its text:\n"
               "  cache hits  read a token  tokens/s\n";
  for (const SpeedPrediction& at : report.speed) {
    std::array<char, 96> text{};
    const bool is_share = at.hit_rate == report.cache_share;
    std::snprintf(text.data(), text.size(), "  %10s  %12s  %8s%s\n",
                  percent_text(at.hit_rate).c_str(),
                  format_bytes(static_cast<std::uint64_t>(at.missed_bytes)).c_str(),
                  speed_text(at.tokens_per_second).c_str(),
                  is_share ? "  as many as the cache holds of the pack" : "");
    std::cout << text.data();
  }
}

Json rates_json(const PlanReport& report) {
  if (!report.compute.has_value()) return nullptr;
  Json disk = nullptr;
  if (report.disk.is_known()) {
    disk = {{"random_bytes_per_second", report.disk.many},
            {"one_by_one_bytes_per_second", report.disk.one},
            {"is_measured", report.disk_measured.has_value()}};
    if (report.disk_measured.has_value()) {
      disk["is_direct"] = report.disk_measured->is_direct;
      disk["cached_share"] = report.disk_measured->cached_share;
      disk["is_temporary_file"] = report.disk_measured->is_temporary;
    }
  }
  return {{"disk", disk},
          {"memory_bytes_per_second", report.compute->memory},
          {"resident_bytes_per_second", report.compute->residents},
          {"expert_bytes_per_second", report.compute->experts}};
}

Json memory_json(const PlanReport& report) {
  const MemoryPlan& memory = report.plan.memory;
  Json available = nullptr;
  if (report.plan.request.available_bytes.has_value()) {
    available = *report.plan.request.available_bytes;
  }
  return {{"resident", memory.resident_bytes},
          {"key_value", memory.key_value_bytes},
          {"recurrent", memory.recurrent_bytes},
          {"scratch", memory.scratch_bytes},
          {"lists", memory.list_bytes},
          {"saved", memory.saved_bytes},
          {"cache", memory.cache_bytes},
          {"cache_floor", memory.cache_floor_bytes},
          {"pack", memory.pack_bytes},
          {"total", memory.total_bytes()},
          {"available", available}};
}

Json device_json(const PlanReport& report) {
  if (!report.plan.use.has_value()) return nullptr;
  const VulkanPlan& plan = report.plan.use->plan;
  const LaneShares lanes = lane_shares(report);
  return {{"name", report.plan.use->name},
          {"resident", plan.resident_bytes},
          {"key_value", plan.key_value_bytes},
          {"recurrent", plan.recurrent_bytes},
          {"scratch", plan.scratch_bytes},
          {"experts", plan.expert_bytes},
          {"all_experts", plan.all_expert_bytes},
          {"expert_floor", plan.expert_floor_bytes},
          {"total", plan.total_bytes()},
          {"cold_experts", cold_experts_name(report.plan.use->cold)},
          {"hot_slots", report.plan.use->hot.slots},
          {"is_by_profile", report.plan.use->hot.set.has_value()},
          {"lanes", {{"vram", lanes.vram}, {"ram", lanes.ram}, {"ssd", lanes.ssd}}}};
}

Json speed_json(const PlanReport& report) {
  Json rows = Json::array();
  for (const SpeedPrediction& at : report.speed) {
    Json speed = nullptr;
    if (at.tokens_per_second > 0) speed = at.tokens_per_second;
    rows.push_back({{"hit_rate", at.hit_rate},
                    {"missed_bytes", at.missed_bytes},
                    {"tokens_per_second", speed},
                    {"disk_share", at.disk_share}});
  }
  return rows;
}

}  // namespace

void print_plan(const PlanReport& report) {
  print_model(report);
  if (report.plan.use.has_value()) print_device(*report.plan.use);
  print_memory(report);
  print_speed(report);
  if (report.plan.use.has_value()) {
    print_lanes(report);
    std::cout << "speed: not predicted for a GPU; moepack bench measures it\n";
  }
  for (const std::string& note : report.source.notes) std::cout << "note: " << note << "\n";
  if (report.plan.use.has_value() && !report.plan.choice.empty()) {
    std::cout << "note: " << report.plan.choice << "\n";
  }
  std::cout << "verdict: " << verdict_name(report.advice.verdict);
  // The reason of a refusal is the error, which follows on stderr.
  if (report.advice.verdict == Verdict::kTight) std::cout << ": " << report.advice.reason;
  if (!report.advice.remedy.empty()) std::cout << "; " << report.advice.remedy;
  std::cout << "\n";
}

Json plan_json(const PlanReport& report) {
  const ModelConfig& config = report.source.dir.config;
  Json json{{"model", report.model},
            {"kind", report.source.kind},
            {"model_type", config.model_type},
            {"num_layers", config.num_layers},
            {"num_experts", config.num_experts},
            {"experts_per_token", config.experts_per_token},
            {"expert_format", expert_format(report)}};
  if (!report.source.is_model) {
    json["converted_bytes"] = report.source.converted_bytes;
    json["free_bytes"] = free_space_json(report.free_bytes);
  }
  json["context"] = report.options.context;
  json["parallel"] = report.options.sequences;
  json["chunk"] = report.plan.chunk_tokens;
  json["backend"] = report.plan.chosen == Backend::kVulkan ? "vulkan" : "cpu";
  json["memory"] = memory_json(report);
  json["device"] = device_json(report);
  json["rates"] = rates_json(report);
  json["bytes_per_token"] = {{"residents", report.work.resident_bytes},
                             {"states", report.work.state_bytes},
                             {"experts", report.work.expert_bytes()}};
  json["cache_share"] = report.cache_share;
  json["speed"] = speed_json(report);
  json["verdict"] = verdict_name(report.advice.verdict);
  json["reason"] = report.advice.reason;
  json["remedy"] = report.advice.remedy;
  json["notes"] = report.source.notes;
  return json;
}

}  // namespace moepack::cli
