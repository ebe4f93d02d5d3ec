#include "runtime/serve/responses_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/runtime/serve/answer_script.h"

namespace moepack::responses_request_test {
namespace {

using test::json;
using Lines = std::vector<std::string>;

ResponsesRequest read_request(const std::string& body) {
  auto result = read_responses_request(json(body), ResponsesPurpose::kAnswer);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->parameter << ": " << error->message;
    return {};
  }
  return std::move(std::get<ResponsesRequest>(result));
}
ChatRequest read(const std::string& body) { return read_request(body).chat; }
ChatRequest read_with(const std::string& members) {
  return read("{\"input\":\"q\"," + members + "}");
}

std::string refused(const std::string& body) {
  auto result = read_responses_request(json(body), ResponsesPurpose::kAnswer);
  const auto* error = std::get_if<ApiError>(&result);
  if (error == nullptr) return "(taken)";
  EXPECT_EQ(error->kind, ApiErrorKind::kInvalidRequest);
  EXPECT_FALSE(error->message.empty());
  return error->parameter;
}
std::string refused_member(const std::string& members) {
  return refused("{\"input\":\"q\"," + members + "}");
}

Lines told(const ChatRequest& chat) {
  Lines lines;
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
Lines told_items(const std::string& items) { return told(read("{\"input\":[" + items + "]}")); }

const std::string kTools =
    R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true},
    {"type":"function","name":"g","description":"G","parameters":null}])";

TEST(ResponsesRequest, TextAndInstructions) {
  EXPECT_EQ(told(read(R"({"input":"q"})")), (Lines{"user:q"}));
  EXPECT_EQ(told(read(R"({"input":"q","instructions":"be brief"})")),
            (Lines{"system:be brief", "user:q"}));
}

TEST(ResponsesRequest, MessagesOfEveryRoleAndForm) {
  EXPECT_EQ(told(read(R"({"instructions":"i","input":[
      {"role":"developer","content":"d"},{"type":"message","role":"system","content":[{"type":"input_text","text":"s"}]},
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[
        {"type":"output_text","text":"c","annotations":[]},{"type":"output_text","text":"d"},
        {"type":"refusal","refusal":"no"}]},
      {"role":"user","content":"e"}]})")),
            (Lines{"system:i\n\nd\n\ns", "user:a\nb", "assistant:cdno", "user:e"}));
}

TEST(ResponsesRequest, NeighboursOfTheAssistantBecomeOneMessage) {
  EXPECT_EQ(
      told_items(R"({"role":"user","content":"q"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"look"}]},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}","status":"completed"},
      {"type":"function_call","call_id":"c2","name":"g"},
      {"type":"function_call_output","call_id":"c1","output":"one"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"},
        {"type":"input_image","image_url":"data:"}]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},
      {"type":"message","role":"assistant","content":"done"},{"role":"user","content":"next"})"),
      (Lines{"user:q", "assistant:look|thinks hm|calls c1 f {\"a\": 1}|calls c2 g {}",
             "tool:one|of c1", "tool:two\n[input_image omitted: this model reads text only]|of c2",
             "assistant:done|thinks short", "user:next"}));
}

TEST(ResponsesRequest, LateInstructionsStayInTheirPlace) {
  EXPECT_EQ(told_items(R"({"role":"user","content":"q"},{"role":"assistant","content":"a"},
      {"role":"developer","content":"new rule"},{"role":"user","content":"next"})"),
            (Lines{"user:q", "assistant:a", "user:<system-reminder>\nnew rule\n</system-reminder>",
                   "user:next"}));
}

TEST(ResponsesRequest, ItemsThatNobodyKnowsAreSkipped) {
  EXPECT_EQ(told_items(R"({"role":"user","content":"q"},{"type":"web_search_call","id":"w"},
      {"type":"reasoning","summary":[],"encrypted_content":"xx"},
      {"type":"custom_tool_call","call_id":"p","name":"apply_patch","input":"*** Begin"},
      {"type":"custom_tool_call_output","call_id":"p","output":"ok"},{"type":"compaction"})"),
            (Lines{"user:q", "assistant:|calls p apply_patch {\"input\":\"*** Begin\"}",
                   "tool:ok|of p"}));
}

