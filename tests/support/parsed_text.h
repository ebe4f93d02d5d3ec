// Runs an output parser over a text and says what must hold for every text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/utf8.h"
#include "runtime/chat/output_parser.h"

namespace moepack::test {

// Cuts `text` at the added tokens. "@@" is dropped: it keeps a marker in a test from being a token.
inline std::vector<std::pair<std::string, bool>> cut_at_added(
    std::string_view text, const std::vector<std::string>& added_tokens) {
  std::vector<std::pair<std::string, bool>> pieces;
  const auto plain = [&](std::string_view part) {
    if (pieces.empty() || pieces.back().second) pieces.emplace_back("", false);
    pieces.back().first += part;
  };
  while (!text.empty()) {
    std::string_view found;
    for (const std::string& token : added_tokens) {
      if (text.starts_with(token) && token.size() > found.size()) found = token;
    }
    if (!found.empty()) {
      pieces.emplace_back(std::string(found), true);
      text.remove_prefix(found.size());
    } else if (text.starts_with("@@")) {
      text.remove_prefix(2);
    } else {
      plain(text.substr(0, 1));
      text.remove_prefix(1);
    }
  }
  return pieces;
}

struct ParsedCall {
  std::string id, name, arguments;
  bool is_ended = false;
};

// Outputs with neighbours of one kind joined.
class JoinedOutputs {
 public:
  void add(const std::vector<ParsedOutput>& outputs) {
    for (const ParsedOutput& output : outputs) add_one(output);
  }
  // One line an output; the last is open for more.
  const std::vector<std::string>& lines() const { return lines_; }
  const std::vector<ParsedCall>& calls() const { return calls_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }
  // Thoughts and content in their order.
  std::string spoken() const {
    std::string all;
    for (const std::string& line : lines_) {
      if (line.front() == 'R' || line.front() == 'C') all += line.substr(1);
    }
    return all;
  }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

 private:
  void add_one(const ParsedOutput& output) {
    if (const auto* text = std::get_if<ParsedReasoning>(&output)) {
      reasoning_ += text->text;
      append('R', text->text);
    } else if (const auto* content = std::get_if<ParsedContent>(&output)) {
      content_ += content->text;
      append('C', content->text);
    } else if (const auto* begin = std::get_if<ParsedCallBegin>(&output)) {
      calls_.push_back({begin->id, begin->name, "", false});
      lines_.push_back("B" + begin->name + " " + begin->id);
    } else if (const auto* part = std::get_if<ParsedCallArguments>(&output)) {
      calls_.back().arguments += part->fragment;
      append('A', part->fragment);
    } else {
      calls_.back().is_ended = true;
      lines_.push_back("E");
    }
  }
  void append(char kind, std::string_view text) {
    if (lines_.empty() || lines_.back().front() != kind) lines_.emplace_back(1, kind);
    lines_.back() += text;
  }

  std::vector<std::string> lines_;
  std::vector<ParsedCall> calls_;
  std::string reasoning_, content_;
};

// `piece_size(n)`: bytes of the next piece of plain text of which n are left.
template <typename PieceSize>
JoinedOutputs parse_pieces(const OutputParserOptions& options,
                           const std::vector<std::pair<std::string, bool>>& pieces,
                           PieceSize piece_size, std::optional<bool> is_cut) {
  JoinedOutputs joined;
  const auto parser = make_output_parser(options);
  for (const auto& [bytes, is_added] : pieces) {
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const std::size_t size = is_added ? rest.size() : piece_size(rest.size());
      joined.add(parser->push({rest.substr(0, size), is_added}));
      rest.remove_prefix(size);
    }
  }
  if (is_cut) joined.add(parser->finish(*is_cut));
  return joined;
}

inline JoinedOutputs parse_whole(const OutputParserOptions& options,
                                 const std::vector<std::pair<std::string, bool>>& pieces,
                                 std::optional<bool> is_cut) {
  return parse_pieces(
      options, pieces, [](std::size_t left) { return left; }, is_cut);
}

inline bool is_output_prefix(const JoinedOutputs& prefix, const JoinedOutputs& whole) {
  const auto& lines = prefix.lines();
  if (lines.size() > whole.lines().size()) return false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view of_whole = whole.lines()[i];
    const bool is_last = i + 1 == lines.size();
    if (is_last ? !of_whole.starts_with(lines[i]) : of_whole != lines[i]) return false;
  }
  return true;
}

