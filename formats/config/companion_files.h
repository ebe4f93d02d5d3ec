// The small files beside a model's weights: which there are, how large they may be, and whether
// they can be used.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

constexpr const char* kConfigName = "config.json";
constexpr const char* kTokenizerName = "tokenizer.json";
constexpr const char* kTokenizerConfigName = "tokenizer_config.json";
constexpr const char* kChatTemplateName = "chat_template.jinja";
constexpr const char* kGenerationConfigName = "generation_config.json";
// ModelOpt's, of a checkpoint; no companion, as it says nothing about a converted model.
constexpr const char* kQuantizationName = "hf_quant_config.json";

struct CompanionFile {
  const char* name;
  std::uint64_t max_bytes;  // what is larger is refused, by every reader
};

// All companions, in the order in which they are reported and copied.
constexpr std::array<CompanionFile, 5> kCompanionFiles{{
    {kConfigName, std::uint64_t{4} << 20},
    {kTokenizerName, std::uint64_t{256} << 20},
    {kTokenizerConfigName, std::uint64_t{64} << 20},
    {kChatTemplateName, std::uint64_t{4} << 20},
    {kGenerationConfigName, std::uint64_t{16} << 20},
}};

bool is_companion(std::string_view name);
// max_bytes of the companion `name`; 0 for another name.
constexpr std::uint64_t companion_max_bytes(std::string_view name) {
  for (const CompanionFile& file : kCompanionFiles) {
    if (name == file.name) return file.max_bytes;
  }
  return 0;
}

// Whether `directory` has the companion `name`, one of the table. Errors: a link that leads
// nowhere, something else than a regular file, or more than max_bytes.
Result<bool> has_companion(const std::filesystem::path& directory, std::string_view name);
// The text of the companion `name`; nullopt where the directory lacks it. Errors: those of
// has_companion, and a file that cannot be read.
Result<std::optional<std::string>> read_companion(const std::filesystem::path& directory,
                                                  std::string_view name);

// Builds the tokenizer that `json`, the contents of `file`, describes, as whoever runs the model
// does. kUnsupported: well-formed, but of a kind that cannot be built. Other errors: it is broken.
using TokenizerCheck = std::function<Status(std::string_view json, const std::string& file)>;

// Whether `text`, the contents of the companion `name` of a model with `vocab_size` ids, can be
// used. `file`: what messages call it. Without a `tokenizer` check, tokenizer.json is only parsed.
// config.json is not looked at: every command reads it anyway.
Status check_companion(std::string_view name, std::string_view text, const std::string& file,
                       std::uint64_t vocab_size, const TokenizerCheck& tokenizer);

}  // namespace moepack
