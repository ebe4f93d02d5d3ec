#include <optional>
#include <utility>

#include "formats/base/utf8.h"
#include "runtime/serve/body_fields.h"
#include "runtime/serve/chat_request_json.h"
#include "runtime/serve/server_state.h"

namespace moepack {
namespace {

using TextReply = std::variant<HttpReply, ApiError>;
using TokenIds = std::vector<std::int32_t>;

// Texts of so many tokens are told at most: each takes some thirty bytes of the reply, and more of
// what it is made from.
constexpr std::size_t kMostToldTokens = std::size_t{1} << 20U;

// The text of a token, or its bytes where it is a part of a character.
std::string piece_json(const std::string& bytes) {
  if (find_invalid_utf8(bytes) == std::string_view::npos) return dump_json(bytes);
  OrderedJson numbers = OrderedJson::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return dump_json(numbers);
}

// A list of what `write` appends for each id. Written at once: a tree of JSON values would take
// many times the memory of the text.
template <typename Write>
std::string list_of(const TokenIds& ids, const Write& write) {
  std::string list = "[";
  for (const std::int32_t id : ids) {
    if (list.size() > 1) list += ',';
    write(id, list);
  }
  return list += ']';
}

std::variant<TokenIds, ApiError> ids_or_error(std::variant<TokenIds, Refusal> ids) {
  if (auto* refusal = std::get_if<Refusal>(&ids)) return api_error(*refusal);
  return std::get<TokenIds>(std::move(ids));
}

std::variant<TokenIds, ApiError> ids_of_conversation(const RouteCall& call) {
  auto parsed = parse_chat_request(call.json, call.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto rendered = call.service.render(std::get<ParsedChatRequest>(parsed).request);
  if (auto* refusal = std::get_if<Refusal>(&rendered)) return api_error(*refusal);
  return std::get<RenderedPrompt>(std::move(rendered)).ids;
}

// llama.cpp's {"content"}, vLLM's {"prompt"} or {"messages"}.
std::variant<TokenIds, ApiError> ids_of_request(const RouteCall& call) {
  RequestFault fault;
  const BodyFields request(call.json, "", fault);
  if (request.find("messages") != nullptr) return ids_of_conversation(call);
  auto text = request.text("content");
  const bool is_content = text.has_value();
  if (!is_content) text = request.text("prompt");
  TextReading reading;
  reading.with_markers = request.flag("parse_special").value_or(true);
  // Both servers have a name and a default of their own for what stands before a text.
  const auto special = request.flag("add_special");
  const auto special_tokens = request.flag("add_special_tokens");
  reading.begins_text = special.value_or(special_tokens.value_or(!is_content));
  if (!text.has_value()) request.fail("content", "content (or prompt, or messages) is missing");
  if (fault.is_set()) return *fault.error();
  return ids_or_error(call.service.tokenize(*text, reading));
}

TextReply reply_tokenize(const RouteCall& call) {
  RequestFault fault;
  const BodyFields request(call.json, "", fault);
  const bool with_pieces = request.flag("with_pieces").value_or(false);
  const bool with_strings = request.flag("return_token_strs").value_or(false);
  if (fault.is_set()) return *fault.error();
  auto found = ids_of_request(call);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const TokenIds& ids = std::get<TokenIds>(found);
  if ((with_pieces || with_strings) && ids.size() > kMostToldTokens) {
    return invalid_request("the text has " + std::to_string(ids.size()) +
                           " tokens; with_pieces and return_token_strs tell of at most " +
                           std::to_string(kMostToldTokens));
  }
  const AnswerService& service = call.service;
  HttpReply reply = json_reply(OrderedJson::object());
  std::string& body = reply.body;
  body = R"({"tokens":)";
  body += list_of(ids, [&](std::int32_t id, std::string& list) {
    if (with_pieces) list += R"({"id":)";
    list += std::to_string(id);
    if (with_pieces) list += R"(,"piece":)" + piece_json(service.token_bytes(id)) + "}";
  });
  body += R"(,"count":)" + std::to_string(ids.size()) + R"(,"max_model_len":)" +
          std::to_string(call.model.context) + R"(,"token_strs":)";
  body += !with_strings ? "null" : list_of(ids, [&](std::int32_t id, std::string& list) {
    list += dump_json(service.token_bytes(id));
  });
  body += '}';
  return reply;
}

TextReply reply_detokenize(const RouteCall& call) {
  RequestFault fault;
  const BodyFields request(call.json, "", fault);
  const OrderedJson* tokens = request.array("tokens");
  if (tokens == nullptr) request.fail("tokens", "tokens is missing");
  if (fault.is_set()) return *fault.error();
  TokenIds ids;
  for (const OrderedJson& token : *tokens) {
    const bool is_id = token.is_number_unsigned() && token.get<std::uint64_t>() <= INT32_MAX &&
                       token.get<std::uint64_t>() < call.model.vocabulary;
    if (!is_id) return invalid_request("tokens must be ids of this model's vocabulary", "tokens");
    ids.push_back(token.get<std::int32_t>());
  }
  const std::string text = dump_json(call.service.detokenize(ids));
  HttpReply reply = json_reply(OrderedJson::object());
  reply.body = R"({"content":)" + text + R"(,"prompt":)" + text + "}";
  return reply;
}

TextReply reply_template(const RouteCall& call) {
  auto parsed = parse_chat_request(call.json, call.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const ChatRequest& request = std::get<ParsedChatRequest>(parsed).request;
  auto rendered = call.service.render(request);
  if (auto* refusal = std::get_if<Refusal>(&rendered)) return api_error(*refusal);
  const auto& [text, ids] = std::get<RenderedPrompt>(rendered);
  HttpReply reply = json_reply(OrderedJson::object());
  reply.body =
      R"({"prompt":)" + dump_json(text.text) + R"(,"tokens":)" +
      list_of(ids, [](std::int32_t id, std::string& list) { list += std::to_string(id); }) + "}";
  return reply;
}

TextReply reply_input_tokens(const RouteCall& call) {
  auto ids = ids_of_conversation(call);
  if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
  OrderedJson json = OrderedJson::object();
  json["object"] = "response.input_tokens";
  json["input_tokens"] = std::get<TokenIds>(ids).size();
  return json_reply(json);
}

}  // namespace

void add_text_routes(RouteTable& table) {
  const auto add = [&table](const char* path, TextReply (*reply)(const RouteCall&)) {
    table.add({.method = "POST", .path = path, .handler = PlainHandler(reply)});
  };
  add("/tokenize", reply_tokenize);
  add("/detokenize", reply_detokenize);
  add("/apply-template", reply_template);
  add("/chat/completions/input_tokens", reply_input_tokens);
}

}  // namespace moepack
