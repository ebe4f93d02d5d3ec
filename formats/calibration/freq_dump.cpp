#include "formats/calibration/freq_dump.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "formats/base/limits.h"

namespace moepack {
namespace {

constexpr std::string_view kPrefix = "FREQ_DUMP layer=";
constexpr std::size_t kMaxLineBytes = std::size_t{4} << 20;

// Whether a line that begins with `text` may be one of a dump.
bool may_be_dump(std::string_view text) {
  const std::size_t known = std::min(text.size(), kPrefix.size());
  return text.substr(0, known) == kPrefix.substr(0, known);
}

// Takes the digits at `at`, which moves behind them.
std::optional<std::uint64_t> take_number(std::string_view line, std::size_t& at) {
  std::uint64_t value = 0;
  const char* begin = line.data() + at;
  const auto [end, problem] = std::from_chars(begin, line.data() + line.size(), value);
  if (problem != std::errc() || end == begin) return std::nullopt;
  at += static_cast<std::size_t>(end - begin);
  return value;
}

bool take(std::string_view line, std::size_t& at, char wanted) {
  if (at >= line.size() || line[at] != wanted) return false;
  ++at;
  return true;
}

}  // namespace

Status FreqDumpReader::error(std::uint64_t at_in_line, std::string_view what) const {
  return corrupt(Where{.file = file_, .offset = line_at_ + at_in_line}, what,
                 "the log is damaged: remove the line, or make the log again");
}

Status FreqDumpReader::feed(std::span<const char> piece) {
  while (!piece.empty()) {
    const std::string_view text(piece.data(), piece.size());
    const std::size_t newline = text.find('\n');
    const std::string_view part = text.substr(0, newline);
    if (!skips_) {
      if (line_.size() + part.size() <= kMaxLineBytes) {
        line_ += part;
        skips_ = !may_be_dump(line_);
      } else {
        // A log may well have longer lines of something else.
        line_ += part.substr(0, kPrefix.size());
        if (may_be_dump(line_)) return error(0, "a line of a dump is longer than any model's");
        skips_ = true;
      }
      if (skips_) line_.clear();
    }
    const std::size_t taken = newline == std::string_view::npos ? text.size() : newline + 1;
    position_ += taken;
    piece = piece.subspan(taken);
    if (newline == std::string_view::npos) break;
    if (!skips_) MOE_RETURN_IF_ERROR(end_line());
    skips_ = false;
    line_.clear();
    line_at_ = position_;
  }
  return Status::ok();
}

Status FreqDumpReader::end_line() {
  std::string_view line = line_;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.size() < kPrefix.size()) return Status::ok();  // begins alike: another line
  std::size_t at = kPrefix.size();
  const auto layer = take_number(line, at);
  if (!layer.has_value() || !take(line, at, ':')) {
    return error(at, "a line of a dump needs a layer's number and ':'");
  }
  std::optional<std::uint64_t> last;
  while (at < line.size()) {
    const std::size_t start = at;
    if (!take(line, at, ' ')) return error(at, "a line of a dump needs ' ' between experts");
    if (at == line.size()) break;  // a blank at the end
    const auto expert = take_number(line, at);
    const bool has_colon = expert.has_value() && take(line, at, ':');
    const auto count = has_colon ? take_number(line, at) : std::nullopt;
    if (!count.has_value()) return error(at, "a line of a dump needs EXPERT:COUNT");
    if (last.has_value() && *expert <= *last) {
      return error(start + 1, "the experts of a dump's line do not ascend");
    }
    last = expert;
    const std::string_view wrong = counts_.add(*layer, *expert, *count);
    if (!wrong.empty()) {
      return error(start + 1, std::to_string(*expert) + " of layer " + std::to_string(*layer) +
                                  " " + std::string(wrong));
    }
  }
  if (*layer >= kMaxModelLayers) return error(kPrefix.size(), "is a layer that no model has");
  ++layer_lines_[static_cast<std::uint32_t>(*layer)];
  ++lines_;
  return Status::ok();
}

Status FreqDumpReader::finish() {
  if (skips_ || line_.size() < kPrefix.size()) return Status::ok();
  return corrupt(Where{.file = file_, .offset = line_at_},
                 "the last line of a dump has no end: the log is cut off",
                 "make the log again; if the line is whole, end it with a newline");
}

}  // namespace moepack
