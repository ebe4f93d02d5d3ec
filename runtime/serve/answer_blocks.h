// An answer's events as a row of blocks, one behind the other: thoughts, texts, calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/service/answer_events.h"

namespace moepack {

struct AnswerBlock {
  enum class Kind : std::uint8_t { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string text;      // of a call: its arguments
  std::string id, name;  // of a call
  std::vector<TokenLogprobs> logprobs;
  // A call that was ended; any other block that was not cut off by a limit.
  bool is_complete = false;
};

struct BlockStep {
  enum class Kind : std::uint8_t { kOpen, kDelta, kClose };
  Kind kind = Kind::kOpen;
  std::size_t block = 0;  // its index: 0, 1, 2, …
  std::string text = {};  // of a delta: what was added; never empty
  std::vector<TokenLogprobs> logprobs = {};
};

// At most one block is open at a time, and a closed one stays closed: what both protocols of blocks
// ask of a stream. Events of other choices than 0 are ignored, and so are arguments of a call that
// is not open. Not thread-safe.
class AnswerBlocks {
 public:
  std::vector<BlockStep> on_event(const AnswerEvent& event);
  // Opens a block before anything is known of it, if none is open.
  std::vector<BlockStep> open_early(AnswerBlock::Kind kind);

  const std::vector<AnswerBlock>& blocks() const { return blocks_; }
  bool is_open() const { return is_open_; }  // the last block

 private:
  void add_text(AnswerBlock::Kind kind, const std::string& text,
                const std::vector<TokenLogprobs>& logprobs, std::vector<BlockStep>& steps);
  void begin_call(const CallBegin& begin, std::vector<BlockStep>& steps);
  void add_arguments(const CallArguments& arguments, std::vector<BlockStep>& steps);
  void open(AnswerBlock block, std::vector<BlockStep>& steps);
  void close(bool is_complete, std::vector<BlockStep>& steps);
  bool is_in_call(std::size_t call) const;

  std::vector<AnswerBlock> blocks_;
  bool is_open_ = false;
  std::size_t call_ = 0;  // the number of the open call
};

}  // namespace moepack
