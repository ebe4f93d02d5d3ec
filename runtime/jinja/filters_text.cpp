#include <algorithm>
#include <array>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/format.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/text_parts.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

// Text as it is, safe or not; other values as str() shows them.
TextPtr soft_text(Run& run, const Value& value) {
  return value.text_or_null() != nullptr ? *value.as<TextPtr>() : to_text(run, value);
}

template <CaseChange kChange>
Value change(Run& run, const Value& value, Arguments& arguments) {
  expect_count("a change of case", arguments, 0, 0);
  return change_case(run, *soft_text(run, value), kChange);
}

bool starts_words(char32_t c) {
  return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// Unlike str.title it takes an apostrophe for a part of a word.
Value title(Run& run, const Value& value, Arguments& arguments) {
  expect_count("title", arguments, 0, 0);
  const TextPtr text = soft_text(run, value);
  run.charge_bytes(8 * text->bytes.size());
  TextBuilder out(run);
  for (std::size_t begin = 0; begin < text->bytes.size();) {
    std::size_t end = begin;
    std::size_t at = begin;
    const bool gap = starts_words(take_character(text->bytes, at));
    while (end < text->bytes.size()) {
      std::size_t next = end;
      if (starts_words(take_character(text->bytes, next)) != gap) break;
      end = next;
    }
    const std::size_t first = begin + character_bytes(text->bytes, begin);
    out.add(*change_case(run, *slice_bytes(run, text, begin, first), CaseChange::kUpper));
    out.add(*change_case(run, *slice_bytes(run, text, first, end), CaseChange::kLower));
    begin = end;
  }
  return out.finish();
}

Value string(Run& run, const Value& value, Arguments& arguments) {
  expect_count("string", arguments, 0, 0);
  return soft_text(run, value);
}

Value safe(Run& run, const Value& value, Arguments& arguments) {
  expect_count("safe", arguments, 0, 0);
  TextBuilder out(run);
  out.add(*to_text(run, value));
  out.set_safe(true);
  return out.finish();
}

template <bool kForce>
Value escape(Run& run, const Value& value, Arguments& arguments) {
  expect_count("escape", arguments, 0, 0);
  const Text* text = value.text_or_null();
  if (!kForce && text != nullptr && text->safe) return value;
  return escape_html(run, *to_text(run, value));
}

Value trim(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value* characters = bound.given(0);
  return strip_text(run, soft_text(run, value),
                    characters == nullptr ? nullptr : need_text(*characters).get(), true, true);
}

Value replace(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const Value* count = bound.given(2);
  return replace_text(run, to_text(run, value), *to_text(run, *bound[0]), *to_text(run, *bound[1]),
                      count == nullptr ? -1 : need_index(*count));
}

Value center(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const std::int64_t width = bound[0] == nullptr ? 80 : need_index(*bound[0]);
  return pad_text(run, *soft_text(run, value), width, " ", '^');
}

Value format(Run& run, const Value& value, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    fail("format takes positional or keyword arguments, not both");
  }
  if (arguments.keywords.empty()) {
    return percent_format(run, soft_text(run, value), Value::tuple(arguments.positional));
  }
  auto named = std::make_shared<Dict>();
  for (const auto& [name, argument] : arguments.keywords) named->set(Value(name), argument);
  return percent_format(run, soft_text(run, value), Value(named));
}

Value indent(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  TextPtr indention;
  if (bound[0] != nullptr && bound[0]->text_or_null() != nullptr) {
    indention = *bound[0]->as<TextPtr>();
  } else {
    const std::int64_t width = bound[0] == nullptr ? 4 : need_index(*bound[0]);
    indention = pad_text(run, *make_text(""), width, " ", '<');
  }
  const TextPtr& given = need_text(value);
  TextBuilder closed(run);
  closed.add(*given);
  closed.add("\n");
  const std::vector<Value> lines = split_lines(run, closed.finish(), false);
  TextBuilder out(run);
  if (bound.flag(run, 1)) out.add(*indention);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text_or_null();
    if (i > 0) {
      out.add("\n");
      if (!line.bytes.empty() || bound.flag(run, 2)) out.add(*indention);
    }
    out.add(line);
  }
  out.set_safe(given->safe);
  return out.finish();
}

