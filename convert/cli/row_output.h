// Rows of a table for machines: JSON objects as a list, by line, or as CSV, on stdout.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace moepack::cli {

enum class BenchFormat : std::uint8_t { kMarkdown, kCsv, kJson, kJsonLines };
// "md", "csv", "json" or "jsonl"; nullopt otherwise.
std::optional<BenchFormat> bench_format(const std::string& name);

// CSV and lines are printed as they come, a list at its end.
class RowOutput {
 public:
  // Not Markdown, which the caller prints.
  explicit RowOutput(BenchFormat format) : format_(format) {}
  void add(const nlohmann::ordered_json& row);
  void finish();

 private:
  BenchFormat format_;
  std::vector<std::string> objects_;  // of a list, as text
  bool has_head_ = false;
};

}  // namespace moepack::cli
