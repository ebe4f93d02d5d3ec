#include "runtime/serve/anthropic_answer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/answer_blocks.h"
#include "runtime/serve/answer_failure.h"
#include "runtime/serve/anthropic_errors.h"
#include "runtime/serve/object_text.h"

namespace moepack {
namespace {

// Some clients drop thoughts without a signature from their history.
constexpr const char* kThoughtSignature = "moepack";

std::string_view message_stop_reason(AnswerEndReason reason) {
  switch (reason) {
    case AnswerEndReason::kStopText:
      return "stop_sequence";
    case AnswerEndReason::kToolCalls:
      return "tool_use";
    case AnswerEndReason::kLength:
      return "max_tokens";
    case AnswerEndReason::kContext:
      return "model_context_window_exceeded";
    default:
      return "end_turn";
  }
}

OrderedJson message_usage(std::uint64_t prompt, std::uint64_t cached) {
  OrderedJson usage = OrderedJson::object();
  usage["input_tokens"] = prompt - std::min(prompt, cached);
  usage["cache_creation_input_tokens"] = 0;
  usage["cache_read_input_tokens"] = cached;
  usage["output_tokens"] = 0;
  return usage;
}

OrderedJson message_usage(const AnswerUsage& counts) {
  OrderedJson usage = message_usage(counts.prompt_tokens, counts.cached_tokens);
  usage["output_tokens"] = counts.completion_tokens;
  usage["output_tokens_details"] = {{"thinking_tokens", counts.reasoning_tokens}};
  return usage;
}

// A message without content and counts.
OrderedJson message_frame(const MessageIdentity& identity) {
  OrderedJson message = OrderedJson::object();
  message["id"] = identity.id;
  message["type"] = "message";
  message["role"] = "assistant";
  message["model"] = identity.model;
  message["content"] = OrderedJson::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  return message;
}

void set_stop(OrderedJson& target, const AnswerEnd& end) {
  target["stop_reason"] = message_stop_reason(end.reason);
  target["stop_sequence"] =
      end.reason == AnswerEndReason::kStopText ? OrderedJson(end.stop_text) : OrderedJson(nullptr);
}

OrderedJson empty_block(const AnswerBlock& block) {
  OrderedJson json = OrderedJson::object();
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      json["type"] = "thinking";
      json["thinking"] = "";
      json["signature"] = "";
      break;
    case AnswerBlock::Kind::kText:
      json["type"] = "text";
      json["text"] = "";
      break;
    case AnswerBlock::Kind::kCall:
      json["type"] = "tool_use";
      json["id"] = block.id;
      json["name"] = block.name;
      json["input"] = OrderedJson::object();
      break;
  }
  return json;
}

class MessagesStream final : public StreamWriter {
 public:
  explicit MessagesStream(MessageIdentity identity) : identity_(std::move(identity)) {}
  std::string on_event(const AnswerEvent& event) override;
  std::string keep_alive() override;

 private:
  static std::string named(const OrderedJson& json) {
    return sse_event(dump_json(json), json["type"].get<std::string>());
  }
  std::string start(std::uint64_t prompt, std::uint64_t cached);
  std::string write(const std::vector<BlockStep>& steps);
  std::string write_step(const BlockStep& step);
  std::string write_delta(std::size_t block, const std::string& text);
  std::string write_close(std::size_t block);
  std::string write_end(const AnswerEnd& end);
  std::string fail(const ApiError& error);

