#include "runtime/serve/openai_completion.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "formats/base/utf8.h"

#include "runtime/serve/answer_failure.h"

namespace moepack {
namespace {

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++count;
  }
  return count;
}

// A token as a text of its own. Parts of characters are written as OpenAI does it,
// "bytes:\xe2\x80": as replacement characters all of them would be one key.
std::string token_name(const std::string& bytes) {
  if (find_invalid_utf8(bytes) == std::string_view::npos) return bytes;
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    name.append("\\x").append(1, kHexDigits[byte >> 4U]).append(1, kHexDigits[byte & 15U]);
  }
  return name;
}

// {"tokens","token_logprobs","top_logprobs","text_offset"}; offsets count characters from the
// beginning of the choice.
class CompletionLogprobs {
 public:
  CompletionLogprobs() {
    for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      json_[name] = OrderedJson::array();
    }
  }
  // `offset` is moved on.
  void add(const std::vector<TokenLogprobs>& tokens, std::size_t& offset) {
    for (const TokenLogprobs& token : tokens) {
      const bool has_logprob = token.token.logprob > kNoLogprob;
      json_["tokens"].push_back(token_name(token.token.bytes));
      json_["token_logprobs"].push_back(has_logprob ? OrderedJson(token.token.logprob)
                                                    : OrderedJson(nullptr));
      OrderedJson top = OrderedJson::object();
      for (const TokenLogprob& other : token.top) {
        // Of ids with the same text the most probable comes first, and stays.
        top.emplace(token_name(other.bytes), other.logprob);
      }
      json_["top_logprobs"].push_back(has_logprob ? std::move(top) : OrderedJson(nullptr));
      json_["text_offset"].push_back(offset);
      offset += character_count(token.token.bytes);
    }
  }
  OrderedJson take() { return std::move(json_); }

 private:
  OrderedJson json_ = OrderedJson::object();
};

OrderedJson completion_choice(std::uint32_t index, const std::string& text) {
  OrderedJson json = OrderedJson::object();
  json["index"] = index;
  json["text"] = text;
  json["logprobs"] = nullptr;
  json["finish_reason"] = nullptr;
  return json;
}

class OpenaiCompletionStream final : public StreamWriter {
 public:
  explicit OpenaiCompletionStream(OpenaiAnswer answer)
      : answer_(std::move(answer)), usage_(answer_.choices_of_one), offsets_(answer_.choices, 0) {}

  std::string on_event(const AnswerEvent& event) override {
    if (has_failed_ || event.choice >= answer_.choices) return {};
    return std::visit([&](const auto& body) { return on(event.choice, body); }, event.body);
  }

 private:
  template <typename Other>
  std::string on(std::uint32_t /*choice*/, const Other& /*body*/) {
    return {};
  }
  std::string on(std::uint32_t choice, const PromptProgress& progress) {
    if (!answer_.form.has_progress) return {};
    OrderedJson json = chunk(completion_choice(choice, ""));
    json["prompt_progress"] = openai_progress(progress);
    return sse_event(dump_json(json));
  }
  std::string on(std::uint32_t choice, const ReasoningText& text) {
    return send(choice, text.text, text.logprobs);
  }
  std::string on(std::uint32_t choice, const ContentText& text) {
    return send(choice, text.text, text.logprobs);
  }
  std::string on(std::uint32_t choice, const AnswerEnd& end) {
    if (const auto failure = answer_failure(end)) {
      has_failed_ = true;
      return openai_stream_error(*failure);
    }
    usage_.add(choice, end.usage);
    OrderedJson one = completion_choice(choice, "");
    one["finish_reason"] = openai_finish_reason(end.reason);
    OrderedJson json = chunk(std::move(one));
    json["timings"] = openai_timings(end.usage, end.timings);
    std::string bytes = sse_event(dump_json(json));
    return ++ended_ < answer_.choices ? bytes : bytes + last();
  }
  std::string send(std::uint32_t choice, const std::string& text,
                   const std::vector<TokenLogprobs>& tokens) {
    OrderedJson one = completion_choice(choice, text);
    if (answer_.has_logprobs) {
      CompletionLogprobs logprobs;
      logprobs.add(tokens, offsets_[choice]);
      one["logprobs"] = logprobs.take();
    }
    return sse_event(dump_json(chunk(std::move(one))));
  }
  OrderedJson chunk(OrderedJson choice) const {
    OrderedJson json = openai_head(answer_, "text_completion");
    json["choices"] = OrderedJson::array({std::move(choice)});
    if (answer_.form.has_usage) json["usage"] = nullptr;
    return json;
  }
  std::string last() const {
    std::string bytes;
    if (answer_.form.has_usage) {
      OrderedJson json = openai_head(answer_, "text_completion");
      json["choices"] = OrderedJson::array();
      json["usage"] = usage_.json();
      bytes = sse_event(dump_json(json));
    }
    return bytes + sse_event("[DONE]");
  }

