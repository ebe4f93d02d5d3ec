#include <algorithm>
#include <array>
#include <utility>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/format.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/text_parts.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

const TextPtr& self_text(const Value& self) { return *self.as<TextPtr>(); }

template <CaseChange kChange>
Value text_change(Run& run, const Value& self, Arguments& arguments) {
  expect_count("a change of case", arguments, 0, 0);
  return change_case(run, *self_text(self), kChange);
}

template <bool kLeft, bool kRight>
Value text_strip(Run& run, const Value& self, Arguments& arguments) {
  expect_count("strip", arguments, 0, 1);
  const bool given = !arguments.positional.empty() && !arguments.positional[0].is_none();
  const Text* characters = given ? need_text(arguments.positional[0]).get() : nullptr;
  return strip_text(run, self_text(self), characters, kLeft, kRight);
}

template <bool kFromRight>
Value text_split(Run& run, const Value& self, Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const Value* separator = bound.given(0);
  const std::int64_t most = bound[1] == nullptr ? -1 : need_index(*bound[1]);
  const TextPtr& text = self_text(self);
  if (separator == nullptr) return Value::list(split_blanks(run, text, most, kFromRight));
  return Value::list(split_text(run, text, *need_text(*separator), most, kFromRight));
}

Value text_splitlines(Run& run, const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return Value::list(split_lines(run, self_text(self), bound.flag(run, 0)));
}

template <bool kFromRight>
Value text_partition(Run& run, const Value& self, Arguments& arguments) {
  expect_count("partition", arguments, 1, 1);
  const TextPtr& text = self_text(self);
  const std::string& separator = need_text(arguments.positional[0])->bytes;
  if (separator.empty()) fail("empty separator");
  const std::size_t at = kFromRight ? rfind_part(run, text->bytes, separator)
                                    : find_part(run, text->bytes, separator, 0);
  const Value empty = Value::text("");
  if (at == std::string::npos) {
    return Value::tuple(kFromRight ? std::vector<Value>{empty, empty, self}
                                   : std::vector<Value>{self, empty, empty});
  }
  const std::size_t end = at + separator.size();
  return Value::tuple({Value(slice_bytes(run, text, 0, at)), Value(slice_bytes(run, text, at, end)),
                       Value(slice_bytes(run, text, end, text->bytes.size()))});
}

// The bytes between two optional indices of characters; nothing where start lies beyond the end.
std::optional<std::pair<std::size_t, std::size_t>> part_of(const Text& text,
                                                           const Arguments& arguments) {
  const auto size = static_cast<std::int64_t>(text.characters);
  const auto bound = [&](std::size_t i, std::int64_t absent) {
    if (arguments.positional.size() <= i || arguments.positional[i].is_none()) return absent;
    const std::int64_t index = need_index(arguments.positional[i]);
    return index < 0 ? std::max<std::int64_t>(index + size, 0) : index;
  };
  const std::int64_t start = bound(1, 0);
  const std::int64_t end = std::min(bound(2, size), size);
  if (start > end || start > size) return std::nullopt;
  return std::pair(byte_offset(text, static_cast<std::size_t>(start)),
                   byte_offset(text, static_cast<std::size_t>(end)));
}

template <bool kAtEnd>
Value text_has_affix(Run& run, const Value& self, Arguments& arguments) {
  expect_count(kAtEnd ? "endswith" : "startswith", arguments, 1, 3);
  const Text& text = *self_text(self);
  run.charge(text.bytes.size() / 256);
  const auto part = part_of(text, arguments);
  const Value& affixes = arguments.positional[0];
  const auto matches = [&](const Value& affix) {
    const std::string& bytes = need_text(affix)->bytes;
    run.charge(1 + bytes.size() / 64);
    if (!part) return false;
    const std::string_view view =
        std::string_view(text.bytes).substr(part->first, part->second - part->first);
    return kAtEnd ? view.ends_with(bytes) : view.starts_with(bytes);
  };
  const Tuple* several = affixes.tuple_or_null();
  if (several == nullptr) return Value(matches(affixes));
  for (const Value& affix : several->items) {
    if (matches(affix)) return Value(true);
  }
  return Value(false);
}

