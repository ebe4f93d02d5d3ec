#include "runtime/serve/openai_chat_stream.h"

#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "runtime/serve/answer_failure.h"

namespace moepack {
namespace {

class OpenaiChatStream final : public StreamWriter {
 public:
  explicit OpenaiChatStream(OpenaiAnswer answer)
      : answer_(std::move(answer)), usage_(answer_.choices_of_one), empty_calls_(answer_.choices) {}

  std::string on_event(const AnswerEvent& event) override {
    if (has_failed_ || event.choice >= answer_.choices) return {};
    return std::visit([&](const auto& body) { return on(event.choice, body); }, event.body);
  }

 private:
  std::string on(std::uint32_t /*choice*/, const AnswerQueued& queued) {
    return ": queued, " + std::to_string(queued.before) + " before\n\n";
  }
  std::string on(std::uint32_t /*choice*/, const AnswerStarted& /*started*/) { return {}; }
  std::string on(std::uint32_t choice, const PromptProgress& progress) {
    if (!answer_.form.has_progress || choice != 0) return {};
    OrderedJson json = chunk(choice, OrderedJson::object());
    json["prompt_progress"] = openai_progress(progress);
    return sse_event(dump_json(json));
  }
  std::string on(std::uint32_t choice, const ReasoningText& text) {
    if (answer_.form.inlines_reasoning) return content(choice, text.text, text.logprobs);
    if (!answer_.form.shows_reasoning) return {};
    OrderedJson delta = OrderedJson::object();
    delta["reasoning_content"] = text.text;
    return roles() + send(choice, std::move(delta), "reasoning_content", text.logprobs);
  }
  std::string on(std::uint32_t choice, const ContentText& text) {
    return content(choice, text.text, text.logprobs);
  }
  std::string on(std::uint32_t choice, const CallBegin& call) {
    empty_calls_[choice].insert(call.call);
    OrderedJson json = call_json(call.call);
    json["id"] = call.id;
    json["type"] = "function";
    json["function"]["name"] = call.name;
    json["function"]["arguments"] = "";
    return roles() + send_call(choice, std::move(json));
  }
  std::string on(std::uint32_t choice, const CallArguments& arguments) {
    if (arguments.fragment.empty()) return {};
    empty_calls_[choice].erase(arguments.call);
    return send_arguments(choice, arguments.call, arguments.fragment);
  }
  std::string on(std::uint32_t choice, const CallEnd& call) {
    if (empty_calls_[choice].erase(call.call) == 0) return {};
    return send_arguments(choice, call.call, "{}");
  }
  std::string on(std::uint32_t choice, const AnswerEnd& end) {
    if (const auto failure = answer_failure(end)) {
      has_failed_ = true;
      return openai_stream_error(*failure);
    }
    usage_.add(choice, end.usage);
    std::string bytes = roles();
    OrderedJson json = chunk(choice, OrderedJson::object());
    json["choices"][0]["finish_reason"] = openai_finish_reason(end.reason);
    json["timings"] = openai_timings(end.usage, end.timings);
    bytes += sse_event(dump_json(json));
    return ++ended_ < answer_.choices ? bytes : bytes + last();
  }

  std::string content(std::uint32_t choice, const std::string& text,
                      const std::vector<TokenLogprobs>& logprobs) {
    OrderedJson delta = OrderedJson::object();
    delta["content"] = text;
    return roles() + send(choice, std::move(delta), "content", logprobs);
  }
  // The first chunk of every choice, choice 0 first; before anything else of them.
  std::string roles() {
    if (std::exchange(has_roles_, true)) return {};
    std::string bytes;
    for (std::uint32_t choice = 0; choice < answer_.choices; ++choice) {
      OrderedJson delta = OrderedJson::object();
      delta["role"] = "assistant";
      delta["content"] = "";
      bytes += sse_event(dump_json(chunk(choice, std::move(delta))));
    }
    return bytes;
  }
  OrderedJson chunk(std::uint32_t choice, OrderedJson delta) const {
    OrderedJson json = openai_head(answer_, "chat.completion.chunk");
    OrderedJson one = OrderedJson::object();
    one["index"] = choice;
    one["delta"] = std::move(delta);
    one["logprobs"] = nullptr;
    one["finish_reason"] = nullptr;
    json["choices"] = OrderedJson::array({std::move(one)});
    if (answer_.form.has_usage) json["usage"] = nullptr;
    return json;
  }
  std::string send(std::uint32_t choice, OrderedJson delta, const char* list,
                   const std::vector<TokenLogprobs>& tokens) const {
    OrderedJson json = chunk(choice, std::move(delta));
    if (answer_.has_logprobs) {
      OrderedJson logprobs = OrderedJson::object();
      logprobs["content"] = OrderedJson::array();
      logprobs["refusal"] = nullptr;
      append_openai_logprobs(logprobs[list], tokens);
      json["choices"][0]["logprobs"] = std::move(logprobs);
    }
    return sse_event(dump_json(json));
  }
  static OrderedJson call_json(std::size_t call) {
    OrderedJson json = OrderedJson::object();
    json["index"] = call;
    return json;
  }
  std::string send_call(std::uint32_t choice, OrderedJson call) const {
    OrderedJson delta = OrderedJson::object();
    delta["tool_calls"] = OrderedJson::array({std::move(call)});
    return sse_event(dump_json(chunk(choice, std::move(delta))));
  }
  std::string send_arguments(std::uint32_t choice, std::size_t call,
                             const std::string& fragment) const {
    OrderedJson json = call_json(call);
    json["function"]["arguments"] = fragment;
    return send_call(choice, std::move(json));
  }
  std::string last() const {
    std::string bytes;
    if (answer_.form.has_usage) {
      OrderedJson json = openai_head(answer_, "chat.completion.chunk");
      json["choices"] = OrderedJson::array();
      json["usage"] = usage_.json();
      bytes = sse_event(dump_json(json));
    }
    return bytes + sse_event("[DONE]");
  }

  const OpenaiAnswer answer_;
  OpenaiUsage usage_;
  std::vector<std::set<std::size_t>> empty_calls_;  // of each choice: begun, without arguments
  std::uint32_t ended_ = 0;
  bool has_roles_ = false;
  bool has_failed_ = false;
};

}  // namespace

std::unique_ptr<StreamWriter> make_openai_chat_stream(OpenaiAnswer answer) {
  return std::make_unique<OpenaiChatStream>(std::move(answer));
}

}  // namespace moepack
