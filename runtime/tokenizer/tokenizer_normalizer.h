// The normalizer of a tokenizer.json: what becomes of a text before it is cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/config/tokenizer_json.h"

namespace moepack {

// Immutable; any number of threads.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const TokenizerSpec& spec)
      : nfc_(spec.nfc), replacements_(spec.replacements) {}

  bool changes_text() const { return nfc_ || !replacements_.empty(); }
  // The normalized form of `text`, valid UTF-8: `text` itself where nothing changes, else a view of
  // `storage`, which must live as long.
  std::string_view normalize(std::string_view text, std::string& storage) const;

 private:
  bool nfc_ = false;
  std::vector<TextReplacement> replacements_;
};

// `text` with every `pattern`, which is not empty, replaced.
std::string replace_text(std::string_view text, std::string_view pattern,
                         std::string_view replacement);

}  // namespace moepack
