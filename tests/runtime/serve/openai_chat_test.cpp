// The answers of POST /v1/chat/completions: each rule that clients trip over has a test here.
#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/serve/openai_chat_stream.h"
#include "runtime/serve/openai_chat_whole.h"

namespace moepack::openai_chat_test {
namespace {

OpenaiAnswer openai_test_answer(std::uint32_t choices = 1) {
  OpenaiAnswer answer;
  answer.id = "chatcmpl-1";
  answer.created = 7;
  answer.model = "m";
  answer.choices = answer.choices_of_one = choices;
  return answer;
}

AnswerEnd openai_test_end(AnswerEndReason reason) {
  AnswerEnd end;
  end.reason = reason;
  end.usage = {
      .prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 3, .reasoning_tokens = 1};
  return end;
}

// What a stream sends for these events, and the end.
std::string openai_streamed(OpenaiAnswer answer, const std::vector<AnswerEvent>& events,
                            AnswerEndReason reason = AnswerEndReason::kStop) {
  const std::uint32_t choices = answer.choices;
  const auto writer = make_openai_chat_stream(std::move(answer));
  std::string bytes = writer->begin();
  for (const AnswerEvent& event : events) bytes += writer->on_event(event);
  for (std::uint32_t i = 0; i < choices; ++i) {
    bytes += writer->on_event({.choice = i, .body = openai_test_end(reason)});
  }
  return bytes;
}

// The chunks of a stream; "[DONE]" is left out.
std::vector<OrderedJson> openai_chunks(const std::string& bytes) {
  std::vector<OrderedJson> chunks;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t end = bytes.find("\n\n", at);
    const std::string event = bytes.substr(at, end - at);
    at = end + 2;
    if (event.starts_with("data: {")) chunks.push_back(OrderedJson::parse(event.substr(6)));
  }
  return chunks;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

const std::vector<AnswerEvent> kOpenaiCalls = {
    {.choice = 0, .body = AnswerStarted{}},
    {.choice = 0, .body = CallBegin{0, "call_a", "f"}},
    {.choice = 0, .body = CallArguments{0, "{\"a\""}},
    {.choice = 0, .body = CallArguments{0, ":1}"}},
    {.choice = 0, .body = CallEnd{0}},
    {.choice = 0, .body = CallBegin{1, "call_b", "g"}},
    {.choice = 0, .body = CallEnd{1}},
};

TEST(OpenaiChatStream, HasCommentsAndDataLinesAlone) {
  const std::string bytes = openai_streamed(
      openai_test_answer(),
      {{.choice = 0, .body = AnswerQueued{2}}, {.choice = 0, .body = ContentText{"a\nb\r\n", {}}}});
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t end = bytes.find("\n\n", at);
    ASSERT_NE(end, std::string::npos);
    const std::string event = bytes.substr(at, end - at);
    EXPECT_TRUE(event.starts_with(": ") || event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string::npos) << event;
    EXPECT_EQ(event.find('\r'), std::string::npos) << event;
    at = end + 2;
  }
  EXPECT_TRUE(make_openai_chat_stream(openai_test_answer())->keep_alive().starts_with(": "));
}

TEST(OpenaiChatStream, SaysTheRoleOnceAndBeforeAllElse) {
  const std::string bytes = openai_streamed(
      openai_test_answer(),
      {{.choice = 0, .body = ReasoningText{"r", {}}}, {.choice = 0, .body = ContentText{"a", {}}}});
  EXPECT_EQ(count_of(bytes, "\"role\""), 1U);
  EXPECT_EQ(openai_chunks(bytes).front()["choices"][0]["delta"]["role"], "assistant");
}

TEST(OpenaiChatStream, NamesACallOnceAndCountsFromNought) {
  const std::vector<OrderedJson> chunks =
      openai_chunks(openai_streamed(openai_test_answer(), kOpenaiCalls));
  std::vector<std::string> arguments(2);
  std::size_t next = 0;
  for (const OrderedJson& chunk : chunks) {
    const OrderedJson& delta = chunk["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const OrderedJson& call = delta["tool_calls"][0];
    const std::size_t index = call.at("index");
    arguments.at(index) += call["function"]["arguments"];
    const bool is_first = index == next;
    if (is_first) ++next;
    EXPECT_EQ(call.contains("id"), is_first);
    EXPECT_EQ(call.contains("type"), is_first);
    EXPECT_EQ(call["function"].contains("name"), is_first);
    if (is_first) {
      EXPECT_EQ(call["function"]["arguments"], "");
    }
  }
  EXPECT_EQ(next, 2U);
  EXPECT_EQ(arguments, (std::vector<std::string>{"{\"a\":1}", "{}"}));
}

TEST(OpenaiChatStream, ACallThatIsCutOffGetsNoArguments) {
  const std::string bytes =
      openai_streamed(openai_test_answer(), {{.choice = 0, .body = CallBegin{0, "i", "f"}}},
                      AnswerEndReason::kLength);
  EXPECT_EQ(bytes.find("\"{}\""), std::string::npos);
  EXPECT_NE(bytes.find("\"finish_reason\":\"length\""), std::string::npos);
}

TEST(OpenaiChatStream, UsageIsTheLastChunkIfItWasAskedFor) {
  OpenaiAnswer answer = openai_test_answer(2);
  EXPECT_EQ(openai_streamed(answer, {}).find("usage"), std::string::npos);
  answer.form.has_usage = true;
  const std::string bytes = openai_streamed(answer, {});
  EXPECT_TRUE(bytes.ends_with("data: [DONE]\n\n"));
  const std::vector<OrderedJson> chunks = openai_chunks(bytes);
  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_TRUE(chunks[i].contains("usage") && chunks[i]["usage"].is_null()) << chunks[i];
  }
  EXPECT_TRUE(chunks.back()["choices"].empty());
  // Two choices of one prompt.
  EXPECT_EQ(chunks.back()["usage"]["prompt_tokens"], 10U);
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 6U);
  EXPECT_EQ(chunks.back()["usage"]["total_tokens"], 16U);
  EXPECT_EQ(chunks.back()["usage"]["prompt_tokens_details"]["cached_tokens"], 4U);
}

