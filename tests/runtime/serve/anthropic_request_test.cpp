#include "runtime/serve/anthropic_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/serve/anthropic_errors.h"
#include "tests/runtime/serve/answer_script.h"

namespace moepack::anthropic_request_test {
namespace {

using test::json;

ChatRequest read(const std::string& members, MessagesPurpose purpose = MessagesPurpose::kAnswer) {
  auto result = read_messages_request(json("{\"max_tokens\":9," + members + "}"), purpose);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->parameter << ": " << error->message;
    return {};
  }
  return std::get<MessagesRequest>(result).chat;
}

// The parameter that the refusal names.
std::string refused(const std::string& body, MessagesPurpose purpose = MessagesPurpose::kAnswer) {
  auto result = read_messages_request(json(body), purpose);
  const auto* error = std::get_if<ApiError>(&result);
  if (error == nullptr) return "(taken)";
  EXPECT_EQ(error->kind, ApiErrorKind::kInvalidRequest);
  EXPECT_FALSE(error->message.empty());
  return error->parameter;
}
std::string refused_member(const std::string& members) {
  return refused("{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]," +
                 members + "}");
}

// "role:content" of each message, with thoughts and calls.
std::vector<std::string> told(const ChatRequest& chat) {
  std::vector<std::string> lines;
  for (const ChatMessage& message : chat.conversation.messages) {
    const char* role = message.role == ChatRole::kSystem      ? "system"
                       : message.role == ChatRole::kUser      ? "user"
                       : message.role == ChatRole::kAssistant ? "assistant"
                                                              : "tool";
    std::string line = std::string(role) + ":" + message.content;
    if (!message.reasoning.empty()) line += "|thinks " + message.reasoning;
    for (const ToolCall& call : message.calls) {
      line += "|calls " + call.id + " " + call.name + " " + call.arguments;
    }
    if (!message.tool_call_id.empty()) line += "|of " + message.tool_call_id;
    lines.push_back(line);
  }
  return lines;
}
std::vector<std::string> told_messages(const std::string& messages) {
  return told(read("\"messages\":[" + messages + "]"));
}
using Lines = std::vector<std::string>;

const std::string kUser = R"({"role":"user","content":"q"})";
const std::string kTools =
    R"("tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{}}])";

TEST(MessagesRequest, TextsAndRoles) {
  EXPECT_EQ(told_messages(kUser), (Lines{"user:q"}));
  EXPECT_EQ(told_messages(R"({"role":"user","content":[{"type":"text","text":"a"},
      {"type":"text","text":""},{"type":"text","text":"b"}]},
      {"role":"assistant","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]},
      {"role":"ctx","content":"e"})"),
            (Lines{"user:a\nb", "assistant:cd", "user:e"}));
}

TEST(MessagesRequest, RequiredMembersAreNamed) {
  EXPECT_EQ(refused("{\"messages\":[" + kUser + "]}"), "max_tokens");
  EXPECT_EQ(refused("{\"messages\":[" + kUser + "]}", MessagesPurpose::kCount), "(taken)");
  EXPECT_EQ(refused(R"({"max_tokens":1})"), "messages");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[]})"), "messages");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":{}})"), "messages");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[{"content":"q"}]})"), "messages[0].role");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[{"role":"user","content":3}]})"),
            "messages[0].content");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[{"role":"user","content":["q"]}]})"),
            "messages[0].content[0]");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[7]})"), "messages[0]");
}