TEST(ResponsesRequest, RefusalsNameThePart) {
  EXPECT_EQ(refused("{}"), "input");
  EXPECT_EQ(refused(R"({"input":7})"), "input");
  EXPECT_EQ(refused(R"({"input":[]})"), "input");
  EXPECT_EQ(refused(R"({"input":["q"]})"), "input[0]");
  EXPECT_EQ(refused(R"({"input":[{"content":"q"}]})"), "input[0].role");
  EXPECT_EQ(refused(R"({"input":[{"role":"user","content":{}}]})"), "input[0].content");
  EXPECT_EQ(refused(R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"),
            "input[0].content[0].type");
  EXPECT_EQ(refused(R"({"input":[{"type":"item_reference","id":"x"}]})"), "input[0].type");
  EXPECT_EQ(refused(R"({"input":[{"type":"function_call","call_id":"c"}]})"), "input[0].name");
  EXPECT_EQ(refused_member(R"("previous_response_id":"resp_1")"), "previous_response_id");
  EXPECT_EQ(refused_member(R"("conversation":"conv_1")"), "conversation");
  EXPECT_EQ(refused_member(R"("prompt":{"id":"p"})"), "prompt");
  EXPECT_EQ(refused_member(R"("background":true)"), "background");
  EXPECT_EQ(refused_member(R"("instructions":[])"), "instructions");
  EXPECT_EQ(refused_member(R"("max_output_tokens":-3)"), "max_output_tokens");
  EXPECT_EQ(refused_member(R"("temperature":"hot")"), "temperature");
  EXPECT_EQ(refused_member(R"("top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(refused_member(R"("tools":[7])"), "tools[0]");
  EXPECT_EQ(refused_member(R"("tools":[{"type":"function"}])"), "tools[0].name");
  EXPECT_EQ(refused_member(R"("tools":[{"type":"function","name":"f","parameters":[]}])"),
            "tools[0].parameters");
  EXPECT_EQ(refused_member(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(refused_member(R"("tool_choice":"any")"), "tool_choice");
  EXPECT_EQ(refused_member(kTools + R"(,"tool_choice":{"type":"function","name":"h"})"),
            "tool_choice.name");
  EXPECT_EQ(refused_member(R"("text":{"format":{"type":"json_schema","name":"x"}})"),
            "text.format.schema");
  EXPECT_EQ(refused_member(R"("reasoning":"high")"), "reasoning");
}

TEST(ResponsesRequest, NullIsAbsentAndUnknownMembersAreIgnored) {
  EXPECT_EQ(told(read_with(
                R"("instructions":null,"tools":null,"tool_choice":null,"reasoning":null,"text":null,
      "previous_response_id":null,"conversation":null,"prompt":null,"background":null,
      "include":["reasoning.encrypted_content"],"prompt_cache_key":"k","store":false,
      "service_tier":"auto","safety_identifier":"s","stream_options":{},"truncation":"auto",
      "user":"u","max_tool_calls":3,"never_seen":1)")),
            (Lines{"user:q"}));
}

TEST(ResponsesRequest, FlatToolsAreWrappedAndOthersSkipped) {
  const ResponsesRequest request = read_request(
      R"({"input":"q","tools":[{"type":"web_search"},{"type":"local_shell"},
      {"type":"custom","name":"apply_patch","format":{}},{"type":"mcp","server_label":"x"},
      {"type":"function","name":"f","description":"does","strict":false,"parameters":
        {"type":"object","properties":{"z":{},"a":{}},"additionalProperties":false}},
      {"type":"function","name":"g"}]})");
  const std::vector<ToolSpec>& tools = request.chat.conversation.tools;
  ASSERT_EQ(tools.size(), 2U);
  EXPECT_EQ(tools[0].wire.dump(),
            R"({"type":"function","function":{"name":"f","description":"does","parameters":)"
            R"({"type":"object","properties":{"z":{},"a":{}},"additionalProperties":false}}})");
  EXPECT_TRUE(tools[1].parameters.is_null());
  EXPECT_EQ(request.echo["tools"].size(), 2U);
  EXPECT_EQ(request.echo["tools"][1].dump(), R"({"type":"function","name":"g"})");
}

TEST(ResponsesRequest, ToolChoice) {
  using Kind = ToolChoice::Kind;
  const auto choice = [](const std::string& text) {
    return read_with(kTools + ",\"tool_choice\":" + text).tool_choice;
  };
  EXPECT_EQ(choice("\"auto\"").kind, Kind::kAuto);
  EXPECT_EQ(choice("\"none\"").kind, Kind::kNone);
  EXPECT_EQ(choice("\"required\"").kind, Kind::kRequired);
  EXPECT_EQ(choice(R"({"type":"function","name":"g"})").kind, Kind::kRequired);
  EXPECT_EQ(choice(R"({"type":"function","name":"g"})").allowed, (Lines{"g"}));
  const ToolChoice allowed = choice(
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},
      {"type":"web_search"}]})");
  EXPECT_EQ(allowed.kind, Kind::kRequired);
  EXPECT_EQ(allowed.allowed, (Lines{"f"}));
  EXPECT_EQ(choice(R"({"type":"web_search_preview"})").kind, Kind::kAuto);
  EXPECT_TRUE(choice("null").is_parallel);
  EXPECT_FALSE(read_with(R"("parallel_tool_calls":false)").tool_choice.is_parallel);
}

TEST(ResponsesRequest, ReasoningFormatAndLimits) {
  EXPECT_EQ(read_with(R"("reasoning":{"effort":"none"})").thinks, std::optional<bool>(false));
  const ChatRequest high = read_with(R"("reasoning":{"effort":"xhigh","summary":"auto"})");
  EXPECT_EQ(high.thinks, std::nullopt);
  EXPECT_EQ(high.conversation.template_arguments["reasoning_effort"], "high");
  EXPECT_EQ(read_with(R"("reasoning":{"effort":"minimal"})")
                .conversation.template_arguments["reasoning_effort"],
            "low");
  using Kind = ResponseFormat::Kind;
  EXPECT_EQ(read_with(R"("text":{"verbosity":"low"})").format.kind, Kind::kText);
  EXPECT_EQ(read_with(R"("text":{"format":{"type":"json_object"}})").format.kind,
            Kind::kJsonObject);
  const ChatRequest schema = read_with(
      R"("text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"b":1,"a":2}}})");
  EXPECT_EQ(schema.format.kind, Kind::kJsonSchema);
  EXPECT_EQ(schema.format.schema.dump(), R"({"b":1,"a":2})");
  const AnswerOptions options =
      read_with(R"("max_output_tokens":50,"temperature":0.5,"top_p":0.75,"stop":"x")").options;
  EXPECT_EQ(options.max_tokens, std::optional<std::uint64_t>(50));
  EXPECT_EQ(options.sampling.temperature, 0.5F);
  EXPECT_EQ(options.sampling.top_p, 0.75F);
  EXPECT_EQ(options.stop, (Lines{"x"}));
  EXPECT_FALSE(options.top_logprobs.has_value());
  EXPECT_EQ(read_with(R"("top_logprobs":5)").options.top_logprobs, std::optional<std::uint32_t>(5));
  EXPECT_EQ(read_with(R"("include":["message.output_text.logprobs"])").options.top_logprobs,
            std::optional<std::uint32_t>(0));
}

