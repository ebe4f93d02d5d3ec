// Texts as they were sampled, id by id. A history that comes back is tokenized anew, and the same
// bytes may split in another way than they were sampled: the states that are kept would end there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/prompt_text.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

// Bounded: the texts used least recently are forgotten. Any thread.
class SampledTexts {
 public:
  explicit SampledTexts(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // `ids` are those of `prompt`, then those that were sampled behind it.
  void remember(const Tokenizer& tokenizer, const PromptText& prompt,
                const std::vector<std::int32_t>& prompt_ids,
                const std::vector<std::int32_t>& sampled);
  // The ids of a prompt: those remembered of the longest text that it begins with and that has the
  // same origin byte by byte, then those of the rest. A marker that was sampled as a token is only
  // taken for one where the prompt does not say that its bytes came from a message. The errors of
  // encode_prompt().
  Result<std::vector<std::int32_t>> encode(const Tokenizer& tokenizer, const PromptText& prompt);

 private:
  struct Entry {
    std::string text;
    std::vector<std::int32_t> ids;
    std::size_t prompt_bytes = 0;
    std::vector<TextRange> from_user;  // of the prompt
    std::vector<TextRange> markers;    // bytes of added tokens that were sampled

    std::size_t bytes() const { return text.size() + ids.size() * sizeof(std::int32_t); }
    bool begins(const PromptText& prompt) const;
  };

  std::size_t most_bytes_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // the newest first
};

// Whether the last character of UTF-8 lacks bytes.
bool ends_inside_character(std::string_view text);

}  // namespace moepack
