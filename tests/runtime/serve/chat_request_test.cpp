// POST /v1/chat/completions and /v1/completions: JSON in, requests out.
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "runtime/serve/chat_request_json.h"
#include "runtime/serve/completion_request_json.h"

namespace moepack {
namespace {

std::variant<ParsedChatRequest, ApiError> parse_chat(
    const std::string& fields, const std::string& messages = R"([{"role":"user","content":"x"}])") {
  const std::string text =
      R"({"messages":)" + messages + (fields.empty() ? "" : "," + fields) + "}";
  return parse_chat_request(OrderedJson::parse(text), {});
}

ParsedChatRequest chat_of(const std::string& fields,
                          const std::string& messages = R"([{"role":"user","content":"x"}])") {
  auto parsed = parse_chat(fields, messages);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << fields << messages << ": " << error->message;
    return {};
  }
  return std::get<ParsedChatRequest>(std::move(parsed));
}

std::string wrong_part(const std::string& fields,
                       const std::string& messages = R"([{"role":"user","content":"x"}])") {
  const auto parsed = parse_chat(fields, messages);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "nothing" : error->parameter;
}

TEST(ChatRequest, ReadsEveryKindOfMessage) {
  const Conversation c = chat_of("", R"([
      {"role":"developer","content":"d"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"reasoning":"r","tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},
        {"function":{"name":"g","arguments":{"y":2}}},{"function":{"name":"h"}}]},
      {"role":"tool","tool_call_id":"1","content":"one","name":"f"},
      {"role":"function","name":"g","content":[{"type":"text","text":"two"}]},
      {"role":"assistant","refusal":"no"},
      {"role":"user","content":"x"}])")
                             .request.conversation;
  ASSERT_EQ(c.messages.size(), 7U);
  EXPECT_EQ(c.messages[0].role, ChatRole::kSystem);
  EXPECT_EQ(c.messages[1].content, "a\nb");
  EXPECT_EQ(c.messages[2].reasoning, "r");
  ASSERT_EQ(c.messages[2].calls.size(), 3U);
  EXPECT_EQ(c.messages[2].calls[0].arguments, "{\"x\": 1}");
  EXPECT_EQ(c.messages[2].calls[1].arguments, "{\"y\":2}");
  EXPECT_EQ(c.messages[2].calls[2].arguments, "{}");
  EXPECT_EQ(c.messages[3].tool_call_id, "1");
  EXPECT_EQ(c.messages[4].role, ChatRole::kTool);
  EXPECT_EQ(c.messages[4].content, "two");
  EXPECT_EQ(c.messages[5].content, "no");
  EXPECT_TRUE(c.add_generation_prompt);
  EXPECT_FALSE(c.continues_last);
}

TEST(ChatRequest, GoesOnFromTheLastMessage) {
  const std::string open = R"([{"role":"user","content":"x"},{"role":"assistant","content":"a"}])";
  EXPECT_TRUE(chat_of("", open).request.conversation.continues_last);
  EXPECT_FALSE(chat_of("", open).request.conversation.add_generation_prompt);
  EXPECT_FALSE(
      chat_of(R"("add_generation_prompt":true)", open).request.conversation.continues_last);
  EXPECT_FALSE(
      chat_of(R"("continue_final_message":false)", open).request.conversation.continues_last);
  EXPECT_EQ(
      wrong_part("", R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}])"),
      "messages");
  EXPECT_EQ(wrong_part(R"("continue_final_message":true)"), "continue_final_message");
}

TEST(ChatRequest, ThinkingIsSaidInManyWays) {
  for (const char* off :
       {R"("enable_thinking":false)", R"("reasoning_effort":"none")",
        R"("thinking":{"type":"disabled"})", R"("thinking":"disabled")", R"("thinking":false)",
        R"("reasoning":{"enabled":false})", R"("reasoning":{"effort":"none"})",
        R"("chat_template_kwargs":{"enable_thinking":false})",
        R"("chat_template_kwargs":{"thinking":false},"reasoning":{"enabled":true})",
        R"("thinking_budget":0)"}) {
    EXPECT_EQ(chat_of(off).request.thinks, false) << off;
  }
  for (const char* on : {R"("enable_thinking":true)", R"("thinking":{"type":"enabled"})",
                         R"("chat_template_kwargs":{"enable_thinking":true})"}) {
    EXPECT_EQ(chat_of(on).request.thinks, true) << on;
  }
  EXPECT_FALSE(chat_of("").request.thinks.has_value());
  for (const char* budget :
       {R"("thinking_budget":5)", R"("thinking_budget_tokens":5)", R"("thinking_token_budget":5)",
        R"("thinking":{"type":"enabled","budget_tokens":5})", R"("reasoning":{"max_tokens":5})"}) {
    EXPECT_EQ(chat_of(budget).request.thinking_budget, 5U) << budget;
  }
  EXPECT_FALSE(chat_of(R"("thinking_budget":-1)").request.thinking_budget.has_value());
  EXPECT_FALSE(chat_of(R"("include_reasoning":false)").form.shows_reasoning);
  EXPECT_FALSE(chat_of(R"("reasoning":{"exclude":true})").form.shows_reasoning);
}

