// Where a checkpoint keeps its chat template, and what else the template sees.
#pragma once

#include <filesystem>
#include <string>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"

namespace moepack {

struct TemplateSource {
  std::string text;            // for conversations without tools, and all if tool_text is empty
  std::string tool_text;       // for those with tools, where the checkpoint has a second template
  std::string name;            // the file, for messages
  OrderedJson special_tokens;  // {"bos_token": "…", "eos_token": "…", …}
};

// From, in this order: `file` if not empty; MODEL/chat_template.jinja, chat_template.json,
// tokenizer_config.json ("chat_template": a string, or a list of {"name","template"}). The special
// tokens are those of tokenizer_config.json and special_tokens_map.json. kNotFound without any.
Result<TemplateSource> find_template(const std::filesystem::path& model,
                                     const std::filesystem::path& file);

}  // namespace moepack
