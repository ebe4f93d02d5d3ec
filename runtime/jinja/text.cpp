#include "runtime/jinja/text.h"

#include <algorithm>

#include "runtime/jinja/run.h"

namespace moepack::jinja {

namespace {

constexpr std::size_t kTextBytes = 128;  // of a text beside its characters

}  // namespace

std::size_t count_characters(std::string_view bytes) {
  return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

bool is_ascii(const Text& text) { return text.characters == text.bytes.size(); }

std::size_t byte_offset(const Text& text, std::size_t index) {
  if (is_ascii(text)) return std::min(index, text.bytes.size());
  std::size_t at = 0;
  for (; at < text.bytes.size(); ++at) {
    if ((static_cast<unsigned char>(text.bytes[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return at;
}

TextPtr make_text(std::string_view bytes, bool from_user) {
  auto text = std::make_shared<Text>();
  text->bytes = bytes;
  text->characters = count_characters(bytes);
  if (from_user && !bytes.empty()) text->user.push_back({0, bytes.size()});
  return text;
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!text_.user.empty() && text_.user.back().end == begin) {
    text_.user.back().end = end;
  } else {
    text_.user.push_back({begin, end});
  }
}

// Texts that fit into the object itself are counted by what holds them.
void TextBuilder::count() {
  constexpr std::size_t kWithin = 15;
  if (text_.bytes.capacity() <= kWithin && text_.user.empty()) return;
  text_.share.set(run_.memory(),
                  kTextBytes + text_.bytes.capacity() + text_.user.capacity() * sizeof(ByteRange));
}

void TextBuilder::add(std::string_view bytes, bool from_user) {
  run_.charge_text(text_.bytes.size(), bytes.size());
  const std::size_t begin = text_.bytes.size();
  text_.bytes += bytes;
  if (from_user) mark(begin, text_.bytes.size());
  count();
}

void TextBuilder::add(const Text& text, std::size_t begin, std::size_t end) {
  run_.charge_text(text_.bytes.size(), end - begin);
  const std::size_t base = text_.bytes.size();
  text_.bytes.append(text.bytes, begin, end - begin);
  auto range = std::lower_bound(
      text.user.begin(), text.user.end(), begin,
      [](const ByteRange& user, std::size_t position) { return user.end <= position; });
  for (; range != text.user.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
    run_.charge_bytes(sizeof(ByteRange));
  }
  count();
}

TextPtr TextBuilder::finish() {
  text_.characters = count_characters(text_.bytes);
  return std::make_shared<const Text>(std::move(text_));
}

TextPtr slice_bytes(Run& run, const TextPtr& text, std::size_t begin, std::size_t end) {
  if (begin == 0 && end == text->bytes.size()) return text;
  TextBuilder builder(run);
  builder.add(*text, begin, end);
  builder.set_safe(text->safe);
  return builder.finish();
}

}  // namespace moepack::jinja