TEST(ChatRequest, ChoicesOfTools) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],)";
  const auto choice = [&](const std::string& text) {
    return chat_of(tools + R"("tool_choice":)" + text).request.tool_choice;
  };
  EXPECT_EQ(choice("\"none\"").kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(choice("\"required\"").kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(choice("\"auto\"").kind, ToolChoice::Kind::kAuto);
  const ToolChoice one = choice(R"({"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(one.kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(one.allowed, std::vector<std::string>{"g"});
  const ToolChoice some = choice(
      R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}})");
  EXPECT_EQ(some.kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(some.allowed, std::vector<std::string>{"f"});
  EXPECT_EQ(wrong_part(tools + R"("tool_choice":{"type":"function","function":{"name":"absent"}})"),
            "tool_choice");
  EXPECT_EQ(wrong_part(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name");
  // "none" keeps the tools in the prompt, so that it stays the same.
  EXPECT_EQ(chat_of(tools + R"("tool_choice":"none")").request.conversation.tools.size(), 2U);
}

TEST(ChatRequest, FormsOfAnswers) {
  for (
      const char* schema :
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"b":1,"a":2}}})",
       R"("response_format":{"type":"json_object","schema":{"b":1,"a":2}})",
       R"("response_format":{"type":"json_schema","schema":{"b":1,"a":2}})",
       R"("json_schema":{"b":1,"a":2})", R"("structured_outputs":{"json":{"b":1,"a":2}})",
       R"("guided_json":{"b":1,"a":2})"}) {
    const ResponseFormat format = chat_of(schema).request.format;
    EXPECT_EQ(format.kind, ResponseFormat::Kind::kJsonSchema) << schema;
    EXPECT_EQ(format.schema.dump(), R"({"b":1,"a":2})") << schema;
  }
  EXPECT_EQ(chat_of(R"("response_format":{"type":"json_object"})").request.format.kind,
            ResponseFormat::Kind::kJsonObject);
  EXPECT_EQ(wrong_part(R"("response_format":{"type":"json_schema"})"),
            "response_format.json_schema");
}

TEST(ChatRequest, LimitsOfTokens) {
  EXPECT_EQ(chat_of(R"("max_completion_tokens":5,"max_tokens":9)").request.options.max_tokens, 5U);
  EXPECT_EQ(chat_of(R"("max_tokens":9)").request.options.max_tokens, 9U);
  for (const char* none :
       {R"("max_tokens":0)", R"("max_tokens":-1)", R"("max_tokens":null)", R"("x":1)"}) {
    EXPECT_FALSE(chat_of(none).request.options.max_tokens.has_value()) << none;
  }
}

TEST(ChatRequest, PicturesAreRefusedByName) {
  const auto parsed = parse_chat("", R"([{"role":"user","content":[{"type":"text","text":"a"},
      {"type":"image_url","image_url":{"url":"x"}}]}])");
  const auto* error = std::get_if<ApiError>(&parsed);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->parameter, "messages[0].content[1].type");
  EXPECT_NE(error->message.find("image_url"), std::string::npos);
}

ParsedCompletionRequest completion_of(const std::string& text) {
  auto parsed = parse_completion_request(OrderedJson::parse(text), {});
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << text << ": " << error->message;
    return {};
  }
  return std::get<ParsedCompletionRequest>(std::move(parsed));
}

TEST(CompletionRequest, ReadsEveryKindOfPrompt) {
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(std::get<std::string>(completion_of(R"({"prompt":"a"})").requests.at(0).prompt), "a");
  EXPECT_EQ(std::get<Ids>(completion_of(R"({"prompt":[1,2]})").requests.at(0).prompt), (Ids{1, 2}));
  EXPECT_EQ(completion_of(R"({"prompt":["a","b"]})").requests.size(), 2U);
  EXPECT_EQ(std::get<Ids>(completion_of(R"({"prompt":[[1],[2,3]]})").requests.at(1).prompt),
            (Ids{2, 3}));
  for (const char* wrong :
       {R"({"prompt":[]})", R"({"prompt":[[]]})", R"({"prompt":[1,"a"]})", R"({"prompt":{}})",
        R"({"prompt":[-1]})", R"({"prompt":[4294967296]})", R"({})", R"({"prompt":[1.5]})"}) {
    const auto parsed = parse_completion_request(OrderedJson::parse(wrong), {});
    EXPECT_TRUE(std::holds_alternative<ApiError>(parsed)) << wrong;
  }
}

TEST(CompletionRequest, ScoresAPrompt) {
  const ParsedCompletionRequest parsed =
      completion_of(R"({"prompt":[1,2],"echo":true,"logprobs":1,"max_tokens":0})");
  EXPECT_TRUE(parsed.requests[0].echo);
  EXPECT_EQ(parsed.requests[0].options.max_tokens, 0U);
  EXPECT_EQ(parsed.requests[0].options.top_logprobs, 1U);
}

}  // namespace
}  // namespace moepack