  MessageIdentity identity_;
  AnswerBlocks blocks_;
  ObjectText arguments_;  // of the open call
  bool has_started_ = false;
  bool has_ended_ = false;
  bool ends_in_part_ = false;  // the steps at hand come of an AnswerEnd
};

std::string MessagesStream::on_event(const AnswerEvent& event) {
  if (has_ended_ || event.choice != 0) return {};
  if (std::holds_alternative<AnswerQueued>(event.body) ||
      std::holds_alternative<PromptProgress>(event.body)) {
    return {};
  }
  std::string out;
  if (const auto* started = std::get_if<AnswerStarted>(&event.body)) {
    return start(started->prompt_tokens, started->cached_tokens);
  }
  const auto* end = std::get_if<AnswerEnd>(&event.body);
  if (end != nullptr) {
    if (const auto failure = answer_failure(*end)) return fail(*failure);
    out = start(end->usage.prompt_tokens, end->usage.cached_tokens);
    ends_in_part_ = may_end_in_part(*end);
  } else {
    out = start(0, 0);
  }
  out += write(blocks_.on_event(event));
  if (end != nullptr && !has_ended_) out += write_end(*end);
  return out;
}

std::string MessagesStream::keep_alive() {
  if (has_ended_) return {};
  const std::string ping = sse_event(R"({"type":"ping"})", "ping");
  if (!has_started_) return start(0, 0) + ping;
  std::string out = ping;
  out += write(blocks_.open_early(identity_.thinks && blocks_.blocks().empty()
                                      ? AnswerBlock::Kind::kReasoning
                                      : AnswerBlock::Kind::kText));
  return out + write_delta(blocks_.blocks().size() - 1, {});
}

std::string MessagesStream::start(std::uint64_t prompt, std::uint64_t cached) {
  if (has_started_) return {};
  has_started_ = true;
  OrderedJson event = OrderedJson::object();
  event["type"] = "message_start";
  event["message"] = message_frame(identity_);
  event["message"]["usage"] = message_usage(prompt, cached);
  return named(event);
}

std::string MessagesStream::write(const std::vector<BlockStep>& steps) {
  std::string out;
  for (const BlockStep& step : steps) {
    if (has_ended_) break;
    out += write_step(step);
  }
  return out;
}

std::string MessagesStream::write_step(const BlockStep& step) {
  const AnswerBlock& block = blocks_.blocks()[step.block];
  if (step.kind == BlockStep::Kind::kClose) return write_close(step.block);
  if (step.kind == BlockStep::Kind::kOpen) {
    arguments_ = ObjectText();
    OrderedJson event = OrderedJson::object();
    event["type"] = "content_block_start";
    event["index"] = step.block;
    event["content_block"] = empty_block(block);
    return named(event);
  }
  if (block.kind != AnswerBlock::Kind::kCall) return write_delta(step.block, step.text);
  std::string text;
  if (!arguments_.push(step.text, text)) return fail(broken_call(block));
  return text.empty() ? std::string() : write_delta(step.block, text);
}

std::string MessagesStream::write_delta(std::size_t block, const std::string& text) {
  OrderedJson delta = OrderedJson::object();
  switch (blocks_.blocks()[block].kind) {
    case AnswerBlock::Kind::kReasoning:
      delta["type"] = "thinking_delta";
      delta["thinking"] = text;
      break;
    case AnswerBlock::Kind::kText:
      delta["type"] = "text_delta";
      delta["text"] = text;
      break;
    case AnswerBlock::Kind::kCall:
      delta["type"] = "input_json_delta";
      delta["partial_json"] = text;
      break;
  }
  OrderedJson event = OrderedJson::object();
  event["type"] = "content_block_delta";
  event["index"] = block;
  event["delta"] = std::move(delta);
  return named(event);
}

std::string MessagesStream::write_close(std::size_t index) {
  const AnswerBlock& block = blocks_.blocks()[index];
  std::string out;
  if (block.kind == AnswerBlock::Kind::kCall && !ends_in_part_) {
    if (!block.is_complete) return fail(broken_call(block));
    if (arguments_.is_empty()) {
      out += write_delta(index, "{}");
    } else if (!arguments_.is_complete()) {
      return fail(broken_call(block));
    }
  }
  if (block.kind == AnswerBlock::Kind::kReasoning) {
    OrderedJson event = OrderedJson::object();
    event["type"] = "content_block_delta";
    event["index"] = index;
    event["delta"] = {{"type", "signature_delta"}, {"signature", kThoughtSignature}};
    out += named(event);
  }
  OrderedJson event = OrderedJson::object();
  event["type"] = "content_block_stop";
  event["index"] = index;
  return out + named(event);
}

std::string MessagesStream::write_end(const AnswerEnd& end) {
  has_ended_ = true;
  OrderedJson event = OrderedJson::object();
  event["type"] = "message_delta";
  event["delta"] = OrderedJson::object();
  set_stop(event["delta"], end);
  event["usage"] = message_usage(end.usage);
  return named(event) + sse_event(R"({"type":"message_stop"})", "message_stop");
}

std::string MessagesStream::fail(const ApiError& error) {
  has_ended_ = true;
  return sse_event(anthropic_error_body(error, identity_.request_id), "error");
}

class MessagesWhole final : public WholeWriter {
 public:
  explicit MessagesWhole(MessageIdentity identity) : identity_(std::move(identity)) {}
  void on_event(const AnswerEvent& event) override {
    blocks_.on_event(event);
    if (event.choice != 0) return;
    if (const auto* end = std::get_if<AnswerEnd>(&event.body)) end_ = *end;
  }
  std::variant<std::string, ApiError> finish() override;

