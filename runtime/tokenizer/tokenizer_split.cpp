#include "runtime/tokenizer/tokenizer_split.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "formats/base/utf8.h"
#include "runtime/tokenizer/tokenizer_regex.h"
#include "runtime/tokenizer/tokenizer_unicode.h"

namespace moepack {
namespace {

template <typename T, void (*release)(T*)>
struct Release {
  void operator()(T* p) const { release(p); }
};
template <typename T, void (*release)(T*)>
using Owned = std::unique_ptr<T, Release<T, release>>;

using Code = Owned<pcre2_code, pcre2_code_free>;
using MatchData = Owned<pcre2_match_data, pcre2_match_data_free>;
using MatchContext = Owned<pcre2_match_context, pcre2_match_context_free>;
using CompileContext = Owned<pcre2_compile_context, pcre2_compile_context_free>;
using JitStack = Owned<pcre2_jit_stack, pcre2_jit_stack_free>;

// Compiled patterns begin on 32 KiB of the machine stack; only those that need more get this.
constexpr std::size_t kJitStackStartBytes = 64 << 10;
constexpr std::size_t kJitStackMostBytes = 16 << 20;
constexpr std::uint32_t kHeapMostKib = 1 << 20;
// A repeat that gives back a long run counts one step a character, so steps must scale with the
// text; a pattern that needs more than this for each character does not come to an end.
constexpr std::uint64_t kStepsPerByte = 64;
constexpr std::uint64_t kStepsFloor = 10'000'000;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Applies a SplitBehavior to the alternating gaps and matches of a text.
class Behavior {
 public:
  Behavior(SplitBehavior kind, bool invert, const Splitter::Sink& sink)
      : kind_(kind), invert_(invert), sink_(sink) {}

  Status add(std::string_view part, bool is_match) {
    is_match = is_match != invert_;
    switch (kind_) {
      case SplitBehavior::kIsolated:
        return emit(part);
      case SplitBehavior::kRemoved:
        return is_match ? Status::ok() : emit(part);
      case SplitBehavior::kMergedWithPrevious:
        return merge(part, is_match, is_match && !previous_);
      case SplitBehavior::kMergedWithNext:
        return merge(part, is_match, !is_match && previous_);
      case SplitBehavior::kContiguous:
        return merge(part, is_match, is_match == previous_);
    }
    return Status::ok();
  }

  Status finish() {
    if (!held_.has_value()) return Status::ok();
    const std::string_view last = *held_;
    held_.reset();
    return emit(last);
  }

 private:
  Status emit(std::string_view piece) { return piece.empty() ? Status::ok() : sink_(piece); }

  // Joins `part` to the piece that is held back, or emits that piece and holds `part` back.
  Status merge(std::string_view part, bool is_match, bool join) {
    previous_ = is_match;
    if (join && held_.has_value()) {
      held_ = std::string_view(held_->data(), held_->size() + part.size());
      return Status::ok();
    }
    const std::optional<std::string_view> before = std::exchange(held_, part);
    return before.has_value() ? emit(*before) : Status::ok();
  }

  SplitBehavior kind_;
  bool invert_;
  const Splitter::Sink& sink_;
  bool previous_ = false;
  std::optional<std::string_view> held_;
};

}  // namespace

struct SplitScratch::Impl {
  MatchData data;
  MatchContext context;
  JitStack stack;  // null until a match needs it

  bool grow_stack() {
    if (stack) return false;
    stack.reset(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMostBytes, nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    return stack != nullptr;
  }
};

SplitScratch::SplitScratch() : impl_(std::make_unique<Impl>()) {
  impl_->data.reset(pcre2_match_data_create(1, nullptr));
  impl_->context.reset(pcre2_match_context_create(nullptr));
  if (impl_->context) pcre2_set_heap_limit(impl_->context.get(), kHeapMostKib);
}
SplitScratch::~SplitScratch() = default;

struct Splitter::Impl {
  Code code;     // for any text
  Code library;  // for text without characters younger than PCRE2's tables; null: use `code`
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;

