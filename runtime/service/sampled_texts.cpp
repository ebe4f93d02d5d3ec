#include "runtime/service/sampled_texts.h"

#include <algorithm>
#include <utility>

#include "runtime/chat/chat_template.h"

namespace moepack {
namespace {

// The parts of ranges within the first `end` bytes.
std::vector<TextRange> ranges_before(const std::vector<TextRange>& ranges, std::size_t end) {
  std::vector<TextRange> parts;
  for (const TextRange& range : ranges) {
    if (range.begin < end) parts.push_back({range.begin, std::min(range.end, end)});
  }
  return parts;
}

bool are_same(const std::vector<TextRange>& a, const std::vector<TextRange>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TextRange& left, const TextRange& right) {
                      return left.begin == right.begin && left.end == right.end;
                    });
}

PromptText part_behind(const PromptText& prompt, std::size_t begin) {
  PromptText rest{.text = prompt.text.substr(begin), .from_user = {}};
  for (const TextRange& range : prompt.from_user) {
    if (range.end > begin) {
      rest.from_user.push_back({std::max(range.begin, begin) - begin, range.end - begin});
    }
  }
  for (const SampledRange& sampled : prompt.sampled) {
    if (sampled.bytes.begin < begin) continue;  // its bytes are text from here on
    rest.sampled.push_back(
        {.bytes = {sampled.bytes.begin - begin, sampled.bytes.end - begin}, .ids = sampled.ids});
  }
  return rest;
}

}  // namespace

bool ends_inside_character(std::string_view text) {
  for (std::size_t behind = 1; behind <= std::min<std::size_t>(text.size(), 4); ++behind) {
    const auto byte = static_cast<unsigned char>(text[text.size() - behind]);
    if (byte < 0x80U) return false;
    if (byte < 0xC0U) continue;  // not its first byte
    return behind < (byte < 0xE0U ? 2U : byte < 0xF0U ? 3U : 4U);
  }
  return false;
}

bool SampledTexts::Entry::begins(const PromptText& prompt) const {
  if (!prompt.text.starts_with(text)) return false;
  if (!are_same(from_user, ranges_before(prompt.from_user, prompt_bytes))) return false;
  return std::none_of(markers.begin(), markers.end(),
                      [&](const TextRange& marker) { return touches(prompt.from_user, marker); });
}

void SampledTexts::remember(const Tokenizer& tokenizer, const PromptText& prompt,
                            const std::vector<std::int32_t>& prompt_ids,
                            const std::vector<std::int32_t>& sampled) {
  if (sampled.empty()) return;
  Entry entry{.text = prompt.text,
              .ids = prompt_ids,
              .prompt_bytes = prompt.text.size(),
              .from_user = ranges_before(prompt.from_user, prompt.text.size()),
              .markers = {}};
  for (const std::int32_t id : sampled) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (tokenizer.added_token(bytes) == id) {
      entry.markers.push_back({entry.text.size(), entry.text.size() + bytes.size()});
    }
    entry.text += bytes;
    entry.ids.push_back(id);
  }
  // What follows is tokenized by itself, from a whole character on. Ids without bytes at the end
  // are no part of the text: the same prompt asked again does not have them.
  while (entry.ids.size() > prompt_ids.size() &&
         (ends_inside_character(entry.text) || tokenizer.bytes(entry.ids.back()).empty())) {
    entry.text.resize(entry.text.size() - tokenizer.bytes(entry.ids.back()).size());
    entry.ids.pop_back();
  }
  const std::lock_guard lock(mutex_);
  if (entry.bytes() > most_bytes_) return;
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (bytes_ > most_bytes_) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
}

Result<std::vector<std::int32_t>> SampledTexts::encode(const Tokenizer& tokenizer,
                                                       const PromptText& prompt) {
  std::vector<std::int32_t> ids;
  std::size_t known = 0;
  {
    const std::lock_guard lock(mutex_);
    auto longest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->text.size() > known && entry->begins(prompt)) {
        longest = entry;
        known = entry->text.size();
      }
    }
    if (longest != entries_.end()) {
      ids = longest->ids;
      entries_.splice(entries_.begin(), entries_, longest);
    }
  }
  if (known == 0) return encode_prompt(tokenizer, prompt);
  if (known == prompt.text.size()) return ids;
  MOE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> rest,
                       encode_prompt(tokenizer, part_behind(prompt, known)));
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

}  // namespace moepack