// The first `bytes` of the pieces; added tokens stay whole, so it may be a little less.
inline std::vector<std::pair<std::string, bool>> first_bytes(
    const std::vector<std::pair<std::string, bool>>& pieces, std::size_t bytes) {
  std::vector<std::pair<std::string, bool>> first;
  for (const auto& [text, is_added] : pieces) {
    if (bytes == 0 || (is_added && text.size() > bytes)) break;
    first.emplace_back(text.substr(0, bytes), is_added);
    bytes -= first.back().first.size();
  }
  return first;
}

inline std::string joined_bytes(const std::vector<std::pair<std::string, bool>>& pieces) {
  std::string all;
  for (const auto& piece : pieces) all += piece.first;
  return all;
}

// Without white space and without the markers of thoughts.
inline std::string bare_text(std::string_view text, const std::vector<std::string>& markers) {
  std::string bare;
  for (const char c : text) {
    if (std::string_view(" \n\t\r").find(c) == std::string_view::npos) bare += c;
  }
  for (bool changes = true; changes;) {
    changes = false;
    for (const std::string& marker : markers) {
      const std::size_t at = bare.find(marker);
      if (at == std::string::npos) continue;
      bare.erase(at, marker.size());
      changes = true;
    }
  }
  return bare;
}

inline bool is_subsequence(std::string_view part, std::string_view whole) {
  std::size_t at = 0;
  for (const char c : whole) {
    if (at < part.size() && part[at] == c) ++at;
  }
  return at == part.size();
}

// What is wrong with a parser's outputs for this text; empty if nothing is.
inline std::string find_parser_fault(const OutputParserOptions& options,
                                     const std::vector<std::pair<std::string, bool>>& pieces,
                                     bool tries_all_borders) {
  const JoinedOutputs whole = parse_whole(options, pieces, false);
  const JoinedOutputs cut = parse_whole(options, pieces, true);
  const std::string all = joined_bytes(pieces);
  std::string text;
  append_lossy_utf8(all, true, text);
  for (const JoinedOutputs* one : {&whole, &cut}) {
    for (const ParsedCall& call : one->calls()) {
      if (!call.is_ended || options.format == ToolFormat::kHarmony) continue;
      if (!nlohmann::json::accept(call.arguments))
        return "arguments are not JSON: " + call.arguments;
    }
    for (const std::string& line : one->lines()) {
      if (find_invalid_utf8(line) != std::string::npos) return "invalid UTF-8: " + line;
    }
  }
  std::vector<std::string> markers = {"<think>", "</think>"};
  if (whole.calls().empty() && options.format != ToolFormat::kHarmony) {
    if (bare_text(whole.spoken(), markers) != bare_text(text, markers)) {
      return "text was lost or invented:\n" + whole.text();
    }
  }
  for (const std::string* part : {&whole.reasoning(), &whole.content()}) {
    if (!is_subsequence(bare_text(*part, {}), bare_text(text, {}))) return "text was invented";
  }
  const JoinedOutputs bytewise = parse_pieces(
      options, pieces, [](std::size_t) { return std::size_t{1}; }, false);
  if (bytewise.lines() != whole.lines()) {
    return "bytes give\n" + bytewise.text() + "but the whole text gives\n" + whole.text();
  }
  for (std::size_t n = 0; tries_all_borders && n <= all.size(); ++n) {
    const auto first = first_bytes(pieces, n);
    const JoinedOutputs prefix = parse_whole(options, first, std::nullopt);
    if (!is_output_prefix(prefix, whole)) {
      return "the first " + std::to_string(n) + " bytes give\n" + prefix.text() +
             "but the whole text gives\n" + whole.text();
    }
    if (!is_output_prefix(prefix, cut)) return "no prefix of the text that was cut off";
    const JoinedOutputs halves = parse_pieces(
        options, pieces, [&](std::size_t left) { return n > 0 && left > n ? left - n : left; },
        false);
    if (halves.lines() != whole.lines()) return "two pieces give\n" + halves.text();
  }
  return {};
}

}  // namespace moepack::test