  // The leftmost match from `from` on; empty if there is none.
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool found = false;
  };
  static Result<Match> find(const pcre2_code* pattern, std::string_view text, std::size_t from,
                            SplitScratch::Impl& scratch);
};

Result<Splitter::Impl::Match> Splitter::Impl::find(const pcre2_code* pattern, std::string_view text,
                                                   std::size_t from, SplitScratch::Impl& scratch) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(pattern, subject, text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       scratch.data.get(), scratch.context.get());
  };
  int rc = match(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT && scratch.grow_stack()) rc = match(0);
  // The interpreter keeps its backtracking points on the heap.
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return Match{};
  if (rc < 0) {
    return unsupported(Where{}, "the tokenizer's pattern gives up at text offset " +
                                    std::to_string(from) + " (" + pcre2_message(rc) + ")");
  }
  const std::size_t* ends = pcre2_get_ovector_pointer(scratch.data.get());
  return Match{.begin = ends[0], .end = ends[1], .found = true};
}

Splitter::Splitter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

namespace {

Result<Code> compile_pattern(const std::string& pattern, const SplitSpec& spec,
                             const Where& where) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (context) pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &error_at, context.get()));
  if (!code) {
    return unsupported(where,
                       "pattern \"" + printable(spec.pattern, 80) + "\": " + pcre2_message(error));
  }
  // PCRE2 10.42's compiled code finds matches that are none for (?>.+e|1)\w in "2 1ae-": after an
  // atomic group it skips too much. Without compiled code matching falls back to the interpreter.
  if (pattern.find("(?>") == std::string::npos) {
    (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  }
  return code;
}

}  // namespace

Result<Splitter> Splitter::compile(const SplitSpec& spec, const Where& where) {
  auto impl = std::make_unique<Impl>();
  impl->behavior = spec.behavior;
  impl->invert = spec.invert;
  std::string pattern = quote_for_regex(spec.pattern);
  if (spec.is_regex) {
    MOE_ASSIGN_OR_RETURN(pattern, translate_regex(spec.pattern, CategoryData::kComplete, where));
  }
  MOE_ASSIGN_OR_RETURN(impl->code, compile_pattern(pattern, spec, where));
  if (spec.is_regex) {
    MOE_ASSIGN_OR_RETURN(const std::string library,
                         translate_regex(spec.pattern, CategoryData::kLibrary, where));
    if (library != pattern) {
      MOE_ASSIGN_OR_RETURN(impl->library, compile_pattern(library, spec, where));
    }
  }
  return Splitter(std::move(impl));
}

Status Splitter::split(std::string_view text, SplitScratch& scratch, const Sink& sink) const {
  SplitScratch::Impl& state = *scratch.impl_;
  if (!state.data || !state.context) {
    return Status(StatusCode::kIo, "not enough memory to split text");
  }
  const std::uint64_t steps = kStepsFloor + kStepsPerByte * text.size();
  pcre2_set_match_limit(state.context.get(),
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(
                            steps, std::numeric_limits<std::uint32_t>::max())));

  const bool use_library = impl_->library && !has_character_since_unicode_14(text);
  const pcre2_code* pattern = use_library ? impl_->library.get() : impl_->code.get();

  Behavior behavior(impl_->behavior, impl_->invert, sink);
  std::size_t done = 0;  // end of the last part handed over
  std::size_t from = 0;
  bool matched_before = false;
  while (from <= text.size()) {
    MOE_ASSIGN_OR_RETURN(const Impl::Match match, Impl::find(pattern, text, from, state));
    if (!match.found) break;
    if (match.begin == match.end && matched_before && match.end == done) {
      // An empty match right behind the last one does not count; look one character on.
      if (from == text.size()) break;
      const char* at = text.data() + from;
      next_character(&at);
      from = static_cast<std::size_t>(at - text.data());
      continue;
    }
    if (done < match.begin) {
      MOE_RETURN_IF_ERROR(behavior.add(text.substr(done, match.begin - done), false));
    }
    MOE_RETURN_IF_ERROR(behavior.add(text.substr(match.begin, match.end - match.begin), true));
    done = match.end;
    from = match.end;
    matched_before = true;
  }
  if (done < text.size()) MOE_RETURN_IF_ERROR(behavior.add(text.substr(done), false));
  return behavior.finish();
}

}  // namespace moepack
