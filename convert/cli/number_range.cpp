#include "convert/cli/number_range.h"

#include <charconv>
#include <string>
#include <string_view>

#include "formats/base/number_text.h"
#include "formats/base/status.h"

namespace moepack::cli {
namespace {

// Parses the whole of `text`. Leading zeros are refused, because CLI11 would later make another
// number of them.
template <typename Number>
bool parse_whole(std::string_view text, Number& value) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.size() > 1 && digits.front() == '0') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_whole_number(std::string_view text, std::int64_t least, std::uint64_t most) {
  if (text.starts_with('-')) {
    std::int64_t value = 0;
    return parse_whole(text, value) && value < 0 && value >= least;
  }
  std::uint64_t value = 0;
  if (!parse_whole(text, value) || value > most) return false;
  return least < 0 || value >= static_cast<std::uint64_t>(least);
}

// A validator that says what it wants in --help and in its error alike.
template <typename Fits>
CLI::Validator range_check(const std::string& kind, const std::string& least,
                           const std::string& most, Fits fits) {
  const std::string wanted = kind + " from " + least + " to " + most;
  return CLI::Validator(
      [wanted, fits](const std::string& text) {
        return fits(text) ? std::string() : printable(text, 64) + " is no " + wanted;
      },
      "[" + least + " - " + most + "]");
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::uint64_t most) {
  return range_check(
      "whole number", std::to_string(least), std::to_string(most),
      [least, most](const std::string& text) { return is_whole_number(text, least, most); });
}

CLI::Validator real_number(double least, double most) {
  return range_check(
      "number", six_digits(least), six_digits(most), [least, most](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
      });
}

}  // namespace moepack::cli