  const OpenaiAnswer answer_;
  OpenaiUsage usage_;
  std::vector<std::size_t> offsets_;  // characters of each choice that have been sent
  std::uint32_t ended_ = 0;
  bool has_failed_ = false;
};

struct WholeCompletion {
  std::string text;
  std::size_t offset = 0;
  CompletionLogprobs logprobs;
  AnswerEndReason reason = AnswerEndReason::kStop;
};

class OpenaiCompletionWhole final : public WholeWriter {
 public:
  explicit OpenaiCompletionWhole(OpenaiAnswer answer)
      : answer_(std::move(answer)), usage_(answer_.choices_of_one), choices_(answer_.choices) {}

  void on_event(const AnswerEvent& event) override {
    if (event.choice >= choices_.size()) return;
    std::visit([&](const auto& body) { on(event.choice, body); }, event.body);
  }

  std::variant<std::string, ApiError> finish() override {
    if (error_.has_value()) return *error_;
    OrderedJson json = openai_head(answer_, "text_completion");
    OrderedJson list = OrderedJson::array();
    for (std::uint32_t i = 0; i < choices_.size(); ++i) {
      OrderedJson one = completion_choice(i, choices_[i].text);
      if (answer_.has_logprobs) one["logprobs"] = choices_[i].logprobs.take();
      one["finish_reason"] = openai_finish_reason(choices_[i].reason);
      list.push_back(std::move(one));
    }
    json["choices"] = std::move(list);
    json["usage"] = usage_.json();
    json["timings"] = std::move(timings_);
    return dump_json(json);
  }

 private:
  template <typename Other>
  void on(std::uint32_t /*choice*/, const Other& /*body*/) {}
  void on(std::uint32_t choice, const ReasoningText& text) {
    add(choice, text.text, text.logprobs);
  }
  void on(std::uint32_t choice, const ContentText& text) { add(choice, text.text, text.logprobs); }
  void on(std::uint32_t choice, const AnswerEnd& end) {
    if (auto failure = answer_failure(end)) {
      if (!error_.has_value()) error_ = std::move(failure);
      return;
    }
    choices_[choice].reason = end.reason;
    usage_.add(choice, end.usage);
    if (choice == 0) timings_ = openai_timings(end.usage, end.timings);
  }
  void add(std::uint32_t choice, const std::string& text,
           const std::vector<TokenLogprobs>& tokens) {
    choices_[choice].text += text;
    if (answer_.has_logprobs) choices_[choice].logprobs.add(tokens, choices_[choice].offset);
  }

  const OpenaiAnswer answer_;
  OpenaiUsage usage_;
  std::vector<WholeCompletion> choices_;
  OrderedJson timings_;
  std::optional<ApiError> error_;
};

}  // namespace

std::unique_ptr<StreamWriter> make_openai_completion_stream(OpenaiAnswer answer) {
  return std::make_unique<OpenaiCompletionStream>(std::move(answer));
}

std::unique_ptr<WholeWriter> make_openai_completion_whole(OpenaiAnswer answer) {
  return std::make_unique<OpenaiCompletionWhole>(std::move(answer));
}

}  // namespace moepack