template <bool kFromRight, bool kMustBe>
Value text_find(Run& run, const Value& self, Arguments& arguments) {
  expect_count("find", arguments, 1, 3);
  const Text& text = *self_text(self);
  run.charge(text.bytes.size() / 64);
  const std::string& wanted = need_text(arguments.positional[0])->bytes;
  const auto part = part_of(text, arguments);
  std::size_t at = std::string_view::npos;
  if (part) {
    const std::string_view view =
        std::string_view(text.bytes).substr(part->first, part->second - part->first);
    at = kFromRight ? rfind_part(run, view, wanted) : find_part(run, view, wanted, 0);
  }
  if (at == std::string_view::npos) {
    if (kMustBe) fail("substring not found");
    return Value::integer(-1);
  }
  return Value::size(count_characters(std::string_view(text.bytes).substr(0, part->first + at)));
}

Value text_count(Run& run, const Value& self, Arguments& arguments) {
  expect_count("count", arguments, 1, 3);
  const Text& text = *self_text(self);
  run.charge(text.bytes.size() / 64);
  const std::string& wanted = need_text(arguments.positional[0])->bytes;
  const auto part = part_of(text, arguments);
  if (!part) return Value::integer(0);
  const std::string_view view =
      std::string_view(text.bytes).substr(part->first, part->second - part->first);
  if (wanted.empty()) return Value::size(count_characters(view) + 1);
  std::size_t found = 0;
  for (std::size_t at = find_part(run, view, wanted, 0); at != std::string_view::npos;
       at = find_part(run, view, wanted, at + wanted.size())) {
    ++found;
  }
  return Value::size(found);
}

Value text_replace(Run& run, const Value& self, Arguments& arguments) {
  expect_count("replace", arguments, 2, 3);
  const std::int64_t most =
      arguments.positional.size() > 2 ? need_index(arguments.positional[2]) : -1;
  const TextPtr& by = need_text(arguments.positional[1]);
  const TextPtr& text = self_text(self);
  const bool escaped = text->safe && !by->safe;
  return replace_text(run, text, *need_text(arguments.positional[0]),
                      escaped ? *escape_html(run, *by) : *by, most);
}

Value text_join(Run& run, const Value& self, Arguments& arguments) {
  expect_count("join", arguments, 1, 1);
  const TextPtr& separator = self_text(self);
  const IteratorPtr items = iterate(run, arguments.positional[0]);
  TextBuilder out(run);
  out.set_safe(separator->safe);
  Value item;
  for (bool first = true; items->next(run, item); first = false) {
    if (!first) out.add(*separator);
    const TextPtr& text = separator->safe ? to_text(run, item) : need_text(item);
    out.add(separator->safe && !(item.text_or_null() != nullptr && item.text_or_null()->safe)
                ? *escape_html(run, *text)
                : *text);
  }
  return out.finish();
}

Value text_format(Run& run, const Value& self, Arguments& arguments) {
  return brace_format(run, self_text(self), arguments);
}

template <char kAlign>
Value text_justify(Run& run, const Value& self, Arguments& arguments) {
  expect_count("justification", arguments, 1, 2);
  const std::string fill =
      arguments.positional.size() > 1 ? need_text(arguments.positional[1])->bytes : " ";
  return pad_text(run, *self_text(self), need_index(arguments.positional[0]), fill, kAlign);
}

Value text_zfill(Run& run, const Value& self, Arguments& arguments) {
  expect_count("zfill", arguments, 1, 1);
  const TextPtr& text = self_text(self);
  const std::int64_t width = need_index(arguments.positional[0]);
  const bool sign = text->bytes.starts_with("-") || text->bytes.starts_with("+");
  TextBuilder out(run);
  if (sign) out.add(*text, 0, 1);
  for (auto size = static_cast<std::int64_t>(text->characters); size < width; ++size) {
    run.charge(1);
    out.add("0");
  }
  out.add(*text, sign ? 1 : 0, text->bytes.size());
  out.set_safe(text->safe);
  return out.finish();
}

template <bool kAtEnd>
Value text_remove_affix(Run& run, const Value& self, Arguments& arguments) {
  expect_count("removal", arguments, 1, 1);
  const TextPtr& text = self_text(self);
  const std::string& affix = need_text(arguments.positional[0])->bytes;
  const std::size_t size = text->bytes.size();
  run.charge(affix.size() / 64);
  if (affix.empty()) return self;
  if (kAtEnd) {
    if (!text->bytes.ends_with(affix)) return self;
    return slice_bytes(run, text, 0, size - affix.size());
  }
  return text->bytes.starts_with(affix) ? Value(slice_bytes(run, text, affix.size(), size)) : self;
}

template <bool (*kIs)(char32_t)>
Value text_all_are(Run& run, const Value& self, Arguments& arguments) {
  expect_count("a question about characters", arguments, 0, 0);
  const std::string& bytes = self_text(self)->bytes;
  run.charge(bytes.size() / 6);
  for (std::size_t at = 0; at < bytes.size();) {
    if (!kIs(take_character(bytes, at))) return Value(false);
  }
  return Value(!bytes.empty());
}

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c) || is_digit(c); }