TEST(ResponsesRequest, EchoSaysWhatWasAsked) {
  const OrderedJson echo =
      read_request(R"({"input":"q","instructions":"i","metadata":{"k":"v"},"temperature":0.5,
      "reasoning":{"effort":"low"},"max_output_tokens":9,"parallel_tool_calls":false})")
          .echo;
  EXPECT_EQ(echo["instructions"], "i");
  EXPECT_EQ(echo["metadata"]["k"], "v");
  EXPECT_EQ(echo["temperature"], 0.5);
  EXPECT_EQ(echo["reasoning"]["effort"], "low");
  EXPECT_EQ(echo["max_output_tokens"], 9);
  EXPECT_EQ(echo["parallel_tool_calls"], false);
  EXPECT_EQ(echo["tool_choice"], "auto");
  EXPECT_EQ(echo["tools"].dump(), "[]");
  EXPECT_EQ(echo["text"].dump(), R"({"format":{"type":"text"}})");
}

std::string list_of_items(std::size_t count, const std::string& item) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += (i > 0 ? "," : "") + item;
  return list + "]";
}

TEST(ResponsesRequest, HasLimits) {
  const std::string long_text = "\"" + std::string(70'000, 'x') + "\"";
  EXPECT_EQ(refused_member("\"model\":" + long_text), "model");
  EXPECT_EQ(refused_member("\"stop\":[" + long_text + "]"), "stop");
  EXPECT_EQ(refused_member("\"reasoning\":{\"effort\":" + long_text + "}"), "reasoning.effort");
  EXPECT_EQ(refused_member("\"metadata\":{\"a\":" + long_text + "}"), "metadata");
  EXPECT_EQ(refused_member("\"prompt_cache_key\":" + long_text), "prompt_cache_key");
  const std::string tool = R"({"type":"function","name":"f"})";
  EXPECT_EQ(refused_member("\"tools\":" + list_of_items(4097, tool)), "tools");
  EXPECT_EQ(refused_member(R"("tools":[{"type":"function","name":"f","description":")" +
                           std::string(5 << 20, 'x') + "\"}]"),
            "tools");
  EXPECT_EQ(refused_member("\"tools\":[" + tool + R"(],"tool_choice":{"type":"allowed_tools",)" +
                           "\"mode\":\"auto\",\"tools\":" + list_of_items(4097, tool) + "}"),
            "tool_choice.tools");
  const ChatRequest twice =
      read_with("\"tools\":[" + tool + R"(],"tool_choice":{"type":"allowed_tools",)" +
                "\"mode\":\"auto\",\"tools\":" + list_of_items(3, tool) + "}");
  EXPECT_EQ(twice.tool_choice.allowed.size(), 1U);
}

// A tool that cannot be offered is left out, and asking for it is an error.
TEST(ResponsesRequest, ChoicesOfToolsThatAreNoFunctions) {
  const std::string tools =
      R"("tools":[{"type":"custom","name":"c"},{"type":"function","name":"f"}],)";
  EXPECT_EQ(refused_member(tools + R"("tool_choice":{"type":"custom","name":"c"})"), "tool_choice");
  const auto allowed = [&](const std::string& mode) {
    return tools + R"("tool_choice":{"type":"allowed_tools","mode":")" + mode +
           R"(","tools":[{"type":"custom","name":"c"}]})";
  };
  EXPECT_EQ(read_with(allowed("auto")).tool_choice.kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(refused_member(allowed("required")), "tool_choice.tools");
}

}  // namespace
}  // namespace moepack::responses_request_test
