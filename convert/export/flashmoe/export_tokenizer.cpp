#include "convert/export/flashmoe/export_tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/config/byte_alphabet.h"

namespace moepack {
namespace {

constexpr std::uint32_t kBpetVersion = 1;
// Ids without a token in real files are few; this bounds what a made-up id can cost.
constexpr std::uint64_t kMaxGaps = 1U << 20;

class Writer {
 public:
  Writer(const std::string& file, std::string& out) : file_(file), out_(out) {}

  void u32(std::uint64_t value) { append(static_cast<std::uint32_t>(value)); }
  Status text(std::string_view text) {
    if (text.size() > std::numeric_limits<std::uint16_t>::max()) {
      return unsupported(
          Where{.file = file_},
          "the token \"" + printable(text, 64) + "\" has " + std::to_string(text.size()) + " bytes",
          "the files of the flash-moe engines hold up to 65535");
    }
    append(static_cast<std::uint16_t>(text.size()));
    out_ += text;
    return Status::ok();
  }

 private:
  template <typename T>
  void append(T value) {
    std::array<char, sizeof(T)> bytes;
    store_le(bytes.data(), value);
    out_.append(bytes.data(), bytes.size());
  }
  const std::string& file_;
  std::string& out_;
};

struct Entry {
  std::string_view text;
  bool used = false;
  bool added = false;
};

Status add_entry(const std::string& file, std::int32_t id, std::string_view text, bool added,
                 std::vector<Entry>& entries) {
  Entry& entry = entries[static_cast<std::size_t>(id)];
  const bool same_token = added && !entry.added && entry.text == text;
  if (entry.used && !same_token) {
    return corrupt(Where{.file = file}, "id " + std::to_string(id) + " stands for \"" +
                                            printable(entry.text, 64) + "\" and for \"" +
                                            printable(text, 64) + "\"");
  }
  entry = {.text = text, .used = true, .added = added};
  return Status::ok();
}

// Every id's text, added tokens included.
Result<std::vector<Entry>> entries_by_id(const TokenizerSpec& spec, const std::string& file) {
  std::int32_t highest = -1;
  for (const auto& [text, id] : spec.vocab) highest = std::max(highest, id);
  for (const AddedTokenSpec& token : spec.added_tokens) highest = std::max(highest, token.id);
  const std::uint64_t count = static_cast<std::uint64_t>(std::int64_t{highest} + 1);
  if (count == 0) return corrupt(Where{.file = file}, "has no tokens");
  if (count > spec.vocab.size() + spec.added_tokens.size() + kMaxGaps) {
    return corrupt(Where{.file = file},
                   "id " + std::to_string(highest) + " is far beyond the number of tokens");
  }
  std::vector<Entry> entries(count);
  for (const auto& [text, id] : spec.vocab) {
    MOE_RETURN_IF_ERROR(add_entry(file, id, text, false, entries));
  }
  for (const AddedTokenSpec& token : spec.added_tokens) {
    MOE_RETURN_IF_ERROR(add_entry(file, token.id, token.content, true, entries));
  }
  return entries;
}

}  // namespace

Result<std::string> tokenizer_bin(const TokenizerSpec& spec, const std::string& file) {
  if (spec.symbols != SymbolKind::kBytes) {
    return unsupported(Where{.file = file},
                       "is over characters with byte fallback, which tokenizer.bin cannot say");
  }
  std::string out = "BPET";
  Writer writer(file, out);
  writer.u32(kBpetVersion);
  writer.u32(spec.vocab.size());
  writer.u32(spec.merges.size());
  writer.u32(spec.added_tokens.size());
  std::vector<const std::pair<std::string, std::int32_t>*> tokens;
  for (const auto& token : spec.vocab) tokens.push_back(&token);
  std::sort(tokens.begin(), tokens.end(),
            [](const auto* a, const auto* b) { return a->second < b->second; });
  for (const auto* token : tokens) {
    writer.u32(static_cast<std::uint64_t>(token->second));
    MOE_RETURN_IF_ERROR(writer.text(token->first));
  }
  for (const auto& [left, right] : spec.merges) {
    MOE_RETURN_IF_ERROR(writer.text(left));
    MOE_RETURN_IF_ERROR(writer.text(right));
  }
  for (const AddedTokenSpec& token : spec.added_tokens) {
    writer.u32(static_cast<std::uint64_t>(token.id));
    MOE_RETURN_IF_ERROR(writer.text(token.content));
  }
  return out;
}

Result<VocabFile> vocab_bin(const TokenizerSpec& spec, VocabBytes form, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Entry> entries, entries_by_id(spec, file));
  VocabFile vocab;
  vocab.entries = static_cast<std::uint32_t>(entries.size());
  Writer writer(file, vocab.bytes);
  writer.u32(entries.size());
  writer.u32(entries.size() - 1);
  std::string bytes;
  for (const Entry& entry : entries) {
    if (!entry.used) ++vocab.gaps;
    // Decoders take a text with a character outside the alphabet as it reads.
    const bool raw =
        form == VocabBytes::kRaw && !entry.added && from_byte_alphabet(entry.text, &bytes);
    MOE_RETURN_IF_ERROR(writer.text(raw ? std::string_view(bytes) : entry.text));
  }
  return vocab;
}

}  // namespace moepack