TEST(MessagesRequest, WrongTypesAndLimitsAreNamed) {
  EXPECT_EQ(refused_member(R"("max_tokens":-1)"), "max_tokens");
  EXPECT_EQ(refused_member(R"("max_tokens":"9")"), "max_tokens");
  EXPECT_EQ(refused_member(R"("max_tokens":1.5)"), "max_tokens");
  EXPECT_EQ(refused_member(R"("stream":"yes")"), "stream");
  EXPECT_EQ(refused_member(R"("temperature":-3)"), "temperature");
  EXPECT_EQ(refused_member(R"("top_p":2)"), "top_p");
  EXPECT_EQ(refused_member(R"("top_k":"a")"), "top_k");
  EXPECT_EQ(refused_member(R"("stop_sequences":[1])"), "stop_sequences");
  EXPECT_EQ(refused_member(R"("tools":{})"), "tools");
  EXPECT_EQ(refused_member(R"("tools":[{"input_schema":{}}])"), "tools[0].name");
  EXPECT_EQ(refused_member(R"("tools":[{"name":"f","input_schema":[]}])"), "tools[0].input_schema");
  EXPECT_EQ(refused_member(R"("tool_choice":"any")"), "tool_choice");
  EXPECT_EQ(refused_member(R"("tool_choice":{"type":"any"})"), "tool_choice.type");
  EXPECT_EQ(refused_member(R"("tool_choice":{"type":"all"})"), "tool_choice.type");
  EXPECT_EQ(refused_member(kTools + R"(,"tool_choice":{"type":"tool","name":"h"})"),
            "tool_choice.name");
  EXPECT_EQ(refused_member(R"("thinking":{"type":"enabled","budget_tokens":-5})"),
            "thinking.budget_tokens");
  EXPECT_EQ(refused_member(R"("output_config":{"format":{"type":"json_schema"}})"),
            "output_config.format.schema");
  EXPECT_EQ(refused_member(R"("output_config":{"format":{"type":"xml"}})"),
            "output_config.format.type");
}

TEST(MessagesRequest, NullIsAbsentAndUnknownMembersAreIgnored) {
  const ChatRequest chat =
      read(R"("messages":[)" + kUser + R"(],"system":null,"tools":null,"tool_choice":null,
      "thinking":null,"output_config":null,"stop_sequences":null,"stream":null,"temperature":null,
      "metadata":{"user_id":"x"},"container":"c","service_tier":"auto","speed":"fast",
      "mcp_servers":[{}],"context_management":{"edits":[]},"inference_geo":"us","diagnostics":{},
      "betas":["x"],"never_seen":1)");
  EXPECT_EQ(told(chat), (Lines{"user:q"}));
  EXPECT_TRUE(chat.conversation.tools.empty());
}

TEST(MessagesRequest, SystemIsJoinedWithoutTheBillingLine) {
  const std::string messages = "\"messages\":[" + kUser + "]";
  EXPECT_EQ(told(read(R"("system":"be brief",)" + messages)), (Lines{"system:be brief", "user:q"}));
  const auto with_billing = [&](const std::string& value) {
    return told(
        read(R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; )" +
             value + R"("},{"type":"text","text":"You code."},
        {"type":"text","text":"Rules."}],)" +
             messages));
  };
  EXPECT_EQ(with_billing("cch=1;"), (Lines{"system:You code.\nRules.", "user:q"}));
  EXPECT_EQ(with_billing("cch=2;"), with_billing("cch=1;"));
  EXPECT_EQ(told(read(R"("system":"x-anthropic-billing-header: cch=3;\nYou code.",)" + messages)),
            (Lines{"system:You code.", "user:q"}));
  EXPECT_EQ(told(read(R"("system":"x-anthropic-billing-header: cch=3;",)" + messages)),
            (Lines{"user:q"}));
}

TEST(MessagesRequest, LateSystemMessagesStayInTheirPlace) {
  EXPECT_EQ(told_messages(kUser + R"(,{"role":"assistant","content":"a"},
      {"role":"system","content":"The date changed."},{"role":"user","content":"next"})"),
            (Lines{"user:q", "assistant:a",
                   "user:<system-reminder>\nThe date changed.\n</system-reminder>\n\nnext"}));
  // At the head it is what system is for.
  EXPECT_EQ(
      told(read(R"("system":"one","messages":[{"role":"system","content":"two"},)" + kUser + "]")),
      (Lines{"system:one\ntwo", "user:q"}));
  EXPECT_EQ(told_messages(kUser + R"(,{"role":"system","content":[]})"), (Lines{"user:q"}));
}

const std::string kCallTurn =
    R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
    {"type":"redacted_thinking","data":"x"},{"type":"text","text":"look"},
    {"type":"tool_use","id":"t1","name":"f","input":{"b":1,"a":[2,"é"]}},
    {"type":"tool_use","id":"t2","name":"g","input":{}}]})";

TEST(MessagesRequest, ToolResultsComeBeforeTheTextOfTheirMessage) {
  EXPECT_EQ(told_messages(kUser + "," + kCallTurn + R"(,{"role":"user","content":[
      {"type":"text","text":"and now?"},
      {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"x"},
        {"type":"image","source":{}},{"type":"tool_reference","tool_name":"g"}]},
      {"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no file"},
      {"type":"tool_result","tool_use_id":"t3"}]})"),
            (Lines{"user:q",
                   "assistant:look|thinks hm|calls t1 f {\"b\":1,\"a\":[2,\"é\"]}|calls t2 g {}",
                   "tool:x\n[image omitted: this model cannot see images]\n[tool g]|of t2",
                   "tool:Error: no file|of t1", "tool:|of t3", "user:and now?"}));
}

