#include "runtime/serve/answer_blocks.h"

#include <utility>

namespace moepack {

std::vector<BlockStep> AnswerBlocks::on_event(const AnswerEvent& event) {
  std::vector<BlockStep> steps;
  if (event.choice != 0) return steps;
  const AnswerEventBody& body = event.body;
  if (const auto* reasoning = std::get_if<ReasoningText>(&body)) {
    add_text(AnswerBlock::Kind::kReasoning, reasoning->text, reasoning->logprobs, steps);
  } else if (const auto* content = std::get_if<ContentText>(&body)) {
    add_text(AnswerBlock::Kind::kText, content->text, content->logprobs, steps);
  } else if (const auto* begin = std::get_if<CallBegin>(&body)) {
    begin_call(*begin, steps);
  } else if (const auto* arguments = std::get_if<CallArguments>(&body)) {
    add_arguments(*arguments, steps);
  } else if (const auto* call_end = std::get_if<CallEnd>(&body)) {
    if (is_in_call(call_end->call)) close(true, steps);
  } else if (const auto* end = std::get_if<AnswerEnd>(&body)) {
    const bool is_whole = end->reason == AnswerEndReason::kStop ||
                          end->reason == AnswerEndReason::kStopText ||
                          end->reason == AnswerEndReason::kToolCalls;
    if (is_open_) close(is_whole && blocks_.back().kind != AnswerBlock::Kind::kCall, steps);
  }
  return steps;
}

std::vector<BlockStep> AnswerBlocks::open_early(AnswerBlock::Kind kind) {
  std::vector<BlockStep> steps;
  AnswerBlock block;
  block.kind = kind;
  if (!is_open_) open(std::move(block), steps);
  return steps;
}

void AnswerBlocks::add_text(AnswerBlock::Kind kind, const std::string& text,
                            const std::vector<TokenLogprobs>& logprobs,
                            std::vector<BlockStep>& steps) {
  if (text.empty()) return;
  if (!is_open_ || blocks_.back().kind != kind) {
    AnswerBlock block;
    block.kind = kind;
    open(std::move(block), steps);
  }
  AnswerBlock& block = blocks_.back();
  block.text += text;
  block.logprobs.insert(block.logprobs.end(), logprobs.begin(), logprobs.end());
  steps.push_back({.kind = BlockStep::Kind::kDelta,
                   .block = blocks_.size() - 1,
                   .text = text,
                   .logprobs = logprobs});
}

void AnswerBlocks::begin_call(const CallBegin& begin, std::vector<BlockStep>& steps) {
  AnswerBlock block;
  block.kind = AnswerBlock::Kind::kCall;
  block.id = begin.id;
  block.name = begin.name;
  open(std::move(block), steps);
  call_ = begin.call;
}

void AnswerBlocks::add_arguments(const CallArguments& arguments, std::vector<BlockStep>& steps) {
  if (arguments.fragment.empty() || !is_in_call(arguments.call)) return;
  blocks_.back().text += arguments.fragment;
  steps.push_back(
      {.kind = BlockStep::Kind::kDelta, .block = blocks_.size() - 1, .text = arguments.fragment});
}

bool AnswerBlocks::is_in_call(std::size_t call) const {
  return is_open_ && blocks_.back().kind == AnswerBlock::Kind::kCall && call_ == call;
}

void AnswerBlocks::open(AnswerBlock block, std::vector<BlockStep>& steps) {
  // A call that something else interrupts was never ended.
  if (is_open_) close(blocks_.back().kind != AnswerBlock::Kind::kCall, steps);
  blocks_.push_back(std::move(block));
  is_open_ = true;
  steps.push_back({.kind = BlockStep::Kind::kOpen, .block = blocks_.size() - 1});
}

void AnswerBlocks::close(bool is_complete, std::vector<BlockStep>& steps) {
  blocks_.back().is_complete = is_complete;
  is_open_ = false;
  steps.push_back({.kind = BlockStep::Kind::kClose, .block = blocks_.size() - 1});
}

}  // namespace moepack
