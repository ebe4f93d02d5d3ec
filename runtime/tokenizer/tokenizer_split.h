// Cuts text into pre-tokens as the Split step of a tokenizer.json does.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {

// What one thread needs to match with any number of splitters. Two threads must not use it at the
// same time.
class SplitScratch {
 public:
  SplitScratch();
  ~SplitScratch();
  SplitScratch(const SplitScratch&) = delete;
  SplitScratch& operator=(const SplitScratch&) = delete;

 private:
  friend class Splitter;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Immutable once made; may be used by any number of threads, each with a scratch of its own.
class Splitter {
 public:
  // kUnsupported with the position for patterns that translate_regex refuses.
  static Result<Splitter> compile(const SplitSpec& spec, const Where& where);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  using Sink = std::function<Status(std::string_view piece)>;
  // Hands the pieces of `text` (valid UTF-8) to `sink` in order, none of them empty. For the usual
  // patterns time is linear in the text; a pattern that backtracks without end is kUnsupported with
  // the offset in `text` where it gave up.
  Status split(std::string_view text, SplitScratch& scratch, const Sink& sink) const;

 private:
  struct Impl;
  explicit Splitter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
