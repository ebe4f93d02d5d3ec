#include "runtime/serve/anthropic_blocks.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace moepack {
namespace {

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";
constexpr int kMostNestedBlocks = 3;  // a result of a tool > a document > its content

std::string block_text_at(const OrderedJson& block, const std::string& path,
                          RequestProblem& problem, int depth);

std::string content_text_at(const OrderedJson* content, const std::string& path,
                            RequestProblem& problem, int depth) {
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    set_problem(problem, "must be a text or a list of blocks", path);
    return {};
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    append_joined(text, block_text_at((*content)[i], path_of_element(path, i), problem, depth),
                  "\n");
  }
  return text;
}

std::string document_block_text(const RequestFields& fields, RequestProblem& problem, int depth) {
  std::string text(fields.text_or_empty("title"));
  append_joined(text, fields.text_or_empty("context"), "\n");
  const OrderedJson* source = fields.object("source");
  if (source == nullptr) return text;
  const std::string path = fields.path_of("source");
  const RequestFields parts(*source, path, problem);
  const std::string_view type = parts.text_or_empty("type");
  if (type == "text") {
    append_joined(text, parts.text_or_empty("data"), "\n");
  } else if (type == "content") {
    append_joined(
        text, content_text_at(parts.find("content"), path + ".content", problem, depth + 1), "\n");
  } else {
    append_joined(text, "[document omitted: this model reads text only]", "\n");
  }
  return text;
}

std::string search_result_text(const RequestFields& fields, RequestProblem& problem, int depth) {
  std::string text(fields.text_or_empty("title"));
  append_joined(text, fields.text_or_empty("source"), "\n");
  append_joined(
      text, content_text_at(fields.find("content"), fields.path_of("content"), problem, depth + 1),
      "\n");
  return text;
}

std::string block_text_at(const OrderedJson& block, const std::string& path,
                          RequestProblem& problem, int depth) {
  if (depth > kMostNestedBlocks) return {};
  if (!block.is_object()) {
    set_problem(problem, "must be a block: an object with a type", path);
    return {};
  }
  const RequestFields fields(block, path, problem);
  const std::string_view type = fields.text_or_empty("type");
  if (type == "text") return fields.text("text").value_or("");
  if (type == "image") return "[image omitted: this model cannot see images]";
  if (type == "document") return document_block_text(fields, problem, depth);
  if (type == "search_result") return search_result_text(fields, problem, depth);
  if (type == "tool_reference") {
    return "[tool " + std::string(fields.text_or_empty("tool_name")) + "]";
  }
  return std::string(fields.text_or_empty("text"));
}

}  // namespace

std::string text_of_block(const OrderedJson& block, const std::string& path,
                          RequestProblem& problem) {
  return block_text_at(block, path, problem, 0);
}

std::string text_of_content(const OrderedJson* content, const std::string& path,
                            RequestProblem& problem) {
  return content_text_at(content, path, problem, 0);
}

std::string without_billing_line(std::string text) {
  if (!std::string_view(text).starts_with(kBillingHeader)) return text;
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return {};
  return text.substr(end + 1);
}

void append_joined(std::string& text, std::string_view more, std::string_view separator) {
  if (more.empty()) return;
  if (!text.empty()) text.append(separator);
  text.append(more);
}

}  // namespace moepack