Value truncate(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound[0] == nullptr ? 255 : need_index(*bound[0]);
  const TextPtr end = bound.text(2, "...");
  const Value* given_leeway = bound.given(3);
  const std::int64_t leeway = given_leeway == nullptr ? 5 : need_index(*given_leeway);
  const auto end_size = static_cast<std::int64_t>(end->characters);
  if (length < end_size) fail("truncate: the length is less than that of the end");
  if (leeway < 0) fail("truncate: the leeway is negative");
  const auto size = static_cast<std::int64_t>(need_length(run, value));
  if (size <= length + leeway) return value;
  const TextPtr& text = need_text(value);
  run.charge_bytes(text->bytes.size());
  const std::size_t kept = byte_offset(*text, static_cast<std::size_t>(length - end_size));
  const TextPtr head = slice_bytes(run, text, 0, kept);
  const std::size_t blank = bound.flag(run, 1) ? std::string::npos : head->bytes.rfind(' ');
  TextBuilder out(run);
  out.add(*head, 0, std::min(blank, head->bytes.size()));
  out.add(*end);
  return out.finish();
}

Value wordcount(Run& run, const Value& value, Arguments& arguments) {
  expect_count("wordcount", arguments, 0, 0);
  const TextPtr text = soft_text(run, value);
  run.charge_bytes(8 * text->bytes.size());
  std::size_t words = 0;
  bool within = false;
  for (std::size_t at = 0; at < text->bytes.size();) {
    const char32_t c = take_character(text->bytes, at);
    const bool word = c == '_' || is_alphabetic(c) || is_numeric(c);
    words += static_cast<std::size_t>(word && !within);
    within = word;
  }
  return Value::size(words);
}

Value urlencode(Run& run, const Value& value, Arguments& arguments) {
  expect_count("urlencode", arguments, 0, 0);
  if (value.text_or_null() == nullptr && try_iterate(run, value) != nullptr) {
    fail("urlencode of anything but text is not supported", ErrorKind::kUnsupported);
  }
  const TextPtr text = to_text(run, value);
  run.charge_bytes(16 * text->bytes.size());
  TextBuilder out(run);
  for (const char byte : text->bytes) {
    static constexpr std::string_view kPlain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/";
    static constexpr std::string_view kHex = "0123456789ABCDEF";
    const auto bits = static_cast<unsigned char>(byte);
    if (kPlain.find(byte) != std::string_view::npos) {
      out.add(std::string_view(&byte, 1));
    } else {
      const char escaped[] = {'%', kHex[bits >> 4], kHex[bits & 15]};
      out.add(std::string_view(escaped, 3));
    }
  }
  return out.finish();
}

void read_separators(const Value& value, JsonStyle& style) {
  const auto* pair = value.items();
  if (pair == nullptr || pair->size() != 2) fail("tojson: separators must be a pair");
  style.item_separator = need_text((*pair)[0])->bytes;
  style.key_separator = need_text((*pair)[1])->bytes;
}

std::string blanks(std::int64_t count) {
  if (count > 1024) fail("tojson with an indent this large", ErrorKind::kLimit);
  return std::string(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' ');
}

Value tojson(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag(run, 0);
  style.sort_keys = bound.flag(run, 3);
  if (const Value* indent = bound.given(1)) {
    style.item_separator = ",";
    style.indent = indent->text_or_null() != nullptr ? indent->text_or_null()->bytes
                                                     : blanks(need_index(*indent));
  }
  const Value* separators = bound.given(2);
  if (separators != nullptr && truth(run, *separators)) read_separators(*separators, style);
  return to_json(run, value, style);
}

using FilterEntry = std::pair<std::string_view, Filter>;
constexpr std::array kTextFilters = {
    FilterEntry{"capitalize", change<CaseChange::kCapitalize>},
    FilterEntry{"center", center},
    FilterEntry{"e", escape<false>},
    FilterEntry{"escape", escape<false>},
    FilterEntry{"forceescape", escape<true>},
    FilterEntry{"format", format},
    FilterEntry{"indent", indent},
    FilterEntry{"lower", change<CaseChange::kLower>},
    FilterEntry{"replace", replace},
    FilterEntry{"safe", safe},
    FilterEntry{"string", string},
    FilterEntry{"title", title},
    FilterEntry{"tojson", tojson},
    FilterEntry{"trim", trim},
    FilterEntry{"truncate", truncate},
    FilterEntry{"upper", change<CaseChange::kUpper>},
    FilterEntry{"urlencode", urlencode},
    FilterEntry{"wordcount", wordcount},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  const auto* const found =
      std::find_if(kTextFilters.begin(), kTextFilters.end(),
                   [&](const FilterEntry& entry) { return entry.first == name; });
  return found == kTextFilters.end() ? nullptr : found->second;
}

}  // namespace moepack::jinja
