// Text that cannot leave its form: a JSON schema or the frames of calls, on bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"
#include "runtime/chat/tool_format.h"
#include "runtime/token_filter.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

// All tokens of a vocabulary by their bytes. Unchanging; shared by all constraints of a model.
class TokenBytes;
std::shared_ptr<const TokenBytes> make_token_bytes(const Tokenizer& tokenizer,
                                                   std::size_t vocab_limit,
                                                   std::vector<std::int32_t> end_ids);

// What a text may look like. Unchanging and shared. `warnings` (may be null) gets one line for each
// keyword of a schema that is ignored.
class Grammar;
Result<std::shared_ptr<const Grammar>> make_json_grammar(std::vector<std::string>* warnings);
Result<std::shared_ptr<const Grammar>> make_schema_grammar(const OrderedJson& schema,
                                                           std::vector<std::string>* warnings);
struct ToolGrammarOptions {
  ToolFormat format = ToolFormat::kHermes;
  std::vector<ToolSpec> tools;  // those that may be called
  bool is_required = false;     // a call at once; else text is free until the family's marker
  bool is_parallel = true;
  std::string call_id_prefix;  // unused by most families
  // With is_required: a value of this schema, in the frame of the family's answers, is what else
  // the text may be, with the warnings and errors of make_schema_grammar().
  std::optional<OrderedJson> answer_schema;
};
// nullptr where the family has no frame that is known here, and without tools and a form of
// answers.
Result<std::shared_ptr<const Grammar>> make_tool_grammar(const ToolGrammarOptions& options,
                                                         std::vector<std::string>* warnings);

// Follows one text. The constraint sleeps while `starts_after` (e.g. "</think>") has not come;
// where the grammar asks for a text at once, none ends before it, and it comes in time for one.
// With `may_begin` (e.g. "<think>") it sleeps only in a text that begins with that, behind a space
// or a line's end. `begun`: what of the text is there already, where it neither sleeps nor is lazy.
std::unique_ptr<TokenFilter> make_constraint(std::shared_ptr<const Grammar> grammar,
                                             std::shared_ptr<const TokenBytes> tokens,
                                             std::string starts_after, std::string may_begin = {},
                                             std::string_view begun = {});
// Whether a text of a grammar that is not lazy may begin so.
bool may_begin_with(const Grammar& grammar, const TokenBytes& tokens, std::string_view begun);

}  // namespace moepack
