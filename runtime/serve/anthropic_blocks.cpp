#include "runtime/serve/anthropic_blocks.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/request_options.h"

namespace moepack {
namespace {

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";
constexpr int kMostNestedBlocks = 3;  // a result of a tool > a document > its content

std::string block_text_at(const OrderedJson& block, const std::string& path, RequestFault& fault,
                          int depth);

std::string content_text_at(const OrderedJson* content, const std::string& path,
                            RequestFault& fault, int depth) {
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    refuse_at(fault, "must be a text or a list of blocks", path);
    return {};
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    append_joined(text, block_text_at((*content)[i], element_place(path, i), fault, depth), "\n");
  }
  return text;
}

std::string document_block_text(const BodyFields& fields, RequestFault& fault, int depth) {
  std::string text(text_or_empty(fields, "title"));
  append_joined(text, text_or_empty(fields, "context"), "\n");
  const OrderedJson* source = fields.object("source");
  if (source == nullptr) return text;
  const std::string path = fields.place_of("source");
  const BodyFields parts(*source, path + ".", fault);
  const std::string_view type = text_or_empty(parts, "type");
  if (type == "text") {
    append_joined(text, text_or_empty(parts, "data"), "\n");
  } else if (type == "content") {
    append_joined(text, content_text_at(parts.find("content"), path + ".content", fault, depth + 1),
                  "\n");
  } else {
    append_joined(text, "[document omitted: this model reads text only]", "\n");
  }
  return text;
}

std::string search_result_text(const BodyFields& fields, RequestFault& fault, int depth) {
  std::string text(text_or_empty(fields, "title"));
  append_joined(text, text_or_empty(fields, "source"), "\n");
  append_joined(
      text, content_text_at(fields.find("content"), fields.place_of("content"), fault, depth + 1),
      "\n");
  return text;
}

std::string block_text_at(const OrderedJson& block, const std::string& path, RequestFault& fault,
                          int depth) {
  if (depth > kMostNestedBlocks) return {};
  if (!block.is_object()) {
    refuse_at(fault, "must be a block: an object with a type", path);
    return {};
  }
  const BodyFields fields(block, path + ".", fault);
  const std::string_view type = text_or_empty(fields, "type");
  if (type == "text") return fields.text("text").value_or("");
  if (type == "image") return "[image omitted: this model cannot see images]";
  if (type == "document") return document_block_text(fields, fault, depth);
  if (type == "search_result") return search_result_text(fields, fault, depth);
  if (type == "tool_reference") {
    return "[tool " + std::string(text_or_empty(fields, "tool_name")) + "]";
  }
  return std::string(text_or_empty(fields, "text"));
}

}  // namespace

std::string text_of_block(const OrderedJson& block, const std::string& path, RequestFault& fault) {
  return block_text_at(block, path, fault, 0);
}

std::string text_of_content(const OrderedJson* content, const std::string& path,
                            RequestFault& fault) {
  return content_text_at(content, path, fault, 0);
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
