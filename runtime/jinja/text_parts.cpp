#include "runtime/jinja/text_parts.h"

#include <algorithm>

#include "runtime/jinja/methods.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

char32_t character_at(std::string_view text, std::size_t at) { return take_character(text, at); }

std::u32string sorted_characters(const std::string& bytes) {
  std::u32string set;
  for (std::size_t at = 0; at < bytes.size();) set += take_character(bytes, at);
  std::sort(set.begin(), set.end());
  return set;
}

constexpr std::size_t kLongWanted = 64;
constexpr std::size_t kMostWanted = 4 << 20;

// A short text may be compared with nearly all of it at every byte.
void charge_search(Run& run, std::size_t searched, std::size_t wanted) {
  run.charge_bytes(searched * (1 + std::min(wanted, kLongWanted) / 4) + wanted);
}

// Knuth, Morris and Pratt's search: its time does not grow with the product of the sizes.
template <bool kFromRight>
std::size_t find_long(std::string_view text, std::string_view wanted) {
  if (wanted.size() > kMostWanted) fail("a search for a text this long", ErrorKind::kLimit);
  const auto same = [](std::string_view a, std::size_t i, std::string_view b, std::size_t k) {
    return kFromRight ? a[a.size() - 1 - i] == b[b.size() - 1 - k] : a[i] == b[k];
  };
  std::vector<std::uint32_t> border(wanted.size());
  const auto extend = [&](std::string_view of, std::size_t i, std::size_t matched) -> std::size_t {
    while (matched > 0 && !same(of, i, wanted, matched)) matched = border[matched - 1];
    return matched + static_cast<std::size_t>(same(of, i, wanted, matched));
  };
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    border[i] = static_cast<std::uint32_t>(extend(wanted, i, border[i - 1]));
  }
  std::size_t matched = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    matched = extend(text, i, matched);
    if (matched == wanted.size()) return kFromRight ? text.size() - 1 - i : i + 1 - matched;
  }
  return std::string_view::npos;
}

}  // namespace

std::size_t find_part(Run& run, std::string_view text, std::string_view wanted, std::size_t from) {
  from = std::min(from, text.size());
  const bool is_long = wanted.size() > kLongWanted && wanted.size() <= text.size() - from;
  std::size_t at = is_long ? find_long<false>(text.substr(from), wanted) : text.find(wanted, from);
  if (is_long && at != std::string_view::npos) at += from;
  charge_search(run, std::min(at, text.size()) - from, wanted.size());
  return at;
}

std::size_t rfind_part(Run& run, std::string_view text, std::string_view wanted) {
  const bool is_long = wanted.size() > kLongWanted && wanted.size() <= text.size();
  const std::size_t at = is_long ? find_long<true>(text, wanted) : text.rfind(wanted);
  charge_search(run, text.size() - (at == std::string_view::npos ? 0 : at), wanted.size());
  return at;
}

