#include "runtime/chat/chat_template.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "runtime/chat/history.h"
#include "runtime/chat/template_probe.h"
#include "runtime/chat/template_source.h"
#include "runtime/jinja/template.h"

namespace moepack {
namespace {

// What stands behind the last message's text while it is rendered, to be cut off there.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

// Names that template_arguments must not take.
bool is_reserved(std::string_view name) {
  return name == "messages" || name == "tools" || name == "documents";
}

// Cuts `prompt` where the last message's text ends.
Status cut_at_continuation(PromptText& prompt) {
  const std::string_view word = kContinueTag.substr(0, kContinueTag.size() - 1);
  std::size_t end = prompt.text.rfind(word);
  if (end == std::string::npos) {
    return invalid_argument(
        "the chat template does not show the last message: it cannot be continued");
  }
  // A template that trims the message has trimmed the blank of the tag too.
  if (prompt.text.compare(end, kContinueTag.size(), kContinueTag) != 0) {
    while (end > 0 &&
           std::string_view(" \t\r\n").find(prompt.text[end - 1]) != std::string_view::npos) {
      --end;
    }
  }
  prompt.text.resize(end);
  while (!prompt.from_user.empty() && prompt.from_user.back().begin >= end) {
    prompt.from_user.pop_back();
  }
  if (!prompt.from_user.empty()) {
    prompt.from_user.back().end = std::min(prompt.from_user.back().end, end);
  }
  return Status::ok();
}

}  // namespace

struct ChatTemplate::Impl {
  TemplateSource source;
  std::optional<jinja::Template> plain;
  std::optional<jinja::Template> with_tools;
  std::tm clock{};  // as it was when the template was loaded: a date that moves breaks every cache
  TemplateFacts facts;
  HistoryRules rules;

  Result<PromptText> render(const Conversation& conversation) const;
  std::string special_token(const char* name) const {
    return source.special_tokens.value(name, std::string());
  }
};

// Renders without rules of history.
Result<PromptText> ChatTemplate::Impl::render(const Conversation& conversation) const {
  jinja::Variables variables;
  variables.clock = clock;
  variables.own = source.special_tokens;
  variables.own["add_generation_prompt"] =
      conversation.add_generation_prompt && !conversation.continues_last;
  variables.own["documents"] = nullptr;
  variables.user["messages"] = template_messages(conversation, rules.arguments_as_text);
  variables.word_member = "role";
  variables.words = role_names();
  variables.user["tools"] = template_tools(conversation);
  for (const auto& [name, value] : conversation.template_arguments.items()) {
    if (is_reserved(name)) {
      return invalid_argument("chat_template_kwargs: '" + name + "' is not an argument");
    }
    variables.user[name] = value;
  }
  if (conversation.continues_last && !variables.user["messages"].empty()) {
    OrderedJson& content = variables.user["messages"].back()["content"];
    content = content.get<std::string>() + std::string(kContinueTag);
  }
  const bool use_tools = with_tools.has_value() && !conversation.tools.empty();
  MOE_ASSIGN_OR_RETURN(jinja::Rendered rendered,
                       (use_tools ? *with_tools : *plain).render(variables));
  PromptText prompt;
  prompt.text = std::move(rendered.text);
  for (const jinja::ByteRange& range : rendered.user) {
    prompt.from_user.push_back({range.begin, range.end});
  }
  if (conversation.continues_last) MOE_RETURN_IF_ERROR(cut_at_continuation(prompt));
  return prompt;
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model,
                                        const Tokenizer& tokenizer,
                                        const std::filesystem::path& file) {
  auto impl = std::make_unique<Impl>();
  impl->clock = local_time_now();
  MOE_ASSIGN_OR_RETURN(impl->source, find_template(model, file));
  const TemplateSource& source = impl->source;
  MOE_ASSIGN_OR_RETURN(impl->plain, jinja::Template::compile(source.text, source.name));
  if (!source.tool_text.empty()) {
    MOE_ASSIGN_OR_RETURN(impl->with_tools, jinja::Template::compile(source.tool_text, source.name));
  }
  const Result<PromptText> simplest = impl->render(probe_conversation());
  if (!simplest.is_ok()) return simplest.status();
  const ProbeRender render = [&impl](const Conversation& conversation) -> Result<std::string> {
    MOE_ASSIGN_OR_RETURN(PromptText prompt, impl->render(conversation));
    return std::move(prompt.text);
  };
  // Found first: every other probe with calls depends on it.
  if (!render(probe_calls()).is_ok()) {
    impl->rules.arguments_as_text = true;
    impl->rules.arguments_as_text = render(probe_calls()).is_ok();
  }
  const bool arguments_as_text = impl->rules.arguments_as_text;
  impl->facts = probe_facts(source.text + source.tool_text, tokenizer, render);
  impl->rules = probe_history_rules(impl->facts, render);
  impl->rules.arguments_as_text = arguments_as_text;
  return ChatTemplate(std::move(impl));
}

Result<PromptText> ChatTemplate::render(const Conversation& conversation) const {
  return impl_->render(apply_history_rules(conversation, impl_->rules));
}

const std::string& ChatTemplate::source() const { return impl_->source.text; }
const TemplateFacts& ChatTemplate::facts() const { return impl_->facts; }
std::string ChatTemplate::bos_token() const { return impl_->special_token("bos_token"); }
std::string ChatTemplate::eos_token() const { return impl_->special_token("eos_token"); }

namespace {

// The ids of bytes [begin, end) of a prompt. `range` is the first range from a user that may reach
// into them, and is moved on.
Result<std::vector<std::int32_t>> encode_part(const Tokenizer& tokenizer, const PromptText& prompt,
                                              TextRange part, std::size_t& range) {
  const std::vector<TextRange>& ranges = prompt.from_user;
  while (range < ranges.size() && ranges[range].end <= part.begin) ++range;
  std::vector<LiteralRange> literal;
  for (std::size_t i = range; i < ranges.size() && ranges[i].begin < part.end; ++i) {
    literal.push_back({std::max(ranges[i].begin, part.begin) - part.begin,
                       std::min(ranges[i].end, part.end) - part.begin});
  }
  return tokenizer.encode(std::string_view(prompt.text).substr(part.begin, part.end - part.begin),
                          literal);
}

}  // namespace

Result<std::vector<std::int32_t>> encode_prompt(const Tokenizer& tokenizer,
                                                const PromptText& prompt) {
  std::vector<std::int32_t> ids;
  std::size_t done = 0;
  std::size_t range = 0;
  const auto encode_to = [&](std::size_t end) -> Status {
    MOE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> part,
                         encode_part(tokenizer, prompt, {done, end}, range));
    ids.insert(ids.end(), part.begin(), part.end());
    return Status::ok();
  };
  for (const SampledRange& sampled : prompt.sampled) {
    MOE_RETURN_IF_ERROR(encode_to(sampled.bytes.begin));
    ids.insert(ids.end(), sampled.ids.begin(), sampled.ids.end());
    done = sampled.bytes.end;
  }
  MOE_RETURN_IF_ERROR(encode_to(prompt.text.size()));
  return ids;
}

}  // namespace moepack
