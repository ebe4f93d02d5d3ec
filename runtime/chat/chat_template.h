// A checkpoint's chat template: a conversation in, the text of a prompt out.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"
#include "runtime/chat/prompt_text.h"
#include "runtime/chat/tool_format.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

// What probe renderings tell of a template.
struct TemplateFacts {
  ToolFormat format = ToolFormat::kNone;
  bool renders_tools = false;
  bool renders_reasoning = false;
  std::string reasoning_begin, reasoning_end;  // "<think>", "</think>"; empty: no thoughts
  std::string thinking_argument;               // "enable_thinking", "thinking"; empty: none
  bool opens_reasoning = false;                // the generation prompt ends within thoughts
};

// Unchanging once it is made: const functions may be called from any number of threads.
class ChatTemplate {
 public:
  // From, in this order: `file` if not empty; MODEL/chat_template.jinja, chat_template.json,
  // tokenizer_config.json. Renders probes: an error names file, line and column of the template.
  // kNotFound when the model has none.
  static Result<ChatTemplate> load(const std::filesystem::path& model, const Tokenizer& tokenizer,
                                   const std::filesystem::path& file = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidArgument with the template's own words where it refuses the conversation
  // (raise_exception); kUnsupported for limits and what the interpreter does not know.
  Result<PromptText> render(const Conversation& conversation) const;
  const std::string& source() const;
  const TemplateFacts& facts() const;
  std::string bos_token() const;
  std::string eos_token() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The ids of a prompt. No byte of a range from users is part of a marker (prompt_text.h). Where
// such ranges hold none, and nothing was sampled, the ids are those of the whole text. What was
// sampled has the ids that were.
Result<std::vector<std::int32_t>> encode_prompt(const Tokenizer& tokenizer,
                                                const PromptText& prompt);

}  // namespace moepack