TEST(OpenaiChatStream, ChoiceNoughtComesFirst) {
  const std::vector<OrderedJson> chunks = openai_chunks(
      openai_streamed(openai_test_answer(3), {{.choice = 2, .body = ContentText{"c", {}}}}));
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(chunks[i]["choices"][0]["index"], i);
  EXPECT_EQ(chunks[3]["choices"][0]["delta"]["content"], "c");
}

TEST(OpenaiChatStream, AFailureIsTheLastEvent) {
  for (const auto reason : {AnswerEndReason::kError, AnswerEndReason::kCancelled}) {
    const std::string bytes = openai_streamed(
        openai_test_answer(2), {{.choice = 0, .body = ContentText{"a", {}}}}, reason);
    EXPECT_EQ(bytes.find("[DONE]"), std::string::npos);
    EXPECT_EQ(bytes.find("\"finish_reason\":\"stop\""), std::string::npos);
    EXPECT_EQ(count_of(bytes, "\"error\""), 1U);
    EXPECT_TRUE(openai_chunks(bytes).back().contains("error"));
  }
}

TEST(OpenaiChatStream, ProgressOnlyForThoseWhoAsk) {
  OpenaiAnswer answer = openai_test_answer();
  const std::vector<AnswerEvent> events = {{.choice = 0, .body = PromptProgress{100, 20, 60, 1.5}}};
  EXPECT_EQ(openai_streamed(answer, events).find("prompt_progress"), std::string::npos);
  answer.form.has_progress = true;
  const OrderedJson first = openai_chunks(openai_streamed(answer, events)).front();
  EXPECT_EQ(first["prompt_progress"].dump(),
            R"({"total":100,"cache":20,"processed":60,"time_ms":1500.0})");
  EXPECT_TRUE(first["choices"][0]["delta"].empty());
}