 private:
  MessageIdentity identity_;
  AnswerBlocks blocks_;
  AnswerEnd end_;
};

// A call's arguments stand in the answer as they were written: numbers of any size stay exact.
std::optional<std::string> call_block_text(const AnswerBlock& block) {
  ObjectText check;
  std::string input;
  if (!check.push(block.text, input)) return std::nullopt;
  if (check.is_empty()) {
    input = "{}";
  } else if (!check.is_complete()) {
    return std::nullopt;
  }
  OrderedJson json = empty_block(block);
  json.erase("input");
  std::string text = dump_json(json);
  text.pop_back();
  return text.append(",\"input\":").append(input).append("}");
}

std::string text_block_text(const AnswerBlock& block) {
  OrderedJson json = empty_block(block);
  if (block.kind == AnswerBlock::Kind::kReasoning) {
    json["thinking"] = block.text;
    json["signature"] = kThoughtSignature;
  } else {
    json["text"] = block.text;
  }
  return dump_json(json);
}

std::variant<std::string, ApiError> MessagesWhole::finish() {
  if (const auto failure = answer_failure(end_)) return *failure;
  const bool ends_in_part = may_end_in_part(end_);
  std::string content;
  const std::vector<AnswerBlock>& blocks = blocks_.blocks();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const AnswerBlock& block = blocks[i];
    std::optional<std::string> text;
    if (block.kind != AnswerBlock::Kind::kCall) {
      text = text_block_text(block);
    } else if (block.is_complete) {
      text = call_block_text(block);
    } else if (ends_in_part && i + 1 == blocks.size()) {
      continue;
    }
    if (!text) return broken_call(block);
    if (!content.empty()) content += ',';
    content += *text;
  }
  OrderedJson message = message_frame(identity_);
  set_stop(message, end_);
  message["usage"] = message_usage(end_.usage);
  const std::string frame = dump_json(message);
  // The first such place is the frame's own: ids and names of models have no quotes unescaped.
  constexpr std::string_view kEmptyContent = "\"content\":[]";
  std::string text = frame;
  const std::size_t at = frame.find(kEmptyContent);
  return text.insert(at + kEmptyContent.size() - 1, content);
}

}  // namespace

std::unique_ptr<StreamWriter> make_messages_stream(MessageIdentity identity) {
  return std::make_unique<MessagesStream>(std::move(identity));
}

std::unique_ptr<WholeWriter> make_messages_whole(MessageIdentity identity) {
  return std::make_unique<MessagesWhole>(std::move(identity));
}

}  // namespace moepack
