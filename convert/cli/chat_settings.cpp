#include "convert/cli/chat_settings.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <system_error>

namespace moepack::cli {
namespace {

struct NumberSetting {
  const char* name;
  float SamplerOptions::*value;
  double least, most;
};
constexpr NumberSetting kNumberSettings[] = {
    {"temperature", &SamplerOptions::temperature, 0, 1000},
    {"top_p", &SamplerOptions::top_p, 0, 1},
    {"min_p", &SamplerOptions::min_p, 0, 1},
    {"repetition_penalty", &SamplerOptions::repetition_penalty, 0.01, 100},
    {"frequency_penalty", &SamplerOptions::frequency_penalty, -10, 10},
    {"presence_penalty", &SamplerOptions::presence_penalty, -10, 10},
};

template <typename Number>
std::optional<Number> parse_number_of(std::string_view text) {
  Number number{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

Status bad_value(std::string_view name, std::string_view value, const std::string& remedy) {
  return invalid_argument(printable(value, 40) + " is no value of " + printable(name, 40), remedy);
}

std::string limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "0 (no limit)";
}

}  // namespace

Status change_setting(ChatRequest& request, std::string_view name, std::string_view value) {
  SamplerOptions& sampling = request.options.sampling;
  for (const NumberSetting& setting : kNumberSettings) {
    if (name != setting.name) continue;
    const auto number = parse_number_of<double>(value);
    if (!number || !std::isfinite(*number) || *number < setting.least || *number > setting.most) {
      std::ostringstream range;
      range << "give a number from " << setting.least << " to " << setting.most;
      return bad_value(name, value, range.str());
    }
    sampling.*setting.value = static_cast<float>(*number);
    return Status::ok();
  }
  const auto whole = parse_number_of<std::uint64_t>(value);
  const bool is_whole_setting =
      name == "top_k" || name == "seed" || name == "max_tokens" || name == "thinking_budget";
  if (!is_whole_setting) {
    return invalid_argument("there is no setting " + printable(name, 40),
                            "/set alone shows those there are");
  }
  if (!whole || (name == "top_k" && *whole > 1000000)) {
    return bad_value(name, value, "give a whole number");
  }
  const auto limit = *whole == 0 ? std::nullopt : whole;
  if (name == "top_k") sampling.top_k = static_cast<std::int32_t>(*whole);
  if (name == "seed") sampling.seed = *whole;
  if (name == "max_tokens") request.options.max_tokens = limit;
  if (name == "thinking_budget") request.thinking_budget = limit;
  return Status::ok();
}

std::string settings_text(const ChatRequest& request) {
  const SamplerOptions& sampling = request.options.sampling;
  std::ostringstream out;
  for (const NumberSetting& setting : kNumberSettings) {
    out << setting.name << " " << sampling.*setting.value << "\n";
  }
  out << "top_k " << sampling.top_k << "\nseed " << sampling.seed << "\nmax_tokens "
      << limit_text(request.options.max_tokens) << "\nthinking_budget "
      << limit_text(request.thinking_budget);
  return out.str();
}

}  // namespace moepack::cli