template <bool kUpper>
Value text_all_cased(Run& run, const Value& self, Arguments& arguments) {
  expect_count("a question about case", arguments, 0, 0);
  run.charge(self_text(self)->bytes.size() / 6);
  return Value(has_case(*self_text(self), kUpper));
}

Value text_istitle(Run& run, const Value& self, Arguments& arguments) {
  expect_count("istitle", arguments, 0, 0);
  bool within = false;
  bool any = false;
  const std::string& bytes = self_text(self)->bytes;
  run.charge(bytes.size() / 6);
  for (std::size_t at = 0; at < bytes.size();) {
    const char32_t character = take_character(bytes, at);
    const bool upper = is_upper(character) || is_title(character);
    if (upper ? within : is_lower(character) && !within) return Value(false);
    within = upper || is_lower(character);
    any = any || within;
  }
  return Value(any);
}

Value text_isascii(Run&, const Value& self, Arguments& arguments) {
  expect_count("isascii", arguments, 0, 0);
  return Value(is_ascii(*self_text(self)));
}

Value not_supported(Run&, const Value&, Arguments&) {
  fail("this method of strings is not supported", ErrorKind::kUnsupported);
}

using MethodEntry = std::pair<std::string_view, Method>;
constexpr std::array kMethods = {
    MethodEntry{"capitalize", text_change<CaseChange::kCapitalize>},
    MethodEntry{"casefold", not_supported},
    MethodEntry{"center", text_justify<'^'>},
    MethodEntry{"count", text_count},
    MethodEntry{"encode", not_supported},
    MethodEntry{"endswith", text_has_affix<true>},
    MethodEntry{"expandtabs", not_supported},
    MethodEntry{"find", text_find<false, false>},
    MethodEntry{"format", text_format},
    MethodEntry{"format_map", not_supported},
    MethodEntry{"index", text_find<false, true>},
    MethodEntry{"isalnum", text_all_are<is_alphanumeric>},
    MethodEntry{"isalpha", text_all_are<is_alphabetic>},
    MethodEntry{"isascii", text_isascii},
    MethodEntry{"isdecimal", text_all_are<is_decimal>},
    MethodEntry{"isdigit", text_all_are<is_digit>},
    MethodEntry{"isidentifier", not_supported},
    MethodEntry{"islower", text_all_cased<false>},
    MethodEntry{"isnumeric", text_all_are<is_numeric>},
    MethodEntry{"isprintable", not_supported},
    MethodEntry{"isspace", text_all_are<is_space>},
    MethodEntry{"istitle", text_istitle},
    MethodEntry{"isupper", text_all_cased<true>},
    MethodEntry{"join", text_join},
    MethodEntry{"ljust", text_justify<'<'>},
    MethodEntry{"lower", text_change<CaseChange::kLower>},
    MethodEntry{"lstrip", text_strip<true, false>},
    MethodEntry{"maketrans", not_supported},
    MethodEntry{"partition", text_partition<false>},
    MethodEntry{"removeprefix", text_remove_affix<false>},
    MethodEntry{"removesuffix", text_remove_affix<true>},
    MethodEntry{"replace", text_replace},
    MethodEntry{"rfind", text_find<true, false>},
    MethodEntry{"rindex", text_find<true, true>},
    MethodEntry{"rjust", text_justify<'>'>},
    MethodEntry{"rpartition", text_partition<true>},
    MethodEntry{"rsplit", text_split<true>},
    MethodEntry{"rstrip", text_strip<false, true>},
    MethodEntry{"split", text_split<false>},
    MethodEntry{"splitlines", text_splitlines},
    MethodEntry{"startswith", text_has_affix<false>},
    MethodEntry{"strip", text_strip<true, true>},
    MethodEntry{"swapcase", text_change<CaseChange::kSwap>},
    MethodEntry{"title", text_change<CaseChange::kTitle>},
    MethodEntry{"translate", not_supported},
    MethodEntry{"upper", text_change<CaseChange::kUpper>},
    MethodEntry{"zfill", text_zfill},
};

}  // namespace

Method find_text_method(std::string_view name) {
  const auto* const found = std::lower_bound(
      kMethods.begin(), kMethods.end(), name,
      [](const MethodEntry& entry, std::string_view wanted) { return entry.first < wanted; });
  return found != kMethods.end() && found->first == name ? found->second : nullptr;
}

}  // namespace moepack::jinja
