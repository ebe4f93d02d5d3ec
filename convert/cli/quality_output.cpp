#include "convert/cli/quality_output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string formatted(const char* format, double number) {
  std::array<char, 32> text;
  const int length = std::snprintf(text.data(), text.size(), format, number);
  return {text.data(), static_cast<std::size_t>(length)};
}

// The error as text, "-" where there is none.
std::string error_text(double error) {
  constexpr double kSmall = 1e-3;
  if (!std::isfinite(error)) return "-";
  return formatted(error == 0 || error >= kSmall ? "%.4f" : "%.3g", error);
}

// The error with four significant digits, as the ledger has it, or null.
Json error_json(double error) {
  return std::isfinite(error) ? Json(std::stod(formatted("%.4g", error))) : Json(nullptr);
}

Json mean_json(const MeanQuality& mean) {
  return {{"matrices", mean.matrices},
          {"mean_before", error_json(mean.before)},
          {"mean_after", error_json(mean.after)}};
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

void print_means(const QualitySummary& q) {
  for (Projection p : kAllProjections) {
    const MeanQuality& mean = q.projections[static_cast<std::size_t>(p)];
    if (mean.matrices == 0) continue;
    std::cout << "    " << projection_name(p) << ": mean " << quant_error_name(q.error) << " error "
              << error_text(mean.before) << " rounded plainly, " << error_text(mean.after)
              << " here\n";
  }
  if (q.weight_error.matrices == 0) return;
  std::cout << "    " << q.weight_error.matrices
            << " matrices without held-out tokens: mean weight error "
            << error_text(q.weight_error.before) << " rounded plainly, "
            << error_text(q.weight_error.after) << " here\n";
}

void print_worst(const QualitySummary& q) {
  if (q.worst.empty()) return;
  std::cout << "    worst matrices:\n      layer expert projection  format    method   samples  "
               "error     before     after\n";
  for (const QualityEntry& e : q.worst) {
    const std::string samples = q.has_samples ? std::to_string(e.samples) : "-";
    std::cout << "      " << padded(std::to_string(e.layer), 5)
              << padded(std::to_string(e.expert), 7) << "  ";
    const std::array<std::pair<std::string, std::size_t>, 3> words{
        {{std::string(projection_name(e.projection)), 11},
         {e.format, 9},
         {printable(e.method, 16), 8}}};
    for (const auto& [word, width] : words) {
      std::cout << word << std::string(width - std::min(width - 1, word.size()), ' ');
    }
    std::cout << padded(samples, 7) << "  " << quant_error_name(e.error)
              << padded(error_text(e.before), 10) << padded(error_text(e.after), 10) << "\n";
  }
}

}  // namespace

nlohmann::ordered_json quality_json(const QualitySummary& q) {
  Json methods = Json::object();
  for (const MethodCount& m : q.methods) methods[m.method] = m.projections;
  Json json{{"error", quant_error_name(q.error)}, {"methods", std::move(methods)}};
  if (q.has_samples) {
    json["samples"] = Json{{"min", q.samples_min},
                           {"median", q.samples_median},
                           {"max", q.samples_max},
                           {"starved_experts", q.starved_experts},
                           {"unseen_experts", q.unseen_experts}};
  }
  for (Projection p : kAllProjections) {
    json[std::string(projection_name(p))] = mean_json(q.projections[static_cast<std::size_t>(p)]);
  }
  if (q.weight_error.matrices != 0) json["without_held_out_tokens"] = mean_json(q.weight_error);
  json["worst"] = Json::array();
  for (const QualityEntry& e : q.worst) {
    Json entry{{"layer", e.layer},
               {"expert", e.expert},
               {"projection", projection_name(e.projection)},
               {"format", e.format},
               {"method", e.method}};
    if (q.has_samples) entry["samples"] = e.samples;
    entry["error"] = quant_error_name(e.error);
    entry["before"] = error_json(e.before);
    entry["after"] = error_json(e.after);
    json["worst"].push_back(std::move(entry));
  }
  return json;
}

void print_quality(const QualitySummary& q) {
  std::cout << "  quality: ";
  std::string_view separator;
  for (const MethodCount& m : q.methods) {
    std::cout << separator << m.projections << " matrices by " << printable(m.method, 16);
    separator = ", ";
  }
  std::cout << "\n";
  if (q.has_samples) {
    std::cout << "    calibration tokens an expert: least " << q.samples_min << ", median "
              << formatted("%.12g", q.samples_median) << ", most " << q.samples_max << "; "
              << q.starved_experts << " experts saw fewer than " << kStarvedTokens << ", "
              << q.unseen_experts << " none\n";
  }
  print_means(q);
  print_worst(q);
}

}  // namespace moepack::cli
