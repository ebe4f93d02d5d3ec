#include "tests/runtime/serve/answer_script.h"

#include <gtest/gtest.h>

#include <utility>

namespace moepack::test {
namespace {

std::size_t draw(std::mt19937_64& random, std::size_t below) { return random() % below; }

// Pieces of `text` that are cut anywhere between characters.
std::vector<std::string> cut(const std::string& text, std::mt19937_64& random) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 1 + draw(random, 7);
    while (at + length < text.size() &&
           (static_cast<unsigned char>(text[at + length]) & 0xC0U) == 0x80U) {
      ++length;
    }
    pieces.push_back(text.substr(at, length));
    at += length;
  }
  return pieces;
}

OrderedJson random_value(std::mt19937_64& random, int depth) {
  switch (draw(random, depth > 2 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return draw(random, 2) == 0;
    case 2:
      return static_cast<std::int64_t>(random()) >> draw(random, 63);
    case 3:
      return static_cast<double>(random()) * 1e-3;
    case 4:
      return std::string("a\"\\\n\t\x01/é中") + std::to_string(draw(random, 100));
    case 5: {
      OrderedJson list = OrderedJson::array();
      for (std::size_t i = draw(random, 4); i > 0; --i) {
        list.push_back(random_value(random, depth + 1));
      }
      return list;
    }
    default: {
      OrderedJson object = OrderedJson::object();
      for (std::size_t i = draw(random, 4); i > 0; --i) {
        object["key" + std::to_string(i)] = random_value(random, depth + 1);
      }
      return object;
    }
  }
}

std::string random_arguments(std::mt19937_64& random) {
  if (draw(random, 5) == 0) return {};
  OrderedJson object = OrderedJson::object();
  for (std::size_t i = draw(random, 4); i > 0; --i) {
    object["p" + std::to_string(i)] = random_value(random, 0);
  }
  return object.dump(draw(random, 2) == 0 ? -1 : 1);
}

void add_call(std::size_t number, bool is_cut, std::mt19937_64& random,
              std::vector<AnswerEvent>& events) {
  events.push_back(event(CallBegin{number, "call_" + std::to_string(number), "tool"}));
  std::string arguments = random_arguments(random);
  if (is_cut && !arguments.empty()) {
    arguments.resize(draw(random, arguments.size()));
    while (!arguments.empty() && static_cast<unsigned char>(arguments.back()) >= 0x80U) {
      arguments.pop_back();
    }
  }
  for (const std::string& piece : cut(arguments, random)) {
    events.push_back(event(CallArguments{number, piece}));
  }
  if (!is_cut) events.push_back(event(CallEnd{number}));
}

}  // namespace

AnswerEvent event(AnswerEventBody body) { return {.choice = 0, .body = std::move(body)}; }

AnswerEnd ended(AnswerEndReason reason, AnswerUsage usage) {
  AnswerEnd end;
  end.reason = reason;
  end.usage = usage;
  if (reason == AnswerEndReason::kStopText) end.stop_text = "END";
  if (reason == AnswerEndReason::kError) end.status = corrupt(Where{}, "the model broke");
  return end;
}

std::vector<AnswerEvent> random_answer(std::mt19937_64& random) {
  std::vector<AnswerEvent> events;
  for (std::size_t i = draw(random, 3); i > 0; --i) events.push_back(event(AnswerQueued{i}));
  events.push_back(event(AnswerStarted{412, 380}));
  for (std::size_t i = draw(random, 3); i > 0; --i) {
    events.push_back(event(PromptProgress{412, 380, 412 - i, 0.1}));
  }
  std::size_t calls = 0;
  for (std::size_t i = draw(random, 5); i > 0; --i) {
    const std::string text = "thé answer, " + std::to_string(random());
    switch (draw(random, 3)) {
      case 0:
        for (const char byte : text) {
          if (static_cast<unsigned char>(byte) < 0x80) {
            events.push_back(event(ReasoningText{std::string(1, byte), {}}));
          }
        }
        break;
      case 1:
        events.push_back(event(ContentText{text, {}}));
        events.push_back(event(ContentText{"", {}}));
        events.push_back(event(ContentText{"\n", {}}));
        break;
      default:
        add_call(calls++, false, random, events);
    }
  }
  using Reason = AnswerEndReason;
  const Reason limits[] = {Reason::kLength, Reason::kContext};
  if (draw(random, 6) == 0) {
    add_call(calls, true, random, events);
    events.push_back(event(ended(limits[draw(random, 2)])));
    return events;
  }
  const Reason reasons[] = {Reason::kStop,   Reason::kStopText, Reason::kToolCalls,
                            Reason::kLength, Reason::kContext,  Reason::kCancelled,
                            Reason::kError};
  events.push_back(event(ended(reasons[draw(random, 7)])));
  return events;
}

std::vector<ServerEvent> parse_stream(const std::string& text) {
  std::vector<ServerEvent> events;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event has no end: " << text.substr(at);
    if (end == std::string::npos) break;
    const std::string block = text.substr(at, end - at);
    at = end + 2;
    const std::size_t line = block.find('\n');
    const bool is_formed = block.starts_with("event: ") && line != std::string::npos &&
                           block.compare(line + 1, 6, "data: ") == 0 &&
                           block.find('\n', line + 1) == std::string::npos;
    EXPECT_TRUE(is_formed) << block;
    if (!is_formed) continue;
    events.push_back({block.substr(7, line - 7), json(block.substr(line + 7))});
    EXPECT_EQ(events.back().name, events.back().data["type"]) << block;
  }
  return events;
}

std::string streamed(StreamWriter& writer, const std::vector<AnswerEvent>& events,
                     std::mt19937_64* keeps_alive) {
  std::string text = writer.begin();
  const auto maybe_keep_alive = [&] {
    while (keeps_alive != nullptr && (*keeps_alive)() % 4 == 0) text += writer.keep_alive();
  };
  for (const AnswerEvent& one : events) {
    maybe_keep_alive();
    text += writer.on_event(one);
  }
  maybe_keep_alive();
  return text;
}

OrderedJson whole(WholeWriter& writer, const std::vector<AnswerEvent>& events, std::string* error) {
  for (const AnswerEvent& one : events) writer.on_event(one);
  const auto result = writer.finish();
  if (const auto* problem = std::get_if<ApiError>(&result)) {
    if (error != nullptr) *error = problem->message;
    return nullptr;
  }
  return json(std::get<std::string>(result));
}

OrderedJson json(std::string_view text) {
  OrderedJson parsed = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(parsed.is_discarded()) << text;
  return parsed;
}

}  // namespace moepack::test