TEST(OpenaiChatStream, BrokenTextIsReplacedAndNeverThrown) {
  OpenaiAnswer answer = openai_test_answer();
  answer.has_logprobs = true;
  TokenLogprobs token;
  token.token = {.id = 5, .bytes = "\xe6\xbc", .logprob = -0.5F};
  const std::string bytes =
      openai_streamed(answer, {{.choice = 0, .body = ContentText{"\xff", {token}}}});
  const OrderedJson logprobs = openai_chunks(bytes)[1]["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(logprobs["bytes"].dump(), "[230,188]");
  EXPECT_EQ(logprobs["token"], "\xef\xbf\xbd");
}

OrderedJson openai_whole(const OpenaiAnswer& answer, const std::vector<AnswerEvent>& events,
                         AnswerEndReason reason = AnswerEndReason::kStop) {
  const auto writer = make_openai_chat_whole(answer);
  for (const AnswerEvent& event : events) writer->on_event(event);
  writer->on_event({.choice = 0, .body = openai_test_end(reason)});
  auto text = writer->finish();
  if (std::holds_alternative<ApiError>(text))
    return {{"error", http_status(std::get<ApiError>(text).kind)}};
  return OrderedJson::parse(std::get<std::string>(text));
}

TEST(OpenaiChatWhole, ContentIsNullBesideCallsAlone) {
  const OrderedJson calls =
      openai_whole(openai_test_answer(), kOpenaiCalls, AnswerEndReason::kToolCalls);
  const OrderedJson& message = calls["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], "{}");
  EXPECT_EQ(calls["choices"][0]["finish_reason"], "tool_calls");
  const OrderedJson text = openai_whole(openai_test_answer(), {});
  EXPECT_EQ(text["choices"][0]["message"]["content"], "");
  EXPECT_FALSE(text["choices"][0]["message"].contains("tool_calls"));
  EXPECT_FALSE(text["choices"][0]["message"].contains("reasoning_content"));
}

TEST(OpenaiChatWhole, ACallThatIsCutOffIsLeftOut) {
  std::vector<AnswerEvent> events(kOpenaiCalls.begin(), kOpenaiCalls.end() - 1);
  events.push_back({.choice = 0, .body = CallArguments{1, "{\"city\":\"Os"}});
  const OrderedJson cut = openai_whole(openai_test_answer(), events, AnswerEndReason::kLength);
  const OrderedJson& choice = cut["choices"][0];
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["id"], "call_a");
  EXPECT_EQ(choice["finish_reason"], "length");
  const OrderedJson none =
      openai_whole(openai_test_answer(), {{.choice = 0, .body = CallBegin{0, "i", "f"}}},
                   AnswerEndReason::kLength);
  EXPECT_FALSE(none["choices"][0]["message"].contains("tool_calls"));
  EXPECT_EQ(none["choices"][0]["message"]["content"], "");
}

TEST(OpenaiChatWhole, FailuresHaveAStatus) {
  EXPECT_EQ(openai_whole(openai_test_answer(), {}, AnswerEndReason::kError)["error"], 500);
  EXPECT_EQ(openai_whole(openai_test_answer(), {}, AnswerEndReason::kCancelled)["error"], 503);
}

TEST(OpenaiChatWhole, ThoughtsCanBeLeftOutOrMadeContent) {
  const std::vector<AnswerEvent> events = {{.choice = 0, .body = ReasoningText{"r", {}}},
                                           {.choice = 0, .body = ContentText{"c", {}}}};
  OpenaiAnswer answer = openai_test_answer();
  EXPECT_EQ(openai_whole(answer, events)["choices"][0]["message"]["reasoning_content"], "r");
  answer.form.inlines_reasoning = true;
  EXPECT_EQ(openai_whole(answer, events)["choices"][0]["message"]["content"], "rc");
  answer.form = {.shows_reasoning = false};
  const OrderedJson message = openai_whole(answer, events)["choices"][0]["message"];
  EXPECT_FALSE(message.contains("reasoning_content"));
  EXPECT_EQ(message["content"], "c");
}

}  // namespace
}  // namespace moepack::openai_chat_test
