#include "convert/cli/row_output.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

namespace moepack::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Objects inside become columns of their own: KEY of "stages_ms_per_token" becomes KEY_ms, and of
// any other object OBJECT_KEY.
Json flat(const Json& row) {
  Json columns;
  for (const auto& [key, value] : row.items()) {
    if (!value.is_object()) {
      columns[key] = value;
      continue;
    }
    const bool is_stages = key == "stages_ms_per_token";
    for (const auto& [name, inner] : value.items()) {
      columns[is_stages ? name + "_ms" : key + "_" + name] = inner;
    }
  }
  return columns;
}

// Every value between quotes, as llama-bench writes them.
void print_csv(const Json& row, bool with_head) {
  const Json columns = flat(row);
  std::string head;
  std::string line;
  for (const auto& [key, value] : columns.items()) {
    const std::string comma = head.empty() ? "" : ",";
    head += comma + key;
    std::string text = value.is_string() ? value.get<std::string>() : json_text(value, -1);
    if (value.is_null()) text = "";
    for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) {
      text.insert(at, 1, '"');
    }
    line += comma + "\"" + text + "\"";
  }
  if (with_head) std::cout << head << "\n";
  std::cout << line << "\n";
}

}  // namespace

std::optional<BenchFormat> bench_format(const std::string& name) {
  if (name == "md") return BenchFormat::kMarkdown;
  if (name == "csv") return BenchFormat::kCsv;
  if (name == "json") return BenchFormat::kJson;
  if (name == "jsonl") return BenchFormat::kJsonLines;
  return std::nullopt;
}

void RowOutput::add(const Json& row) {
  if (format_ == BenchFormat::kCsv) print_csv(row, !std::exchange(has_head_, true));
  if (format_ == BenchFormat::kJson) objects_.push_back(json_text(row, 2));
  if (format_ == BenchFormat::kJsonLines) std::cout << json_text(row, -1) << "\n";
  std::cout << std::flush;
}

void RowOutput::finish() {
  if (format_ != BenchFormat::kJson) return;
  std::cout << "[\n";
  for (std::size_t i = 0; i < objects_.size(); ++i) {
    std::cout << objects_[i] << (i + 1 < objects_.size() ? ",\n" : "\n");
  }
  std::cout << "]\n";
}

}  // namespace moepack::cli
