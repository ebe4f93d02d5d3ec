#include "runtime/service/stop_tokens.h"

#include <algorithm>
#include <array>

#include "runtime/generate.h"

namespace moepack {
namespace {

// Markers that end a turn in every family that has them. gpt-oss's <|end|> only ends a message, and
// GLM's <|user|> and <|observation|> begin the next turn, which the model must not write.
struct TurnEnd {
  std::string_view marker;
  std::string_view beside;  // counts only where the template has this too; empty: always
};
constexpr std::array<TurnEnd, 8> kTurnEnds{{{"<|im_end|>", ""},
                                            {"<|return|>", "<|channel|>"},
                                            {"<|call|>", "<|channel|>"},
                                            {"<|user|>", "<|observation|>"},
                                            {"<|observation|>", "<|user|>"},
                                            {"<｜end▁of▁sentence｜>", ""},
                                            {"[e~[", ""},
                                            {"<|eot_id|>", ""}}};

bool has_text(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

Result<std::vector<std::int32_t>> turn_end_ids(const std::filesystem::path& model,
                                               const ModelConfig& config,
                                               const Tokenizer& tokenizer,
                                               std::string_view chat_template) {
  MOE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, read_stop_ids(model, config));
  for (const TurnEnd& end : kTurnEnds) {
    const std::int32_t id = tokenizer.added_token(end.marker);
    const bool is_used = has_text(chat_template, end.marker) && has_text(chat_template, end.beside);
    if (id < 0 || !is_used || std::find(ids.begin(), ids.end(), id) != ids.end()) continue;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace moepack
