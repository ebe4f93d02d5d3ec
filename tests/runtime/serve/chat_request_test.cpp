// POST /v1/chat/completions and /v1/completions: JSON in, requests out.
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "runtime/serve/chat_request_json.h"
#include "runtime/serve/completion_request_json.h"

namespace moepack::chat_request_test {
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

// As the other protocols do; templates know three steps.
TEST(ChatRequest, EffortsBecomeTheStepsOfTemplates) {
  const auto effort = [](const std::string& fields) {
    return chat_of(fields).request.conversation.template_arguments.value("reasoning_effort", "");
  };
  const std::pair<const char*, const char*> steps[] = {
      {"minimal", "low"}, {"low", "low"},  {"medium", "medium"}, {"high", "high"},
      {"xhigh", "high"},  {"max", "high"}, {"other", "other"}};
  for (const auto& [asked, told] : steps) {
    const std::string word = '"' + std::string(asked) + '"';
    EXPECT_EQ(effort(R"("reasoning_effort":)" + word), told);
    EXPECT_EQ(effort(R"("reasoning":{"effort":)" + word + "}"), told);
    EXPECT_EQ(effort(R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":)" +
                     word + "}"),
              asked)
        << "the template's arguments are told as they come";
  }
}

// Names that some family could not write.
TEST(ChatRequest, NamesOfToolsAreWords) {
  const auto with_name = [](const std::string& name) {
    return R"("tools":[{"type":"function","function":{"name":")" + name + R"("}}])";
  };
  for (const std::string& name : {std::string("mcp__files.read-all"), std::string("ns/f:1"),
                                  std::string("wetter_für"), std::string(128, 'f')}) {
    EXPECT_EQ(chat_of(with_name(name)).request.conversation.tools.at(0).name, name);
  }
  for (const std::string& name :
       {std::string("run tool"), std::string("f\\n"), std::string("f\\\"x"), std::string("f<x"),
        std::string("f>x"), std::string("f\\u007f"), std::string(129, 'f')}) {
    EXPECT_EQ(wrong_part(with_name(name)), "tools[0].function.name") << name;
  }
}

TEST(ChatRequest, WordsThatMeanNothingAreRefused) {
  EXPECT_EQ(wrong_part(R"("reasoning_format":"zzz")"), "reasoning_format");
  EXPECT_EQ(wrong_part(R"("thinking":"perhaps")"), "thinking");
  EXPECT_EQ(wrong_part(R"("guided_json":"{")"), "guided_json");
  EXPECT_EQ(wrong_part(R"("guided_json":5)"), "guided_json");
  EXPECT_EQ(wrong_part(R"("json_schema":"x")"), "json_schema");
  EXPECT_EQ(wrong_part(R"("structured_outputs":{"json":"[]"})"), "structured_outputs.json");
  // What a body may not have its texts may not either.
  std::string deep = "1";
  for (int i = 0; i < 70; ++i) deep = R"({\"a\":)" + deep + "}";
  EXPECT_EQ(wrong_part(R"("guided_json":")" + deep + '"'), "guided_json");
  EXPECT_EQ(wrong_part(R"("guided_json":"{\"a\":1,\"a\":2}")"), "guided_json");
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
       R"("structured_outputs":{"json":"{\"b\":1,\"a\":2}"})", R"("guided_json":{"b":1,"a":2})",
       R"("guided_json":"{\"b\":1,\"a\":2}")"}) {
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

std::string repeated(std::size_t count, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += (i > 0 ? "," : "") + text;
  return all;
}

std::string wrong_completion_part(const OrderedJson& body) {
  const auto parsed = parse_completion_request(body, {});
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "nothing" : error->parameter;
}

// What is common to many prompts is there once for each.
TEST(CompletionRequest, ManyPromptsShareLittle) {
  OrderedJson body;
  for (int i = 0; i < 256; ++i) body["prompt"].push_back("a");
  EXPECT_EQ(wrong_completion_part(body), "nothing");
  body["suffix"] = std::string(100'000, 'x');
  EXPECT_EQ(wrong_completion_part(body), "suffix");
  body["suffix"] = std::string(1000, 'x');
  EXPECT_EQ(wrong_completion_part(body), "nothing");
  for (int i = 0; i < 20000; ++i) body["logit_bias"].push_back({i, 1});
  EXPECT_EQ(wrong_completion_part(body), "logit_bias");
  body.erase("logit_bias");
  for (int i = 0; i < 60; ++i) body["stop"].push_back(std::string(4096, 'x'));
  EXPECT_EQ(wrong_completion_part(body), "stop");
  body.erase("stop");
  body["json_schema"] = {{"description", std::string(4096, 'x')}};
  EXPECT_EQ(wrong_completion_part(body), "response_format");
  body.erase("json_schema");
  body["n"] = 5;
  EXPECT_EQ(wrong_completion_part(body), "n");
  body["prompt"] = "a";
  body["suffix"] = std::string(100'000, 'x');
  EXPECT_EQ(wrong_completion_part(body), "nothing");
}

TEST(ChatRequest, HasLimits) {
  const std::string long_text = "\"" + std::string(5000, 'x') + "\"";
  EXPECT_EQ(wrong_part(R"("model":)" + long_text), "model");
  EXPECT_EQ(wrong_part(R"("reasoning_effort":)" + long_text), "reasoning_effort");
  EXPECT_EQ(wrong_part(R"("stop":)" + long_text), "stop");
  EXPECT_EQ(wrong_part(R"("stop":["a",)" + long_text + "]"), "stop");
  EXPECT_EQ(wrong_part(R"("stop":[)" + repeated(65, "\"a\"") + "]"), "stop");
  EXPECT_EQ(wrong_part(R"("stop":[)" + repeated(64, "\"a\"") + "]"), "nothing");
  const std::string tool = R"({"function":{"name":"f"}})";
  EXPECT_EQ(wrong_part(R"("tools":[)" + repeated(4097, tool) + "]"), "tools");
  EXPECT_EQ(wrong_part(R"("functions":[)" + repeated(4097, R"({"name":"f"})") + "]"), "functions");
  EXPECT_EQ(wrong_part(R"("tools":[{"function":{"name":"f","description":")" +
                       std::string(2 << 20, 'x') + R"("}}])"),
            "tools");
  const std::string large =
      R"("tools":[{"function":{"name":"f","description":")" + std::string(1 << 19, 'x') + R"("}}])";
  EXPECT_EQ(wrong_part(large + R"(,"n":4)"), "nothing");
  EXPECT_EQ(wrong_part(large + R"(,"n":20)"), "n");
  EXPECT_EQ(wrong_part("\"logit_bias\":[" + repeated(65537, "[1,2]") + "]"), "logit_bias");
}

TEST(ChatRequest, ArgumentsOfTheTemplateHaveLimits) {
  std::string names;
  for (int i = 0; i < 256; ++i) names += (i > 0 ? ",\"a" : "\"a") + std::to_string(i) + "\":1";
  EXPECT_EQ(wrong_part(R"("chat_template_kwargs":{)" + names + "}"), "nothing");
  EXPECT_EQ(wrong_part(R"("chat_template_kwargs":{"b":1,)" + names + "}"), "chat_template_kwargs");
  const std::string deep = std::string(16, '[') + std::string(16, ']');
  EXPECT_EQ(wrong_part(R"("chat_template_kwargs":{"a":)" + deep + "}"), "chat_template_kwargs");
  EXPECT_EQ(wrong_part(R"("chat_template_kwargs":{"a":[)" + repeated(5000, "1") + "]}"),
            "chat_template_kwargs");
  EXPECT_EQ(wrong_part(R"("chat_template_kwargs":{"a":")" + std::string(300'000, 'x') + "\"}"),
            "chat_template_kwargs");
}

// Clients send back what other servers answered.
TEST(ChatRequest, ThoughtsInPartsAreThoughts) {
  const auto assistant = [](const std::string& message) {
    return chat_of("", R"([{"role":"user","content":"x"},{"role":"assistant",)" + message +
                           R"(},{"role":"user","content":"y"}])")
        .request.conversation.messages[1];
  };
  ChatMessage read = assistant(R"("content":[{"type":"thinking","thinking":"a","signature":"s"},
      {"type":"redacted_thinking","data":"zz"},{"type":"text","text":"b"},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"c"}]},
      {"type":"reasoning.encrypted","data":"zz"},{"type":"tool_use","id":"1","name":"f","input":{}},
      {"type":"something_new"},{"type":"text","text":"d"}])");
  EXPECT_EQ(read.content, "b\nd");
  EXPECT_EQ(read.reasoning, "a\nc");
  read = assistant(R"("content":"b","reasoning_details":[{"type":"reasoning.text","text":"a"},
      {"type":"reasoning.encrypted","data":"z"},{"type":"reasoning.summary","summary":"s"}])");
  EXPECT_EQ(read.reasoning, "a\ns");
  read = assistant(R"("content":"b","thinking_blocks":[{"type":"thinking","thinking":"a"}])");
  EXPECT_EQ(read.reasoning, "a");
  EXPECT_EQ(wrong_part("", R"([{"role":"assistant","content":[{"type":"image_url"}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(wrong_part("", R"([{"role":"user","content":[{"type":"thinking","thinking":"a"}]}])"),
            "messages[0].content[0].type");
}

