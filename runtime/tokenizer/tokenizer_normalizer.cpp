#include "runtime/tokenizer/tokenizer_normalizer.h"

#include <algorithm>

#include "runtime/tokenizer/tokenizer_nfc.h"

namespace moepack {

std::string replace_text(std::string_view text, std::string_view pattern,
                         std::string_view replacement) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  std::size_t at = 0;
  while (true) {
    const std::size_t found = text.find(pattern, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += replacement;
    at = found + pattern.size();
  }
}

std::string_view Normalizer::normalize(std::string_view text, std::string& storage) const {
  if (nfc_) return normalize_nfc(text, storage);
  for (const TextReplacement& step : replacements_) {
    if (step.pattern.empty()) {
      if (!text.empty()) text = storage = step.replacement + std::string(text);
    } else if (text.find(step.pattern) != std::string_view::npos) {
      text = storage = replace_text(text, step.pattern, step.replacement);
    }
  }
  return text;
}

}  // namespace moepack