// A user's message there would make templates drop the thoughts of the turns before it.
TEST(MessagesRequest, RemindersBehindAResultBelongToIt) {
  EXPECT_EQ(told_messages(kUser + R"(,{"role":"assistant","content":[
      {"type":"tool_use","id":"t1","name":"f","input":{}}]},{"role":"user","content":[
      {"type":"tool_result","tool_use_id":"t1","content":"done"},
      {"type":"text","text":"<system-reminder>todo</system-reminder>"}]},
      {"role":"system","content":"late"})"),
            (Lines{"user:q", "assistant:|calls t1 f {}",
                   "tool:done\n\n<system-reminder>todo</system-reminder>\n\n"
                   "<system-reminder>\nlate\n</system-reminder>|of t1"}));
}

TEST(MessagesRequest, TurnsOfOneRoleMerge) {
  EXPECT_EQ(told_messages(R"({"role":"user","content":"a"},{"role":"user","content":"b"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"x"}]},
      {"role":"assistant","content":"c"},
      {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]},
      {"role":"user","content":"d"})"),
            (Lines{"user:a\n\nb", "assistant:c|thinks x|calls t f {}", "tool:r|of t", "user:d"}));
}

TEST(MessagesRequest, OtherBlocksAreTextOrDropped) {
  EXPECT_EQ(told_messages(R"({"role":"user","content":[{"type":"image","source":{"type":"base64"}},
      {"type":"document","title":"T","source":{"type":"text","data":"D"}},
      {"type":"document","source":{"type":"content","content":[{"type":"text","text":"C"}]}},
      {"type":"document","source":{"type":"base64","data":"JVBERi0="}},
      {"type":"search_result","title":"S","source":"http://s","content":[{"type":"text","text":"R"}]},
      {"type":"of_the_future","text":"kept"},{"type":"of_the_future","blob":"no"}]},
      {"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},
      {"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result"}]},
      {"type":"text","text":"found"}]},)" +
                          kUser),
            (Lines{"user:[image omitted: this model cannot see images]\nT\nD\nC\n"
                   "[document omitted: this model reads text only]\nS\nhttp://s\nR\nkept",
                   "assistant:found", "user:q"}));
}

TEST(MessagesRequest, BlocksInTheWrongRoleAreRefused) {
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[{"role":"user","content":[
      {"type":"tool_use","id":"t","name":"f","input":{}}]}]})"),
            "messages[0].content[0]");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[{"role":"assistant","content":[
      {"type":"tool_result","tool_use_id":"t"}]}]})"),
            "messages[0].content[0]");
  EXPECT_EQ(refused(R"({"max_tokens":1,"messages":[{"role":"assistant","content":[
      {"type":"tool_use","id":"t"}]}]})"),
            "messages[0].content[0].name");
}

TEST(MessagesRequest, ToolsAreWrappedInOrderAndServerToolsDropped) {
  const ChatRequest chat = read("\"messages\":[" + kUser + R"(],"tools":[
      {"type":"web_search_20250305","name":"web_search","max_uses":5},
      {"name":"f","description":"does f","input_schema":{"type":"object","$schema":"http://x",
        "properties":{"z":{"anyOf":[{"type":"string","format":"uri"},{"type":"null"}]},"a":{}},
        "additionalProperties":false},"cache_control":{"type":"ephemeral"},"strict":true},
      {"type":"bash_20250124","name":"bash"},
      {"type":"custom","name":"g"},{"name":"f","input_schema":{}}])");
  const std::vector<ToolSpec>& tools = chat.conversation.tools;
  ASSERT_EQ(tools.size(), 2U);
  EXPECT_EQ(tools[0].wire.dump(),
            R"({"type":"function","function":{"name":"f","description":"does f","parameters":)"
            R"({"type":"object","$schema":"http://x","properties":{"z":{"anyOf":[{"type":"string",)"
            R"("format":"uri"},{"type":"null"}]},"a":{}},"additionalProperties":false}}})");
  EXPECT_EQ(tools[0].parameters, tools[0].wire["function"]["parameters"]);
  EXPECT_EQ(tools[1].name, "g");
  EXPECT_TRUE(tools[1].parameters.is_null());
  EXPECT_EQ(tools[1].wire["function"]["parameters"].dump(), R"({"type":"object","properties":{}})");
}

