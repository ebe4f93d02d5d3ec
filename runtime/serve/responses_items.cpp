#include "runtime/serve/responses_items.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/answer_failure.h"

namespace moepack {
namespace {

OrderedJson response_token(const TokenLogprob& token) {
  OrderedJson json = OrderedJson::object();
  json["token"] = token.bytes;  // half characters are replaced when this is written
  json["logprob"] = token.logprob;
  json["bytes"] = OrderedJson::array();
  for (const char byte : token.bytes) json["bytes"].push_back(static_cast<unsigned char>(byte));
  return json;
}

OrderedJson response_usage(const AnswerUsage& usage) {
  OrderedJson json = OrderedJson::object();
  json["input_tokens"] = usage.prompt_tokens;
  json["input_tokens_details"] = {{"cached_tokens", usage.cached_tokens},
                                  {"cache_write_tokens", 0}};
  json["output_tokens"] = usage.completion_tokens;
  json["output_tokens_details"] = {{"reasoning_tokens", usage.reasoning_tokens}};
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return json;
}

void set_item_text(OrderedJson& item, const AnswerBlock& block) {
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      item["content"].push_back({{"type", "reasoning_text"}, {"text", block.text}});
      break;
    case AnswerBlock::Kind::kText:
      item["content"].push_back(response_text_part(block.text, block.logprobs));
      break;
    case AnswerBlock::Kind::kCall:
      item["arguments"] = response_arguments(block);
      break;
  }
}

}  // namespace

const std::string& response_arguments(const AnswerBlock& block) {
  static const std::string kNoArguments = "{}";
  const bool is_blank = block.text.find_first_not_of(" \t\r\n") == std::string::npos;
  return is_blank ? kNoArguments : block.text;
}

std::string response_item_id(const ResponseIdentity& identity, const AnswerBlock& block,
                             std::size_t index) {
  const char* prefix = block.kind == AnswerBlock::Kind::kReasoning ? "rs_"
                       : block.kind == AnswerBlock::Kind::kText    ? "msg_"
                                                                   : "fc_";
  const std::size_t cut = identity.id.find('_');
  const std::string unique = cut == std::string::npos ? identity.id : identity.id.substr(cut + 1);
  return prefix + unique + "_" + std::to_string(index);
}

OrderedJson begun_response_item(const AnswerBlock& block, const std::string& id) {
  OrderedJson item = OrderedJson::object();
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      item["type"] = "reasoning";
      item["id"] = id;
      item["summary"] = OrderedJson::array();
      item["content"] = OrderedJson::array();
      break;
    case AnswerBlock::Kind::kText:
      item["type"] = "message";
      item["id"] = id;
      item["role"] = "assistant";
      item["status"] = "in_progress";
      item["content"] = OrderedJson::array();
      break;
    case AnswerBlock::Kind::kCall:
      item["type"] = "function_call";
      item["id"] = id;
      item["call_id"] = block.id;
      item["name"] = block.name;
      item["arguments"] = "";
      item["status"] = "in_progress";
      break;
  }
  return item;
}

OrderedJson ended_response_item(const AnswerBlock& block, const std::string& id) {
  OrderedJson item = begun_response_item(block, id);
  set_item_text(item, block);
  if (block.kind != AnswerBlock::Kind::kReasoning) {
    item["status"] = block.is_complete ? "completed" : "incomplete";
  }
  return item;
}

OrderedJson response_text_part(const std::string& text,
                               const std::vector<TokenLogprobs>& logprobs) {
  OrderedJson part = OrderedJson::object();
  part["type"] = "output_text";
  part["text"] = text;
  part["annotations"] = OrderedJson::array();
  part["logprobs"] = response_logprobs(logprobs);
  return part;
}

OrderedJson response_logprobs(const std::vector<TokenLogprobs>& logprobs) {
  OrderedJson list = OrderedJson::array();
  for (const TokenLogprobs& token : logprobs) {
    OrderedJson json = response_token(token.token);
    json["top_logprobs"] = OrderedJson::array();
    for (const TokenLogprob& other : token.top) {
      json["top_logprobs"].push_back(response_token(other));
    }
    list.push_back(std::move(json));
  }
  return list;
}

OrderedJson response_object(const ResponseIdentity& identity, const std::string& status,
                            OrderedJson output, bool is_brief) {
  OrderedJson json = OrderedJson::object();
  json["id"] = identity.id;
  json["object"] = "response";
  json["created_at"] = identity.unix_seconds;
  json["status"] = status;
  json["model"] = identity.model;
  json["output"] = std::move(output);
  json["error"] = nullptr;
  json["incomplete_details"] = nullptr;
  json["usage"] = nullptr;
  for (const auto& [key, value] : identity.echo.items()) json[key] = value;
  if (is_brief) {
    json["instructions"] = nullptr;
    json["tools"] = OrderedJson::array();
  }
  return json;
}

OrderedJson ended_response(const ResponseIdentity& identity, const std::vector<AnswerBlock>& blocks,
                           const AnswerEnd& end) {
  OrderedJson output = OrderedJson::array();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const AnswerBlock& block = blocks[i];
    if (block.kind == AnswerBlock::Kind::kCall && !block.is_complete) continue;
    output.push_back(ended_response_item(block, response_item_id(identity, block, i)));
  }
  const bool is_cut = is_cut_answer(end);
  OrderedJson json =
      response_object(identity, is_cut ? "incomplete" : "completed", std::move(output), false);
  if (is_cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  json["usage"] = response_usage(end.usage);
  return json;
}

}  // namespace moepack
