// Typed access to the keys of one JSON object of a config.json, for the family readers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/limits.h"
#include "formats/base/status.h"

namespace moepack {

// Borrows the JSON object and the file name: keep both alive. A key that is absent and one that is
// null are the same, as HuggingFace writes either. Every error names the file and the key with its
// path, and is kCorrupt unless said otherwise.
class ConfigReader {
 public:
  // `path` stands before the keys in messages: "" or "text_config.".
  ConfigReader(const nlohmann::json& object, std::string path, const std::string& file)
      : object_(&object), path_(std::move(path)), file_(&file) {}

  // nullptr when absent or null.
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The object under `key`; nullopt when absent. Anything but an object is an error.
  Result<std::optional<ConfigReader>> object(std::string_view key) const;
  // The reader of `value`, an object that stands under `key`.
  ConfigReader nested(std::string_view key, const nlohmann::json& value) const {
    return {value, path_ + std::string(key) + ".", *file_};
  }

  // nullopt when absent.
  Result<std::optional<std::uint32_t>> optional_dimension(
      std::string_view key, std::uint32_t maximum = kMaxModelDimension) const;
  Result<std::optional<double>> optional_number(std::string_view key) const;  // finite
  Result<std::optional<bool>> optional_flag(std::string_view key) const;
  Result<std::optional<std::string>> optional_text(std::string_view key) const;

  // A whole number from 1 to `maximum` into `out`, `fallback` when absent.
  Status dimension(std::string_view key, std::uint32_t fallback, std::uint32_t& out,
                   std::uint32_t maximum = kMaxModelDimension) const;

  // A number from `least` to `most`, `fallback` (not checked) when absent.
  Result<double> number_in(std::string_view key, double fallback, double least, double most) const;

  // For settings whose other values mean other math: kUnsupported, naming key and value, unless the
  // setting is absent or as it is implemented.
  Status require_flag(std::string_view key, bool implemented) const;
  Status require_text(std::string_view key, std::string_view implemented) const;
  Status require_absent(std::string_view key) const;

  // kCorrupt and kUnsupported about `key` of this object.
  Status error(std::string_view key, std::string_view what) const;
  Status unsupported_value(std::string_view key, std::string_view what) const;
  // For messages: the JSON of a value, cut and printable.
  static std::string shown(const nlohmann::json& value);

  const nlohmann::json& json() const { return *object_; }
  const std::string& file() const { return *file_; }

 private:
  const nlohmann::json* object_;
  std::string path_;
  const std::string* file_;
};

}  // namespace moepack