TEST(MessagesRequest, ToolChoice) {
  using Kind = ToolChoice::Kind;
  const auto choice = [](const std::string& text) {
    return read("\"messages\":[" + kUser + "]," + kTools + ",\"tool_choice\":" + text).tool_choice;
  };
  EXPECT_EQ(choice("null").kind, Kind::kAuto);
  EXPECT_TRUE(choice("null").is_parallel);
  EXPECT_EQ(choice(R"({"type":"auto","disable_parallel_tool_use":true})").kind, Kind::kAuto);
  EXPECT_FALSE(choice(R"({"type":"auto","disable_parallel_tool_use":true})").is_parallel);
  EXPECT_EQ(choice(R"({"type":"any"})").kind, Kind::kRequired);
  EXPECT_TRUE(choice(R"({"type":"any"})").allowed.empty());
  EXPECT_EQ(choice(R"({"type":"none"})").kind, Kind::kNone);
  EXPECT_EQ(choice(R"({"type":"tool","name":"g"})").kind, Kind::kRequired);
  EXPECT_EQ(choice(R"({"type":"tool","name":"g"})").allowed, (Lines{"g"}));
}

TEST(MessagesRequest, Thinking) {
  const auto thinking = [](const std::string& text) {
    return read("\"messages\":[" + kUser + "],\"thinking\":" + text);
  };
  EXPECT_EQ(thinking("null").thinks, std::optional<bool>(false));
  EXPECT_EQ(thinking(R"({"type":"disabled"})").thinks, std::optional<bool>(false));
  EXPECT_EQ(thinking(R"({"type":"enabled","budget_tokens":2048})").thinks,
            std::optional<bool>(true));
  EXPECT_EQ(thinking(R"({"type":"enabled","budget_tokens":2048})").thinking_budget,
            std::optional<std::uint64_t>(2048));
  EXPECT_EQ(thinking(R"({"type":"adaptive","display":"omitted"})").thinks,
            std::optional<bool>(true));
  EXPECT_EQ(thinking(R"({"type":"between_tools"})").thinks, std::nullopt);
  EXPECT_EQ(read("\"messages\":[" + kUser + R"(],"chat_template_kwargs":{"enable_thinking":true})")
                .thinks,
            std::optional<bool>(true));
}

TEST(MessagesRequest, OutputConfig) {
  const ChatRequest chat = read("\"messages\":[" + kUser + R"(],"output_config":{"effort":"max",
      "format":{"type":"json_schema","schema":{"type":"object"}}})");
  EXPECT_EQ(chat.conversation.template_arguments["reasoning_effort"], "high");
  EXPECT_EQ(chat.format.kind, ResponseFormat::Kind::kJsonSchema);
  EXPECT_EQ(chat.format.schema.dump(), R"({"type":"object"})");
}

TEST(MessagesRequest, SamplingAndStops) {
  AnswerOptions defaults;
  defaults.sampling.top_p = 0.25F;
  const auto result = read_messages_request(
      json("{\"max_tokens\":0,\"model\":\"m\",\"stream\":true,\"messages\":[" + kUser +
           R"(],"temperature":0,"top_k":5,"stop_sequences":["a","","b"]})"),
      MessagesPurpose::kAnswer, defaults);
  const auto& request = std::get<MessagesRequest>(result);
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.streams);
  const AnswerOptions& options = request.chat.options;
  EXPECT_EQ(options.max_tokens, std::optional<std::uint64_t>(0));  // only warms the cache
  EXPECT_EQ(options.sampling.temperature, 0);
  EXPECT_EQ(options.sampling.top_k, 5);
  EXPECT_EQ(options.sampling.top_p, 0.25F);
  EXPECT_EQ(options.stop, (Lines{"a", "b"}));
}

