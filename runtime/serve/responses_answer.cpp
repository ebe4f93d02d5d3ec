#include "runtime/serve/responses_answer.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/answer_blocks.h"
#include "runtime/serve/answer_failure.h"
#include "runtime/serve/responses_items.h"

namespace moepack {
namespace {

class ResponsesStream final : public StreamWriter {
 public:
  explicit ResponsesStream(ResponseIdentity identity) : identity_(std::move(identity)) {}
  std::string begin() override;
  std::string on_event(const AnswerEvent& event) override;
  std::string keep_alive() override { return has_ended_ ? std::string() : in_progress(); }

 private:
  std::string emit(const char* type, OrderedJson members);
  std::string in_progress();
  std::string write_step(const BlockStep& step);
  std::string write_open(std::size_t index);
  std::string write_delta(const BlockStep& step);
  std::string write_close(std::size_t index);
  std::string write_text_done(std::size_t index);
  std::string write_call_done(std::size_t index);
  std::string write_end(const AnswerEnd& end);
  std::string fail(const ApiError& error);
  OrderedJson item_place(std::size_t index) const;
  OrderedJson part_place(std::size_t index) const;
  const AnswerBlock& block(std::size_t index) const { return blocks_.blocks()[index]; }

  ResponseIdentity identity_;
  AnswerBlocks blocks_;
  std::uint64_t sequence_ = 0;
  bool has_ended_ = false;
  bool ends_in_part_ = false;  // the steps at hand come of an AnswerEnd
};

std::string ResponsesStream::emit(const char* type, OrderedJson members) {
  OrderedJson event = OrderedJson::object();
  event["type"] = type;
  event["sequence_number"] = sequence_++;
  for (auto& [key, value] : members.items()) event[key] = std::move(value);
  return sse_event(dump_json(event), type);
}

std::string ResponsesStream::begin() {
  OrderedJson members = OrderedJson::object();
  members["response"] =
      response_object(identity_, "in_progress", OrderedJson::array(), /*is_brief=*/false);
  std::string out = emit("response.created", std::move(members));
  return out.append(in_progress());
}

std::string ResponsesStream::in_progress() {
  OrderedJson members = OrderedJson::object();
  members["response"] =
      response_object(identity_, "in_progress", OrderedJson::array(), /*is_brief=*/true);
  return emit("response.in_progress", std::move(members));
}

std::string ResponsesStream::on_event(const AnswerEvent& event) {
  if (has_ended_ || event.choice != 0) return {};
  const auto* end = std::get_if<AnswerEnd>(&event.body);
  if (end != nullptr) {
    if (const auto failure = answer_failure(*end)) return fail(*failure);
    ends_in_part_ = may_end_in_part(*end);
  }
  std::string out;
  for (const BlockStep& step : blocks_.on_event(event)) {
    if (!has_ended_) out += write_step(step);
  }
  if (end != nullptr && !has_ended_) out += write_end(*end);
  return out;
}

OrderedJson ResponsesStream::item_place(std::size_t index) const {
  OrderedJson place = OrderedJson::object();
  place["item_id"] = response_item_id(identity_, block(index), index);
  place["output_index"] = index;
  return place;
}

OrderedJson ResponsesStream::part_place(std::size_t index) const {
  OrderedJson place = item_place(index);
  place["content_index"] = 0;
  return place;
}

std::string ResponsesStream::write_step(const BlockStep& step) {
  if (step.kind == BlockStep::Kind::kOpen) return write_open(step.block);
  if (step.kind == BlockStep::Kind::kDelta) return write_delta(step);
  return write_close(step.block);
}

std::string ResponsesStream::write_open(std::size_t index) {
  OrderedJson members = OrderedJson::object();
  members["output_index"] = index;
  members["item"] =
      begun_response_item(block(index), response_item_id(identity_, block(index), index));
  std::string out = emit("response.output_item.added", std::move(members));
  if (block(index).kind == AnswerBlock::Kind::kText) {
    OrderedJson part = part_place(index);
    part["part"] = response_text_part("", {});
    out += emit("response.content_part.added", std::move(part));
  }
  return out;
}

std::string ResponsesStream::write_delta(const BlockStep& step) {
  const AnswerBlock::Kind kind = block(step.block).kind;
  OrderedJson members =
      kind == AnswerBlock::Kind::kCall ? item_place(step.block) : part_place(step.block);
  members["delta"] = step.text;
  if (kind == AnswerBlock::Kind::kReasoning) {
    return emit("response.reasoning_text.delta", std::move(members));
  }
  if (kind == AnswerBlock::Kind::kText) {
    members["logprobs"] = response_logprobs(step.logprobs);
    return emit("response.output_text.delta", std::move(members));
  }
  return emit("response.function_call_arguments.delta", std::move(members));
}

std::string ResponsesStream::write_close(std::size_t index) {
  std::string out;
  if (block(index).kind == AnswerBlock::Kind::kCall) {
    if (!block(index).is_complete) {
      // A client runs what is done: a part of a call never is.
      return ends_in_part_ ? std::string() : fail(broken_call(block(index)));
    }
    out = write_call_done(index);
  } else {
    out = write_text_done(index);
  }
  OrderedJson members = OrderedJson::object();
  members["output_index"] = index;
  members["item"] =
      ended_response_item(block(index), response_item_id(identity_, block(index), index));
  return out + emit("response.output_item.done", std::move(members));
}

std::string ResponsesStream::write_text_done(std::size_t index) {
  OrderedJson members = part_place(index);
  members["text"] = block(index).text;
  if (block(index).kind == AnswerBlock::Kind::kReasoning) {
    return emit("response.reasoning_text.done", std::move(members));
  }
  members["logprobs"] = response_logprobs(block(index).logprobs);
  std::string out = emit("response.output_text.done", std::move(members));
  OrderedJson part = part_place(index);
  part["part"] = response_text_part(block(index).text, block(index).logprobs);
  return out + emit("response.content_part.done", std::move(part));
}

std::string ResponsesStream::write_call_done(std::size_t index) {
  const std::string& arguments = response_arguments(block(index));
  std::string out;
  if (block(index).text.empty()) {  // whoever joins the pieces must have an object too
    OrderedJson members = item_place(index);
    members["delta"] = arguments;
    out = emit("response.function_call_arguments.delta", std::move(members));
  }
  OrderedJson members = item_place(index);
  members["name"] = block(index).name;
  members["arguments"] = arguments;
  return out + emit("response.function_call_arguments.done", std::move(members));
}

std::string ResponsesStream::write_end(const AnswerEnd& end) {
  has_ended_ = true;
  OrderedJson members = OrderedJson::object();
  members["response"] = ended_response(identity_, blocks_.blocks(), end);
  return emit(is_cut_answer(end) ? "response.incomplete" : "response.completed",
              std::move(members));
}

std::string ResponsesStream::fail(const ApiError& error) {
  has_ended_ = true;
  OrderedJson response = response_object(identity_, "failed", OrderedJson::array(), false);
  response["error"] = {{"code", "server_error"}, {"message", error.message}};
  OrderedJson members = OrderedJson::object();
  members["response"] = std::move(response);
  return emit("response.failed", std::move(members));
}

class ResponsesWhole final : public WholeWriter {
 public:
  explicit ResponsesWhole(ResponseIdentity identity) : identity_(std::move(identity)) {}
  void on_event(const AnswerEvent& event) override {
    blocks_.on_event(event);
    if (event.choice != 0) return;
    if (const auto* end = std::get_if<AnswerEnd>(&event.body)) end_ = *end;
  }
  std::variant<std::string, ApiError> finish() override {
    if (const auto failure = answer_failure(end_)) return *failure;
    const std::vector<AnswerBlock>& blocks = blocks_.blocks();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const bool is_last = i + 1 == blocks.size();
      const bool is_partial = blocks[i].kind == AnswerBlock::Kind::kCall && !blocks[i].is_complete;
      if (is_partial && !(is_last && may_end_in_part(end_))) return broken_call(blocks[i]);
    }
    return dump_json(ended_response(identity_, blocks, end_));
  }

 private:
  ResponseIdentity identity_;
  AnswerBlocks blocks_;
  AnswerEnd end_;
};

}  // namespace

std::unique_ptr<StreamWriter> make_responses_stream(ResponseIdentity identity) {
  return std::make_unique<ResponsesStream>(std::move(identity));
}

std::unique_ptr<WholeWriter> make_responses_whole(ResponseIdentity identity) {
  return std::make_unique<ResponsesWhole>(std::move(identity));
}

}  // namespace moepack
