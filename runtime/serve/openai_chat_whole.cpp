#include "runtime/serve/openai_chat_whole.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/serve/answer_failure.h"

namespace moepack {
namespace {

struct OpenaiChoice {
  std::string content, reasoning;
  std::map<std::size_t, ToolCall> calls;  // begun
  std::map<std::size_t, ToolCall> made;   // that came to their end
  OrderedJson content_logprobs = OrderedJson::array();
  OrderedJson reasoning_logprobs = OrderedJson::array();
  AnswerEndReason reason = AnswerEndReason::kStop;
};

class OpenaiChatWhole final : public WholeWriter {
 public:
  explicit OpenaiChatWhole(OpenaiAnswer answer)
      : answer_(std::move(answer)), usage_(answer_.choices_of_one), choices_(answer_.choices) {}

  void on_event(const AnswerEvent& event) override {
    if (event.choice >= choices_.size()) return;
    std::visit([&](const auto& body) { on(event.choice, body); }, event.body);
  }

  std::variant<std::string, ApiError> finish() override {
    if (error_.has_value()) return *error_;
    OrderedJson json = openai_head(answer_, "chat.completion");
    OrderedJson list = OrderedJson::array();
    for (std::uint32_t i = 0; i < choices_.size(); ++i) list.push_back(choice_json(i));
    json["choices"] = std::move(list);
    json["usage"] = usage_.json();
    json["timings"] = std::move(timings_);
    return dump_json(json);
  }

 private:
  template <typename Other>  // what happens before the answer
  void on(std::uint32_t /*choice*/, const Other& /*body*/) {}
  void on(std::uint32_t choice, const ReasoningText& text) {
    if (answer_.form.inlines_reasoning) {
      choices_[choice].content += text.text;
      return append_openai_logprobs(choices_[choice].content_logprobs, text.logprobs);
    }
    choices_[choice].reasoning += text.text;
    append_openai_logprobs(choices_[choice].reasoning_logprobs, text.logprobs);
  }
  void on(std::uint32_t choice, const ContentText& text) {
    choices_[choice].content += text.text;
    append_openai_logprobs(choices_[choice].content_logprobs, text.logprobs);
  }
  void on(std::uint32_t choice, const CallBegin& call) {
    ToolCall& made = choices_[choice].calls[call.call];
    made.id = call.id;
    made.name = call.name;
  }
  void on(std::uint32_t choice, const CallArguments& arguments) {
    choices_[choice].calls[arguments.call].arguments += arguments.fragment;
  }
  void on(std::uint32_t choice, const CallEnd& end) {
    auto call = choices_[choice].calls.extract(end.call);
    if (!call.empty()) choices_[choice].made.insert(std::move(call));
  }
  void on(std::uint32_t choice, const AnswerEnd& end) {
    if (auto failure = answer_failure(end)) {
      if (!error_.has_value()) error_ = std::move(failure);
      return;
    }
    choices_[choice].reason = end.reason;
    usage_.add(choice, end.usage);
    if (choice == 0) timings_ = openai_timings(end.usage, end.timings);
  }

  OrderedJson message_json(const OpenaiChoice& choice) const {
    OrderedJson message = OrderedJson::object();
    message["role"] = "assistant";
    message["content"] = choice.content;
    if (choice.content.empty() && !choice.made.empty()) message["content"] = nullptr;
    if (answer_.form.shows_reasoning && !choice.reasoning.empty()) {
      message["reasoning_content"] = choice.reasoning;
    }
    // Of a call that was cut off nothing is said: its JSON is no JSON, and sent back as history it
    // would spoil every later request.
    if (choice.made.empty()) return message;
    OrderedJson calls = OrderedJson::array();
    for (const auto& [number, call] : choice.made) {
      OrderedJson json = OrderedJson::object();
      json["id"] = call.id;
      json["type"] = "function";
      json["function"]["name"] = call.name;
      json["function"]["arguments"] = call.arguments.empty() ? "{}" : call.arguments;
      calls.push_back(std::move(json));
    }
    message["tool_calls"] = std::move(calls);
    return message;
  }
  OrderedJson choice_json(std::uint32_t index) {
    OpenaiChoice& choice = choices_[index];
    OrderedJson json = OrderedJson::object();
    json["index"] = index;
    json["message"] = message_json(choice);
    json["logprobs"] = nullptr;
    if (answer_.has_logprobs) {
      OrderedJson logprobs = OrderedJson::object();
      logprobs["content"] = std::move(choice.content_logprobs);
      logprobs["refusal"] = nullptr;
      if (answer_.form.shows_reasoning && !choice.reasoning_logprobs.empty()) {
        logprobs["reasoning_content"] = std::move(choice.reasoning_logprobs);
      }
      json["logprobs"] = std::move(logprobs);
    }
    json["finish_reason"] = openai_finish_reason(choice.reason);
    return json;
  }

  const OpenaiAnswer answer_;
  OpenaiUsage usage_;
  std::vector<OpenaiChoice> choices_;
  OrderedJson timings_;
  std::optional<ApiError> error_;
};

}  // namespace

std::unique_ptr<WholeWriter> make_openai_chat_whole(OpenaiAnswer answer) {
  return std::make_unique<OpenaiChatWhole>(std::move(answer));
}

}  // namespace moepack