TEST(MessagesRequest, LastMessageOfTheAssistant) {
  const ChatRequest prefill =
      read("\"messages\":[" + kUser + R"(,{"role":"assistant","content":"The answer is"}])");
  EXPECT_TRUE(prefill.conversation.continues_last);
  EXPECT_EQ(told(prefill), (Lines{"user:q", "assistant:The answer is"}));
  const ChatRequest empty = read("\"messages\":[" + kUser +
                                 R"(,{"role":"assistant","content":[{"type":"text","text":""}]}])");
  EXPECT_FALSE(empty.conversation.continues_last);
  EXPECT_EQ(told(empty), (Lines{"user:q"}));
  const std::string calls = "\"messages\":[" + kUser + "," + kCallTurn + "]";
  EXPECT_EQ(refused("{\"max_tokens\":1," + calls + "}"), "messages");
  EXPECT_FALSE(read(calls, MessagesPurpose::kCount).conversation.continues_last);
}

TEST(MessagesRequest, CacheControlBecomesHints) {
  const std::string mark = R"(,"cache_control":{"type":"ephemeral"})";
  const ChatRequest chat =
      read(R"("system":[{"type":"text","text":"a"},{"type":"text","text":"b")" + mark + R"(}],
      "messages":[{"role":"user","content":[{"type":"text","text":"c")" +
           mark + R"(}]},
      {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r")" +
           mark + R"(},{"type":"text","text":"go on")" + mark + "}]}]");
  EXPECT_EQ(chat.cache_hints, (std::vector<std::size_t>{0, 1, 3, 4}));
  EXPECT_EQ(read(R"("system":"s","tools":[{"name":"f")" + mark + R"(}],"messages":[)" + kUser + "]")
                .cache_hints,
            (std::vector<std::size_t>{0}));
  EXPECT_EQ(read("\"messages\":[" + kUser + "]" + mark).cache_hints, (std::vector<std::size_t>{0}));
}

TEST(MessagesErrors, ShapeTypesAndWords) {
  const auto body = [](const ApiError& error) {
    return json(anthropic_error_body(error, "req_1"));
  };
  const ApiError invalid =
      invalid_request("messages[0].content must be a text", "messages[0].content");
  EXPECT_EQ(body(invalid).dump(),
            R"({"type":"error","error":{"type":"invalid_request_error","message":)"
            R"("messages[0].content must be a text"},"request_id":"req_1"})");
  ApiError length{.kind = ApiErrorKind::kContextLength, .message = "x"};
  length.prompt_tokens = 40000;
  length.context = 32768;
  EXPECT_EQ(body(length)["error"]["message"], "prompt is too long: 40000 tokens > 32768 maximum");
  EXPECT_EQ(body(length)["error"]["type"], "invalid_request_error");
  const std::pair<ApiErrorKind, const char*> types[] = {
      {ApiErrorKind::kAuthentication, "authentication_error"},
      {ApiErrorKind::kPermission, "permission_error"},
      {ApiErrorKind::kNotFound, "not_found_error"},
      {ApiErrorKind::kTooLarge, "request_too_large"},
      {ApiErrorKind::kRateLimit, "rate_limit_error"},
      {ApiErrorKind::kServer, "api_error"},
      {ApiErrorKind::kUnavailable, "overloaded_error"},
  };
  for (const auto& [kind, type] : types) {
    EXPECT_EQ(body({.kind = kind, .message = "m"})["error"]["type"], type);
  }
}

std::string list_of(std::size_t count, const std::string& item) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += (i > 0 ? "," : "") + item;
  return list + "]";
}

TEST(MessagesRequest, HasLimits) {
  const std::string long_text = "\"" + std::string(5000, 'x') + "\"";
  EXPECT_EQ(refused_member("\"model\":" + long_text), "model");
  EXPECT_EQ(refused_member("\"stop_sequences\":[" + long_text + "]"), "stop_sequences");
  EXPECT_EQ(refused_member("\"stop_sequences\":" + list_of(65, "\"a\"")), "stop_sequences");
  EXPECT_EQ(refused_member("\"output_config\":{\"effort\":" + long_text + "}"),
            "output_config.effort");
  EXPECT_EQ(refused_member("\"tools\":" + list_of(4097, R"({"name":"f","input_schema":{}})")),
            "tools");
  EXPECT_EQ(refused_member(R"("tools":[{"name":"f","input_schema":{"title":")" +
                           std::string(5 << 20, 'x') + "\"}}]"),
            "tools");
  EXPECT_EQ(refused_member("\"chat_template_kwargs\":{\"a\":" + list_of(5000, "1") + "}"),
            "chat_template_kwargs");
}

}  // namespace
}  // namespace moepack::anthropic_request_test
