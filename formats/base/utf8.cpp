#include "formats/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace moepack {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t length = 0;  // bytes looked at that belong together
  enum { kValid, kInvalid, kIncomplete } state = kValid;
};

// Bytes the lead byte asks for, 0 if it cannot lead, and the range of the second byte, which rules
// out overlong forms, surrogates and values beyond U+10FFFF (Unicode 15.0, table 3-7).
struct Lead {
  std::size_t length;
  unsigned char second_low;
  unsigned char second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The sequence at the head of `bytes` (not empty).
Sequence sequence_at(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.length == 0) return {1, Sequence::kInvalid};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {i, Sequence::kIncomplete};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {i, Sequence::kInvalid};
  }
  return {lead.length, Sequence::kValid};
}

// Length of the ASCII run at the head.
std::size_t ascii_prefix(std::string_view bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
  }
  while (i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
  return i;
}

// Length of the valid prefix; `stop` describes what follows it.
std::size_t valid_prefix(std::string_view bytes, Sequence* stop) {
  std::size_t i = 0;
  *stop = {};
  while (true) {
    i += ascii_prefix(bytes.substr(i));
    if (i == bytes.size()) return i;
    const Sequence sequence = sequence_at(bytes.substr(i));
    if (sequence.state != Sequence::kValid) {
      *stop = sequence;
      return i;
    }
    i += sequence.length;
  }
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  Sequence stop;
  const std::size_t valid = valid_prefix(text, &stop);
  return valid == text.size() ? std::string_view::npos : valid;
}

char32_t next_character(const char** at) {
  const auto* p = reinterpret_cast<const unsigned char*>(*at);
  const auto tail = [p](std::size_t i) { return static_cast<char32_t>(p[i] & 0x3F); };
  if (p[0] < 0x80) {
    *at += 1;
    return p[0];
  }
  if (p[0] < 0xE0) {
    *at += 2;
    return (static_cast<char32_t>(p[0] & 0x1F) << 6) | tail(1);
  }
  if (p[0] < 0xF0) {
    *at += 3;
    return (static_cast<char32_t>(p[0] & 0x0F) << 12) | (tail(1) << 6) | tail(2);
  }
  *at += 4;
  return (static_cast<char32_t>(p[0] & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3);
}

char32_t previous_character(const char** at) {
  do {
    --*at;
  } while ((static_cast<unsigned char>(**at) & 0xC0) == 0x80);
  const char* copy = *at;
  return next_character(&copy);
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::size_t append_lossy_utf8(std::string_view bytes, bool at_end, std::string& out) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    Sequence stop;
    const std::size_t valid = valid_prefix(bytes.substr(done), &stop);
    out.append(bytes.substr(done, valid));
    done += valid;
    if (done == bytes.size()) break;
    if (stop.state == Sequence::kIncomplete && !at_end) break;
    out += kReplacement;
    done += stop.length;
  }
  return done;
}

}  // namespace moepack
