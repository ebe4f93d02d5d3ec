#include "runtime/service/prompt_points.h"

#include <algorithm>
#include <optional>

namespace moepack {
namespace {

constexpr std::size_t kMostHints = 4;

std::size_t common_bytes(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

// How far `text` agrees with the rendering of the first `messages` messages.
std::optional<std::size_t> point_after(const Conversation& conversation, std::size_t messages,
                                       std::string_view text, const ConversationRenderer& render) {
  Conversation beginning = conversation;
  beginning.messages.resize(messages);
  beginning.add_generation_prompt = false;
  beginning.continues_last = false;
  const Result<PromptText> rendered = render(beginning);
  if (!rendered.is_ok()) return std::nullopt;  // a template may want more of a conversation
  return common_bytes(text, rendered.value().text);
}

std::size_t system_messages(const Conversation& conversation) {
  const auto& messages = conversation.messages;
  const auto end = std::find_if(messages.begin(), messages.end(), [](const ChatMessage& message) {
    return message.role != ChatRole::kSystem;
  });
  return static_cast<std::size_t>(end - messages.begin());
}

// Messages before the user's last one.
std::optional<std::size_t> before_last_user(const Conversation& conversation) {
  const auto& messages = conversation.messages;
  const auto last =
      std::find_if(messages.rbegin(), messages.rend(),
                   [](const ChatMessage& message) { return message.role == ChatRole::kUser; });
  if (last == messages.rend()) return std::nullopt;
  return static_cast<std::size_t>(messages.rend() - last) - 1;
}

}  // namespace

std::vector<std::size_t> prompt_points(const Conversation& conversation, std::string_view text,
                                       std::span<const std::size_t> hints,
                                       const ConversationRenderer& render) {
  const std::size_t all = conversation.messages.size();
  std::vector<std::size_t> counts{system_messages(conversation), all};
  if (const auto before = before_last_user(conversation)) counts.push_back(*before);
  for (const std::size_t hint : hints.last(std::min(hints.size(), kMostHints))) {
    if (hint < all) counts.push_back(hint + 1);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::vector<std::size_t> points;
  for (const std::size_t count : counts) {
    const bool has_system = count > 0 || !conversation.tools.empty();
    const auto point = has_system ? point_after(conversation, count, text, render) : std::nullopt;
    if (point.has_value() && *point > 0) points.push_back(*point);
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

std::vector<std::uint64_t> token_points(const Tokenizer& tokenizer,
                                        std::span<const std::int32_t> ids, std::string_view text,
                                        std::span<const std::size_t> points) {
  std::vector<std::uint64_t> counts;
  std::size_t bytes = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string_view token = tokenizer.bytes(ids[i]);
    if (text.substr(bytes, token.size()) != token) return {};
    for (; next < points.size() && points[next] < bytes + token.size(); ++next) {
      if (i > 0) counts.push_back(i);
    }
    bytes += token.size();
  }
  if (next < points.size() && !ids.empty() && points[next] == bytes) counts.push_back(ids.size());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return bytes == text.size() ? counts : std::vector<std::uint64_t>{};
}

std::string_view generation_part(const Conversation& conversation, std::string_view text,
                                 const ConversationRenderer& render) {
  const auto before = point_after(conversation, conversation.messages.size(), text, render);
  return before.has_value() ? text.substr(*before) : std::string_view{};
}

}  // namespace moepack
