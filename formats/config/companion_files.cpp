#include "formats/config/companion_files.h"

#include <algorithm>
#include <cassert>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/paths.h"
#include "formats/config/generation_config.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// The row of the table; a name that is not in it is a mistake of the caller.
const CompanionFile& companion_file(std::string_view name) {
  const auto found =
      std::find_if(kCompanionFiles.begin(), kCompanionFiles.end(),
                   [&](const CompanionFile& companion) { return companion.name == name; });
  assert(found != kCompanionFiles.end());
  return *found;
}

Status check_json_object(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, Where{.file = file}));
  return document.is_object() ? Status::ok() : corrupt(Where{.file = file}, "is not a JSON object");
}

}  // namespace

bool is_companion(std::string_view name) {
  return std::any_of(kCompanionFiles.begin(), kCompanionFiles.end(),
                     [&](const CompanionFile& companion) { return companion.name == name; });
}

Result<bool> has_companion(const fs::path& directory, std::string_view wanted) {
  const CompanionFile& companion = companion_file(wanted);
  const fs::path path = directory / companion.name;
  MOE_RETURN_IF_ERROR(check_link(path, "download the file again, or remove the link"));
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  const std::string name = path.string();
  const Where where{.file = name};
  if (status.type() != fs::file_type::regular) {
    return make_error(StatusCode::kInvalidArgument, where,
                      error ? "cannot be looked at: " + error.message() : "is not a regular file");
  }
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) return make_error(StatusCode::kIo, where, error.message());
  if (size <= companion.max_bytes) return true;
  return corrupt(where,
                 "has " + std::to_string(size) + " bytes, at most " +
                     std::to_string(companion.max_bytes) + " are read",
                 "put the model's own file there, or remove it");
}

Result<std::optional<std::string>> read_companion(const fs::path& directory,
                                                  std::string_view name) {
  MOE_ASSIGN_OR_RETURN(const bool there, has_companion(directory, name));
  if (!there) return std::optional<std::string>();
  MOE_ASSIGN_OR_RETURN(std::string text,
                       read_text_file(directory / name, companion_file(name).max_bytes));
  return std::optional(std::move(text));
}

Status check_companion(std::string_view name, std::string_view text, const std::string& file,
                       std::uint64_t vocab_size, const TokenizerCheck& tokenizer) {
  if (name == kTokenizerName) {
    return tokenizer ? tokenizer(text, file) : parse_tokenizer_json(text, file).status();
  }
  if (name == kGenerationConfigName) return parse_stop_ids(text, file, vocab_size).status();
  if (name == kTokenizerConfigName) return check_json_object(text, file);
  return Status::ok();
}

}  // namespace moepack
