// Text that knows which of its bytes came from outside the template.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/memory.h"

namespace moepack::jinja {

// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Unchanging once it is made. UTF-8; a template may write lone surrogates, which are kept in the
// same scheme (three bytes) and refused when the whole output is handed out.
struct Text {
  std::string bytes;
  std::vector<ByteRange> user;  // ascending, apart: what the caller's variables brought
  std::size_t characters = 0;   // code points in `bytes`
  bool safe = false;            // escaped already ("Markup"): plain text added to it is escaped
  Share share;                  // of the run that made it; texts of the template have none
};
using TextPtr = std::shared_ptr<const Text>;

TextPtr make_text(std::string_view bytes, bool from_user = false);

std::size_t count_characters(std::string_view bytes);
// Byte offset of code point `index`, which may be the number of code points.
std::size_t byte_offset(const Text& text, std::size_t index);
bool is_ascii(const Text& text);

class Run;

// Makes a text from pieces and keeps their origin. Every byte is charged to the run, and a text
// beyond the run's limit is a limit error.
class TextBuilder {
 public:
  explicit TextBuilder(Run& run) : run_(run) {}
  void add(std::string_view bytes, bool from_user = false);
  void add(const Text& text) { add(text, 0, text.bytes.size()); }
  // Bytes [begin, end) of `text`.
  void add(const Text& text, std::size_t begin, std::size_t end);
  void set_safe(bool safe) { text_.safe = safe; }
  bool empty() const { return text_.bytes.empty(); }
  std::size_t size() const { return text_.bytes.size(); }
  const Text& view() const { return text_; }
  TextPtr finish();

 private:
  void mark(std::size_t begin, std::size_t end);
  void count();
  Run& run_;
  Text text_;
};

// Bytes [begin, end) as a text of its own; `safe` is kept.
TextPtr slice_bytes(Run& run, const TextPtr& text, std::size_t begin, std::size_t end);

}  // namespace moepack::jinja
