#include "convert/cli/token_input.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/utf8.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack::cli {
namespace {

constexpr std::uint64_t kMaxInputBytes = std::uint64_t{1} << 32;

Result<std::vector<std::int32_t>> ids_from_json(const std::string& text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json doc, parse_json(text, Where{.file = file}));
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : doc) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
      return corrupt(Where{.file = file},
                     "element " + std::to_string(ids.size()) + " is not a token id");
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace

Result<std::string> read_text(const std::filesystem::path& path) {
  return read_text_file(path, kMaxInputBytes);
}

Result<std::string> read_utf8_text(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(std::string text, read_text(path));
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string::npos) return text;
  return corrupt(Where{.file = path.string(), .offset = invalid}, "not valid UTF-8",
                 "convert the text to UTF-8");
}

Result<std::vector<std::vector<std::int32_t>>> tokenize_files(
    const std::filesystem::path& model, const std::vector<std::string>& files) {
  MOE_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(model / "tokenizer.json"));
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::string& file : files) {
    MOE_ASSIGN_OR_RETURN(const std::string text, read_text(file));
    auto ids = tokenizer.encode(text);
    if (!ids.is_ok()) {
      return make_error(ids.status().code(), Where{.file = file}, ids.status().message());
    }
    if (ids.value().empty()) {
      return make_error(StatusCode::kInvalidArgument, Where{.file = file}, "is empty",
                        "give a text with words");
    }
    tokenizer.begin_text(ids.value());
    texts.push_back(std::move(ids).value());
  }
  return texts;
}

Result<std::vector<std::int32_t>> read_token_ids(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  const std::string file = path.string();
  // A binary list may begin with an id whose low byte is 0x5b ('[') too, so a JSON list must also
  // end with ']'.
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '[' && text[last] == ']';
  if (is_json && text.find('\0') == std::string::npos) return ids_from_json(text, file);
  if (text.size() % sizeof(std::int32_t) != 0) {
    return corrupt(Where{.file = file},
                   "is neither a JSON list nor a multiple of 4 bytes (raw int32 token ids)");
  }
  std::vector<std::int32_t> ids(text.size() / sizeof(std::int32_t));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = load_le<std::int32_t>(text.data() + i * sizeof(std::int32_t));
  }
  return ids;
}

}  // namespace moepack::cli
