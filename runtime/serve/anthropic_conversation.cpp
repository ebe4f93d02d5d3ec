#include "runtime/serve/anthropic_conversation.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/answer_writer.h"
#include "runtime/serve/anthropic_blocks.h"
#include "runtime/serve/late_system.h"
#include "runtime/serve/request_options.h"

namespace moepack {
namespace {

std::string_view block_type(const OrderedJson& block) {
  if (!block.is_object()) return {};
  const auto type = block.find("type");
  if (type == block.end() || !type->is_string()) return {};
  return type->get_ref<const std::string&>();
}

bool has_cache_control(const OrderedJson& block) {
  if (!block.is_object()) return false;
  const auto control = block.find("cache_control");
  return control != block.end() && !control->is_null();
}

}  // namespace

void MessagesConversation::refuse(std::string message, std::string path) {
  refuse_at(fault_, std::move(message), std::move(path));
}

void MessagesConversation::hint(const OrderedJson& block) {
  if (!has_cache_control(block) || conversation_.messages.empty()) return;
  const std::size_t last = conversation_.messages.size() - 1;
  if (cache_hints_.empty() || cache_hints_.back() != last) cache_hints_.push_back(last);
}

ChatMessage& MessagesConversation::open_turn(ChatRole role) {
  std::vector<ChatMessage>& messages = conversation_.messages;
  if (messages.empty() || messages.back().role != role) {
    messages.emplace_back();
    messages.back().role = role;
  }
  return messages.back();
}

void MessagesConversation::append_system(std::string_view text) {
  if (text.empty()) return;
  append_joined(open_turn(ChatRole::kSystem).content, text, "\n");
}

void MessagesConversation::add_system(const OrderedJson& system) {
  if (!system.is_array()) {
    append_system(without_billing_line(text_of_content(&system, "system", fault_)));
    return;
  }
  for (std::size_t i = 0; i < system.size(); ++i) {
    append_system(
        without_billing_line(text_of_block(system[i], element_place("system", i), fault_)));
    hint(system[i]);
  }
}

void MessagesConversation::add_message(const OrderedJson& message, const std::string& path) {
  if (!message.is_object()) return refuse("must be an object with role and content", path);
  const BodyFields fields(message, path + ".", fault_);
  const std::optional<std::string> role = fields.text("role");
  if (!role) return refuse("is missing: user or assistant", fields.place_of("role"));
  const OrderedJson* content = fields.find("content");
  const OrderedJson nothing = OrderedJson::array();
  if (content == nullptr) content = &nothing;
  const std::string content_path = fields.place_of("content");
  if (!content->is_string() && !content->is_array()) {
    return refuse("must be a text or a list of blocks", content_path);
  }
  if (*role == "assistant") return add_assistant(*content, content_path);
  if (*role == "system") return add_late_system(*content, content_path);
  add_user(*content, content_path);  // roles of the future too
}

void MessagesConversation::add_late_system(const OrderedJson& content, const std::string& path) {
  const std::string text = without_billing_line(text_of_content(&content, path, fault_));
  const std::vector<ChatMessage>& messages = conversation_.messages;
  if (messages.empty() || messages.back().role == ChatRole::kSystem) {
    append_system(text);
  } else {
    add_late_system_text(conversation_, text);
  }
  if (content.is_array() && !content.empty()) hint(content.back());
}

void MessagesConversation::add_user_text(std::string_view text, bool starts_turn) {
  if (text.empty()) return;
  if (joins_tool_result(conversation_, text)) {
    append_joined(conversation_.messages.back().content, text, "\n\n");
    return;
  }
  append_joined(open_turn(ChatRole::kUser).content, text, starts_turn ? "\n\n" : "\n");
}

void MessagesConversation::add_user(const OrderedJson& content, const std::string& path) {
  if (content.is_string()) {
    open_turn(ChatRole::kUser);  // an empty message too is a turn
    return add_user_text(content.get_ref<const std::string&>(), true);
  }
  bool has_results = false;
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (block_type(content[i]) != "tool_result") continue;
    add_tool_result(content[i], element_place(path, i));
    has_results = true;
  }
  if (!has_results) open_turn(ChatRole::kUser);
  bool starts_turn = true;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string_view type = block_type(content[i]);
    if (type == "tool_result") continue;
    const std::string block_path = element_place(path, i);
    if (type == "tool_use")
      return refuse("tool_use belongs into a message of the assistant", block_path);
    const std::string text = text_of_block(content[i], block_path, fault_);
    add_user_text(text, starts_turn);
    if (!text.empty()) starts_turn = false;
    hint(content[i]);
  }
}

void MessagesConversation::add_tool_result(const OrderedJson& block, const std::string& path) {
  const BodyFields fields(block, path + ".", fault_);
  ChatMessage message;
  message.role = ChatRole::kTool;
  message.tool_call_id = fields.text("tool_use_id").value_or("");
  message.content = text_of_content(fields.find("content"), fields.place_of("content"), fault_);
  if (fields.flag("is_error").value_or(false)) message.content.insert(0, "Error: ");
  conversation_.messages.push_back(std::move(message));
  hint(block);
}

void MessagesConversation::add_assistant(const OrderedJson& content, const std::string& path) {
  ChatMessage& message = open_turn(ChatRole::kAssistant);
  if (content.is_string()) {
    append_joined(message.content, content.get_ref<const std::string&>(), "\n\n");
    return;
  }
  std::string text;  // pieces of one text: the model wrote them without a break
  for (std::size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& block = content[i];
    const std::string block_path = element_place(path, i);
    const std::string_view type = block_type(block);
    if (type == "tool_use") {
      add_tool_use(message, block, block_path);
    } else if (type == "thinking") {
      const BodyFields fields(block, block_path + ".", fault_);
      append_joined(message.reasoning, fields.text("thinking").value_or(""), "\n");
    } else if (type == "tool_result") {
      return refuse("tool_result belongs into a message of the user", block_path);
    } else {
      text += text_of_block(block, block_path, fault_);
    }
    hint(block);
  }
  append_joined(message.content, text, "\n\n");
}

void MessagesConversation::add_tool_use(ChatMessage& message, const OrderedJson& block,
                                        const std::string& path) {
  const BodyFields fields(block, path + ".", fault_);
  ToolCall call;
  call.id = fields.text("id").value_or("");
  call.name = fields.text("name").value_or("");
  if (call.name.empty()) return refuse("is missing: the name of the tool", fields.place_of("name"));
  const OrderedJson* input = fields.find("input");
  if (input == nullptr) {
    call.arguments = "{}";
  } else if (input->is_string()) {
    call.arguments = input->get<std::string>();  // some clients send the text back
  } else {
    call.arguments = dump_json(*input);
  }
  message.calls.push_back(std::move(call));
}

}  // namespace moepack
