// BPE as HuggingFace's tokenizer.json describes it, over bytes or over characters with byte
// fallback, exact for any text of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/tokenizer/tokenizer_added.h"

namespace moepack {

struct TokenizerSpec;

// Unchanging once it is loaded: const functions may be called from any number of threads.
class Tokenizer {
 public:
  // kUnsupported, by name, for whatever is not implemented (other models, normalizers,
  // pre-tokenizers); kCorrupt for a file that is broken.
  // load() also reads the tokenizer_config.json beside it, for begin_of_text() alone.
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);
  static Result<Tokenizer> parse(std::string_view json, const std::string& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of `text`, which is UTF-8; invalid bytes are kCorrupt with the offset. Added tokens in
  // the text are recognised.
  Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  // The same, but the bytes in `literal` (ascending, apart from each other) are no part of added
  // tokens: what spells one there, or begins or ends there, is text like any other. What goes into
  // `literal` is what somebody else wrote: contents, names, arguments, schemas. Words of a fixed
  // list that the caller has checked, such as roles, are not: templates build markers around them.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           std::span<const LiteralRange> literal) const;

  // What the model expects before a text that begins a sequence (begin_of_text.h); may be empty.
  std::span<const std::int32_t> begin_of_text() const;
  // Puts it before the ids of such a text, unless they begin with it already. Not for prompts of a
  // chat template, which writes it itself. Returns how many ids it has put there.
  std::size_t begin_text(std::vector<std::int32_t>& ids) const;

  // Number of ids: the highest id + 1, holes included. Logits beyond it are padding.
  std::int32_t size() const;
  // The bytes that an id stands for, which for special tokens are their literal text; empty for
  // unknown ids. They live as long as the tokenizer.
  std::string_view bytes(std::int32_t id) const;
  // True for added tokens marked special.
  bool is_special(std::int32_t id) const;
  // The id of an added token's exact text, or -1.
  std::int32_t added_token(std::string_view content) const;

  // All bytes of `ids`; sequences that are not UTF-8 become U+FFFD, one per maximal invalid part,
  // as HuggingFace's ByteLevel decoder does. (Its ByteFallback decoder makes one of every byte of a
  // run of byte tokens that is not UTF-8 as a whole; nobody can know that before the run ends, so
  // ours are as with ByteLevel.) Where the decoder strips a space at the begin of a text, so does
  // this.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

 private:
  struct Impl;
  // `config`: the tokenizer_config.json; empty: there is none.
  static Result<Tokenizer> make(const TokenizerSpec& spec, const std::string& file,
                                const std::filesystem::path& config);
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns ids into text piece by piece without ever splitting a character: the pieces concatenated
// (finish() included) equal Tokenizer::decode of the same ids, but for a space at the begin that
// decode strips: what is written here goes on from a prompt. Used by one thread; the tokenizer
// outlives it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // The complete characters that `id` finishes; may be empty.
  std::string push(std::int32_t id);
  // What is left at the end of the text: an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace moepack
