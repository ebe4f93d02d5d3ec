// Typed access to the members of a parsed JSON object; every error names the file and the path of
// the key ("layers[3].size").
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/status.h"

namespace moepack {

// A view of one object: the node and the file name outlive it.
class JsonFields {
 public:
  // kCorrupt when `node` is no object. `path` is "" for the root.
  static Result<JsonFields> of(const nlohmann::json& node, std::string_view file,
                               std::string path = {});

  std::string_view file() const { return file_; }
  const std::string& path() const { return path_; }
  // The path of a member, for messages and for nested views.
  std::string path_of(std::string_view key) const;
  bool has(std::string_view key) const;
  // nullptr when absent.
  const nlohmann::json* find(std::string_view key) const;

  // An integer in [min, max]; numbers with a fraction, an exponent or a sign are refused.
  Result<std::uint64_t> number(std::string_view key, std::uint64_t min = 0,
                               std::uint64_t max = std::numeric_limits<std::uint64_t>::max()) const;
  Result<std::uint32_t> number32(
      std::string_view key, std::uint32_t min = 0,
      std::uint32_t max = std::numeric_limits<std::uint32_t>::max()) const;
  Result<std::string> string(std::string_view key) const;
  // 16 hex digits, as checksum_text writes them.
  Result<std::uint64_t> checksum(std::string_view key) const;
  Result<JsonFields> object(std::string_view key) const;
  Result<const nlohmann::json*> array(std::string_view key) const;
  // kCorrupt when the integer at `key` is not `expected`; `why` says where the expected one is
  // from.
  Status expect_number(std::string_view key, std::uint64_t expected, std::string_view why) const;
  // kUnsupported unless the integer "format_version" is the one that is known.
  Status expect_version(std::uint64_t known, std::string_view remedy) const;
  // Whether the object is of a layer without experts: a member "dense" that is true, and none else
  // but `beside`. False where there is no such member.
  Result<bool> is_dense(std::string_view beside = "dense") const;
  // kUnsupported when a member has another name than these.
  Status allow_only(std::initializer_list<std::string_view> keys) const;

  // kCorrupt with this file, the path of `key` ("" for the object itself) and `what`.
  Status error(std::string_view key, std::string_view what, std::string_view remedy = {}) const;

 private:
  JsonFields(const nlohmann::json& node, std::string_view file, std::string path)
      : node_(&node), file_(file), path_(std::move(path)) {}
  Result<const nlohmann::json*> need(std::string_view key) const;

  const nlohmann::json* node_;
  std::string_view file_;
  std::string path_;
};

// The number that a key such as "17" stands for: plain decimal below `count`, no leading zeros;
// else nullopt.
std::optional<std::uint32_t> parse_index(std::string_view key, std::uint32_t count);
// An error about `path` in `file`.
Status json_error(StatusCode code, std::string_view file, std::string_view path,
                  std::string_view what, std::string_view remedy = {});
// A JSON string literal of `text`; bytes that are not UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);
// The shortest decimal that reads back as `value`, which is finite.
std::string json_number(double value);

}  // namespace moepack
