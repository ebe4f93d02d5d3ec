// Which form an answer must have: what a request says of tools and of JSON, as a grammar.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/tool_format.h"
#include "runtime/constrain/constraint.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// Null: free text. `warnings` gets a line for each keyword of a schema that is not heeded.
// kInvalidArgument: a schema that nothing fits, or a choice of a tool that is not offered.
Result<std::shared_ptr<const Grammar>> answer_grammar(const ChatRequest& request, ToolFormat format,
                                                      std::vector<std::string>* warnings);
// The same of a format alone.
Result<std::shared_ptr<const Grammar>> format_grammar(const ResponseFormat& format,
                                                      std::vector<std::string>* warnings);
// What of an answer that must have a form, or be a call, is in the prompt already: the text of an
// assistant's last message that is continued, from behind its thoughts and blanks. Empty: nothing.
std::string_view begun_form(const ChatRequest& request, const TemplateFacts& facts);

}  // namespace moepack
