#include "runtime/service/answer_grammar.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

// Those of the offered tools that may be called.
Result<std::vector<ToolSpec>> allowed_tools(const ChatRequest& request) {
  const std::vector<ToolSpec>& offered = request.conversation.tools;
  const std::vector<std::string>& names = request.tool_choice.allowed;
  if (names.empty()) return offered;
  std::vector<ToolSpec> allowed;
  for (const std::string& name : names) {
    const auto tool = std::find_if(offered.begin(), offered.end(),
                                   [&](const ToolSpec& spec) { return spec.name == name; });
    if (tool == offered.end()) {
      return invalid_argument(
          "tool_choice names " + printable(name, 64) + ", which is not in tools",
          "offer that tool, or choose another");
    }
    allowed.push_back(*tool);
  }
  return allowed;
}

OrderedJson form_schema(const ResponseFormat& format) {
  return format.kind == ResponseFormat::Kind::kJsonSchema ? format.schema
                                                          : OrderedJson{{"type", "object"}};
}

}  // namespace

std::string_view begun_form(const ChatRequest& request, const TemplateFacts& facts) {
  const Conversation& conversation = request.conversation;
  const bool has_form = request.format.kind != ResponseFormat::Kind::kText ||
                        request.tool_choice.kind == ToolChoice::Kind::kRequired;
  if (!has_form || !conversation.continues_last || conversation.messages.empty()) return {};
  std::string_view begun = conversation.messages.back().content;
  const std::size_t end =
      facts.reasoning_end.empty() ? std::string_view::npos : begun.rfind(facts.reasoning_end);
  if (end != std::string_view::npos) begun.remove_prefix(end + facts.reasoning_end.size());
  begun.remove_prefix(std::min(begun.find_first_not_of(" \t\r\n"), begun.size()));
  return begun;
}

Result<std::shared_ptr<const Grammar>> format_grammar(const ResponseFormat& format,
                                                      std::vector<std::string>* warnings) {
  switch (format.kind) {
    case ResponseFormat::Kind::kJsonObject:
      return make_json_grammar(warnings);
    case ResponseFormat::Kind::kJsonSchema:
      return make_schema_grammar(format.schema, warnings);
    default:
      return std::shared_ptr<const Grammar>();
  }
}

Result<std::shared_ptr<const Grammar>> answer_grammar(const ChatRequest& request, ToolFormat format,
                                                      std::vector<std::string>* warnings) {
  const ToolChoice& choice = request.tool_choice;
  MOE_ASSIGN_OR_RETURN(std::vector<ToolSpec> tools, allowed_tools(request));
  const bool may_call = !tools.empty() && choice.kind != ToolChoice::Kind::kNone;
  const bool must_call = choice.kind == ToolChoice::Kind::kRequired;
  if (must_call && (tools.empty() || format == ToolFormat::kNone)) {
    return invalid_argument(tools.empty()
                                ? "tool_choice asks for a call, and no tools are offered"
                                : "tool_choice asks for a call, and this model's template "
                                  "knows none",
                            "offer tools and a model that knows them, or leave tool_choice out");
  }
  if (!may_call) tools.clear();
  const bool has_form = request.format.kind != ResponseFormat::Kind::kText && !must_call;
  const bool has_frame = format == ToolFormat::kHarmony;  // its answers name their channel
  const bool is_in_frame = has_frame && request.conversation.continues_last;
  const bool is_form_alone =
      format == ToolFormat::kNone || is_in_frame || (tools.empty() && !has_frame);
  if (has_form && is_form_alone) return format_grammar(request.format, warnings);
  if (format == ToolFormat::kNone) return std::shared_ptr<const Grammar>();
  ToolGrammarOptions options{.format = format,
                             .tools = std::move(tools),
                             .is_required = must_call || has_form,
                             .is_parallel = choice.is_parallel,
                             .call_id_prefix = {},
                             .answer_schema = {}};
  if (has_form) options.answer_schema = form_schema(request.format);
  const std::size_t told = warnings != nullptr ? warnings->size() : 0;
  Result<std::shared_ptr<const Grammar>> grammar = make_tool_grammar(options, warnings);
  if (grammar.is_ok() || !has_form || options.tools.empty()) return grammar;
  // The form was promised, calls were only offered.
  options.tools.clear();
  if (warnings != nullptr) warnings->resize(told);
  Result<std::shared_ptr<const Grammar>> form =
      has_frame ? make_tool_grammar(options, warnings) : format_grammar(request.format, warnings);
  if (form.is_ok() && warnings != nullptr) {
    warnings->push_back(
        "the schemas of the tools are too large beside a form of the answer; the "
        "answer has the form and no calls");
  }
  return form;
}

}  // namespace moepack