TextPtr strip_text(Run& run, const TextPtr& text, const Text* characters, bool left, bool right) {
  const std::string& bytes = text->bytes;
  std::u32string set;
  if (characters != nullptr) {
    run.charge(characters->bytes.size());
    set = sorted_characters(characters->bytes);
  }
  const auto goes = [&](char32_t character) {
    return characters == nullptr ? is_space(character)
                                 : std::binary_search(set.begin(), set.end(), character);
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (left && begin < end && goes(character_at(bytes, begin))) {
    begin += character_bytes(bytes, begin);
  }
  while (right && end > begin) {
    const std::size_t before = character_before(bytes, end);
    if (!goes(character_at(bytes, before))) break;
    end = before;
  }
  run.charge((begin + bytes.size() - end) / 16);
  return slice_bytes(run, text, begin, end);
}

std::vector<Value> split_text(Run& run, const TextPtr& text, const Text& separator,
                              std::int64_t most, bool from_right) {
  const std::string& bytes = text->bytes;
  if (separator.bytes.empty()) fail("empty separator");
  std::vector<Value> parts;
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (most != 0) {
    const std::size_t at =
        from_right ? rfind_part(run, std::string_view(bytes).substr(0, end), separator.bytes)
                   : find_part(run, bytes, separator.bytes, begin);
    if (at == std::string::npos) break;
    run.charge_item(parts.size());
    if (from_right) {
      parts.emplace_back(slice_bytes(run, text, at + separator.bytes.size(), end));
      end = at;
    } else {
      parts.emplace_back(slice_bytes(run, text, begin, at));
      begin = at + separator.bytes.size();
    }
    --most;
  }
  parts.emplace_back(slice_bytes(run, text, begin, end));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_blanks(Run& run, const TextPtr& text, std::int64_t most, bool from_right) {
  const std::string& bytes = text->bytes;
  std::vector<Value> parts;
  run.charge(bytes.size() / 16);
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  const auto skip_left = [&] {
    while (begin < end && is_space(character_at(bytes, begin)))
      begin += character_bytes(bytes, begin);
  };
  const auto skip_right = [&] {
    while (end > begin && is_space(character_at(bytes, character_before(bytes, end)))) {
      end = character_before(bytes, end);
    }
  };
  for (from_right ? skip_right() : skip_left(); begin < end && most != 0; --most) {
    run.charge_item(parts.size());
    if (from_right) {
      std::size_t at = end;
      while (at > begin && !is_space(character_at(bytes, character_before(bytes, at)))) {
        at = character_before(bytes, at);
      }
      parts.emplace_back(slice_bytes(run, text, at, end));
      end = at;
      skip_right();
    } else {
      std::size_t at = begin;
      while (at < end && !is_space(character_at(bytes, at))) at += character_bytes(bytes, at);
      parts.emplace_back(slice_bytes(run, text, begin, at));
      begin = at;
      skip_left();
    }
  }
  // What is left after the last cut keeps its inner blanks and those at its far end.
  if (begin < end) parts.emplace_back(slice_bytes(run, text, begin, end));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_lines(Run& run, const TextPtr& text, bool keep_ends) {
  const std::string& bytes = text->bytes;
  run.charge(bytes.size() / 16);
  std::vector<Value> lines;
  for (std::size_t begin = 0; begin < bytes.size();) {
    std::size_t end = begin;
    while (end < bytes.size() && !is_line_break(character_at(bytes, end))) {
      end += character_bytes(bytes, end);
    }
    std::size_t next = end;
    if (next < bytes.size()) {
      next += bytes.compare(end, 2, "\r\n") == 0 ? 2 : character_bytes(bytes, end);
    }
    run.charge_item(lines.size());
    lines.emplace_back(slice_bytes(run, text, begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

TextPtr replace_text(Run& run, const TextPtr& text, const Text& old, const Text& by,
                     std::int64_t most) {
  const std::string& bytes = text->bytes;
  TextBuilder out(run);
  out.set_safe(text->safe);
  std::size_t kept = 0;
  if (old.bytes.empty()) {  // before every character and at the end
    for (std::size_t at = 0; most != 0 && at <= bytes.size(); --most) {
      run.charge(1);
      out.add(*text, kept, at);
      out.add(by);
      kept = at;
      at += at < bytes.size() ? character_bytes(bytes, at) : 1;
    }
  } else {
    for (std::size_t at = find_part(run, bytes, old.bytes, 0); most != 0 && at != std::string::npos;
         at = find_part(run, bytes, old.bytes, kept), --most) {
      run.charge(1);
      out.add(*text, kept, at);
      out.add(by);
      kept = at + old.bytes.size();
    }
  }
  out.add(*text, kept, bytes.size());
  return out.finish();
}

TextPtr pad_text(Run& run, const Text& text, std::int64_t width, const std::string& fill,
                 char align) {
  if (count_characters(fill) != 1) fail("The fill character must be exactly one character long");
  const auto size = static_cast<std::int64_t>(text.characters);
  const std::int64_t room = std::max<std::int64_t>(width - size, 0);
  // str.center puts the odd one to the left where the width is odd.
  const std::int64_t before = align == '<'   ? 0
                              : align == '>' ? room
                                             : room / 2 + (room & width & 1);
  TextBuilder out(run);
  const auto add_fill = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      run.charge(1);
      out.add(fill);
    }
  };
  add_fill(before);
  out.add(text);
  add_fill(room - before);
  out.set_safe(text.safe);
  return out.finish();
}

bool has_case(const Text& text, bool upper) {
  bool any = false;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const char32_t character = take_character(text.bytes, at);
    if (upper ? is_lower(character) || is_title(character)
              : is_upper(character) || is_title(character)) {
      return false;
    }
    any = any || (upper ? is_upper(character) : is_lower(character));
  }
  return any;
}

}  // namespace moepack::jinja
