#include "runtime/tokenizer/tokenizer_nfc.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <utf8proc.h>

#include "formats/base/utf8.h"
#include "runtime/tokenizer/tokenizer_unicode.h"

namespace moepack {
namespace {

// Every character below U+0300 is its own form C; its UTF-8 begins with a byte below
// kFirstMarkLead.
constexpr char32_t kFirstMark = 0x300;
constexpr unsigned char kFirstMarkLead = 0xCC;

const char* skip_below_first_mark(const char* at, const char* end) {
  return std::find_if(at, end,
                      [](char c) { return static_cast<unsigned char>(c) >= kFirstMarkLead; });
}

class NfcWriter {
 public:
  explicit NfcWriter(std::string& out) : out_(out) {}

  // Adds a stretch that ends where starts_nfc_segment() says so, or beside an inert character.
  void add_segment(const char* begin, const char* end) {
    buffer_.clear();
    bool changed = false;
    for (const char* at = begin; at < end;) changed = decompose(next_character(&at)) || changed;
    if (!changed && buffer_.size() <= 1) {
      out_.append(begin, end);
      return;
    }
    order();
    const auto composed = utf8proc_normalize_utf32(
        buffer_.data(), static_cast<utf8proc_ssize_t>(buffer_.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    for (utf8proc_ssize_t i = 0; i < composed; ++i) {
      append_utf8(static_cast<char32_t>(buffer_[static_cast<std::size_t>(i)]), out_);
    }
  }

 private:
  // Appends the canonical decomposition; true if that is more than the character itself.
  bool decompose(char32_t character) {
    constexpr utf8proc_ssize_t kMost = 8;
    utf8proc_int32_t parts[kMost];
    int boundary_class = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(character), parts, kMost,
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary_class);
    if (count < 1 || count > kMost) {  // no canonical decomposition is longer than 4
      buffer_.push_back(static_cast<utf8proc_int32_t>(character));
      return false;
    }
    buffer_.insert(buffer_.end(), parts, parts + count);
    return count > 1 || parts[0] != static_cast<utf8proc_int32_t>(character);
  }

  static int combining_class(utf8proc_int32_t character) {
    return utf8proc_get_property(character)->combining_class;
  }

  // The canonical ordering algorithm, as one stable sort of every run of marks: utf8proc's own is
  // quadratic in the length of the run.
  void order() {
    auto at = buffer_.begin();
    while (at != buffer_.end()) {
      const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
      const auto first = std::find_if(at, buffer_.end(), is_mark);
      const auto last = std::find_if_not(first, buffer_.end(), is_mark);
      if (last - first > 1) {
        std::stable_sort(first, last, [](utf8proc_int32_t a, utf8proc_int32_t b) {
          return combining_class(a) < combining_class(b);
        });
      }
      at = last;
    }
  }

  std::string& out_;
  std::vector<utf8proc_int32_t> buffer_;
};

}  // namespace

bool starts_nfc_segment(char32_t character) {
  struct Range {
    char32_t first, last;
  };
  // Starters that are never the second half of a composition, in the scripts most written.
  static constexpr Range kRanges[] = {
      {0x0, 0x2FF},     {0x391, 0x482},   {0x48A, 0x52F},     {0x2000, 0x200B},   {0x2010, 0x20CF},
      {0x2100, 0x2BFF}, {0x2E80, 0x3029}, {0x3030, 0x3098},   {0x309B, 0xA48C},   {0xAC00, 0xD7A3},
      {0xF900, 0xFAFF}, {0xFF01, 0xFFEF}, {0x1F000, 0x1FBFF}, {0x20000, 0x3FFFD},
  };
  for (const Range& range : kRanges) {
    if (character <= range.last) return character >= range.first;
  }
  return false;
}

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  const char* const end = text.data() + text.size();
  const char* at = skip_below_first_mark(text.data(), end);
  if (at == end) return text;

  storage.clear();
  storage.reserve(text.size());
  NfcWriter normalizer(storage);
  const char* segment = text.data();  // everything before it is done
  while (at < end) {
    // [segment, at) is below U+0300; only its last character can combine with what comes.
    if (segment < at) {
      const char* last = at;
      previous_character(&last);
      storage.append(segment, last);
      segment = last;
    }
    bool below_first_mark = false;
    while (at < end && !below_first_mark) {
      const char* const here = at;
      const char32_t character = next_character(&at);
      const bool starts = starts_nfc_segment(character);
      const bool inert = !starts && is_inert_in_unicode_9(character);
      if (!starts && !inert) continue;
      normalizer.add_segment(segment, here);
      segment = here;
      if (inert) {
        storage.append(here, at);
        segment = at;
      }
      below_first_mark = character < kFirstMark;
    }
    if (below_first_mark) {
      at = skip_below_first_mark(at, end);
    } else {
      normalizer.add_segment(segment, end);
      segment = end;
    }
  }
  storage.append(segment, end);
  return storage;
}

}  // namespace moepack
