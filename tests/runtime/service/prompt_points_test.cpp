// Where states of a prompt are kept: at what the next request will have in common with it.
#include "runtime/service/prompt_points.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moepack::prompt_points_test {
namespace {

// "S:…;U:…;A:…;" and "A>" for the generation prompt.
Result<PromptText> render(const Conversation& conversation) {
  PromptText text;
  for (const ChatMessage& message : conversation.messages) {
    const char* role = message.role == ChatRole::kSystem      ? "S:"
                       : message.role == ChatRole::kAssistant ? "A:"
                                                              : "U:";
    text.text += role + message.content + ";";
  }
  if (conversation.add_generation_prompt) text.text += "A>";
  return text;
}

Conversation talk() {
  Conversation conversation;
  const auto add = [&](ChatRole role, const char* content) {
    ChatMessage message;
    message.role = role;
    message.content = content;
    conversation.messages.push_back(std::move(message));
  };
  add(ChatRole::kSystem, "be kind");
  add(ChatRole::kUser, "hello");
  add(ChatRole::kAssistant, "hi");
  add(ChatRole::kUser, "why");
  return conversation;
}

std::vector<std::string> beginnings(const Conversation& conversation,
                                    const std::vector<std::size_t>& hints = {}) {
  const std::string text = render(conversation).value().text;
  std::vector<std::string> parts;
  for (const std::size_t point : prompt_points(conversation, text, hints, render)) {
    parts.push_back(text.substr(0, point));
  }
  return parts;
}

TEST(PromptPoints, SystemLastQuestionAndGenerationPrompt) {
  const std::vector<std::string> wanted{"S:be kind;", "S:be kind;U:hello;A:hi;",
                                        "S:be kind;U:hello;A:hi;U:why;"};
  EXPECT_EQ(beginnings(talk()), wanted);
}

TEST(PromptPoints, HintsOfTheClient) {
  EXPECT_EQ(beginnings(talk(), {1, 99}).at(1), "S:be kind;U:hello;");
}

TEST(PromptPoints, ATemplateThatRefusesABeginningGivesFewer) {
  const Conversation conversation = talk();
  const ConversationRenderer picky = [](const Conversation& part) -> Result<PromptText> {
    if (part.messages.size() < 2) return invalid_argument("no user", "add one");
    return render(part);
  };
  const std::string text = render(conversation).value().text;
  EXPECT_EQ(prompt_points(conversation, text, {}, picky).size(), 2U);
}

TEST(PromptPoints, WhatAsksForTheAnswer) {
  const Conversation conversation = talk();
  const std::string text = render(conversation).value().text;
  EXPECT_EQ(generation_part(conversation, text, render), "A>");
}

}  // namespace
}  // namespace moepack::prompt_points_test