// Tools that are no functions cannot be offered: they are left out, unless one must be called.
TEST(ChatRequest, CustomToolsAreLeftOut) {
  const std::string both = R"("tools":[{"type":"custom","custom":{"name":"c"}},
      {"type":"function","function":{"name":"f"}}])";
  const std::string custom = R"("tools":[{"type":"custom","custom":{"name":"c"}}])";
  EXPECT_EQ(chat_of(both).request.conversation.tools.size(), 1U);
  EXPECT_EQ(chat_of(custom + R"(,"tool_choice":"auto")").request.conversation.tools.size(), 0U);
  EXPECT_EQ(wrong_part(custom + R"(,"tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(wrong_part(both + R"(,"tool_choice":{"type":"custom","custom":{"name":"c"}})"),
            "tool_choice");
  const auto allowed = [&](const std::string& mode, const std::string& names) {
    return both + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" + mode +
           R"(","tools":[{"type":"custom","custom":{"name":"c"}})" + names + "]}}";
  };
  const std::string f = R"(,{"type":"function","function":{"name":"f"}})";
  EXPECT_EQ(chat_of(allowed("auto", "")).request.tool_choice.kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(wrong_part(allowed("required", "")), "tool_choice.tools");
  EXPECT_EQ(chat_of(allowed("required", f + f)).request.tool_choice.allowed,
            std::vector<std::string>{"f"});
  const ToolCall call = chat_of("", R"([{"role":"user","content":"x"},{"role":"assistant",
      "tool_calls":[{"id":"1","type":"custom","custom":{"name":"c","input":"go \"on\""}}]},
      {"role":"user","content":"y"}])")
                            .request.conversation.messages[1]
                            .calls.at(0);
  EXPECT_EQ(call.name, "c");
  EXPECT_EQ(call.arguments, R"({"input":"go \"on\""})");
}

}  // namespace
}  // namespace moepack::chat_request_test
