// Tokens become events: text, stop texts, calls, probabilities, the end and its reason.
#include "runtime/service/answer_stream.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/utf8.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_models.h"

namespace moepack::answer_stream_test {
namespace {

constexpr const char* kCall =
    "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\": 1}}\n</tool_call>";

const Tokenizer& demo() {
  static const Tokenizer kDemo = [] {
    auto loaded = Tokenizer::load(test::demo_mlx_model() / "tokenizer.json");
    EXPECT_OK(loaded);
    return std::move(loaded).value();
  }();
  return kDemo;
}

// An answer as one who reads its events sees it.
struct Reading {
  std::string content, reasoning, arguments;
  std::vector<std::string> names, ids;
  std::size_t ended_calls = 0, logprobs = 0, contents = 0;
  AnswerEnd end;
};

class AnswerStreamTest : public testing::Test {
 protected:
  AnswerStreamTest() {
    options_.tokenizer = &demo();
    options_.make_call_id = [this] { return "call_" + std::to_string(++ids_); };
    options_.parser.added_tokens = {"<tool_call>", "</tool_call>", "<think>", "</think>"};
    options_.parser.reasoning_begin = "<think>";
    options_.parser.reasoning_end = "</think>";
  }

  void offer_tools() {
    options_.parser.format = ToolFormat::kHermes;
    options_.parser.parses_calls = true;
    ToolSpec tool;
    tool.name = "add";
    options_.parser.tools.push_back(std::move(tool));
    options_.calls = &calls_;
  }

  AnswerSink sink() {
    return [this](AnswerEvent event) {
      EXPECT_FALSE(is_ended_) << "an event after the end";
      std::visit([this](auto& body) { note(body); }, event.body);
    };
  }
  void note(const AnswerQueued&) {}
  void note(const AnswerStarted&) {}
  void note(const PromptProgress&) {}
  void note(const ReasoningText& text) {
    read_.reasoning += text.text;
    read_.logprobs += text.logprobs.size();
  }
  void note(const ContentText& text) {
    ++read_.contents;
    read_.content += text.text;
    read_.logprobs += text.logprobs.size();
  }
  void note(const CallBegin& call) {
    read_.names.push_back(call.name);
    read_.ids.push_back(call.id);
  }
  void note(const CallArguments& part) { read_.arguments += part.fragment; }
  void note(const CallEnd&) { ++read_.ended_calls; }
  void note(const AnswerEnd& end) {
    read_.end = end;
    is_ended_ = true;
  }

  // Feeds the tokens of `text` until the stream has enough; gives how many it took.
  std::size_t run(std::string_view text, TextEnd end = TextEnd::kStopToken) {
    return run_ids(demo().encode(text).value(), end);
  }
  std::size_t run_ids(const std::vector<std::int32_t>& ids, TextEnd end = TextEnd::kStopToken) {
    AnswerStream stream(options_, sink());
    stream.on_started(7, 3);
    std::size_t taken = 0;
    for (const std::int32_t id : ids) {
      ++taken;
      TokenStep step;
      step.token = {.id = id, .logprob = -0.5F};
      const TextListener::Next next = stream.on_token(step);
      forced_.insert(forced_.end(), next.forced.begin(), next.forced.end());
      if (next.goes_on) continue;
      end = TextEnd::kStopped;
      break;
    }
    TextTimes times;
    times.cached_tokens = 3;
    stream.on_end(end, Status::ok(), times);
    return taken;
  }

  AnswerStreamOptions options_;
  CallMemory calls_{10, 1000};
  Reading read_;
  std::vector<std::int32_t> forced_;
  bool is_ended_ = false;
  int ids_ = 0;
};

TEST_F(AnswerStreamTest, TextAndTheReasonOfItsEnd) {
  run("It is four. Ünïcode ✓");
  EXPECT_EQ(read_.content, "It is four. Ünïcode ✓");
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kStop);
  EXPECT_EQ(read_.end.usage.prompt_tokens, 7U);
  EXPECT_EQ(read_.end.usage.cached_tokens, 3U);
  EXPECT_GT(read_.end.usage.completion_tokens, 3U);
}

TEST_F(AnswerStreamTest, AStopTextEndsItAndIsNotTold) {
  options_.stop = {"###", "END"};
  run("one two END three");
  EXPECT_EQ(read_.content, "one two ");
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kStopText);
  EXPECT_EQ(read_.end.stop_text, "END");
}

TEST_F(AnswerStreamTest, WhatOnlyBeginsAStopTextIsTold) {
  options_.stop = {"ENDED"};
  run("the END");
  EXPECT_EQ(read_.content, "the END");
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kStop);
}

TEST_F(AnswerStreamTest, CallsAreToldAndRemembered) {
  offer_tools();
  const std::string call = kCall;
  run("Wait. " + call);
  EXPECT_EQ(read_.content, "Wait.") << "white space before a call is the frame's";
  EXPECT_EQ(read_.names, std::vector<std::string>{"add"});
  EXPECT_EQ(OrderedJson::parse(read_.arguments), OrderedJson::parse("{\"a\":1}"));
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kToolCalls);
  const auto remembered = calls_.recall(call_key("", read_.ids.at(0)));
  ASSERT_TRUE(remembered.has_value());
  EXPECT_EQ(remembered->text, call);
  EXPECT_EQ(remembered->ids, demo().encode(call).value());
  ASSERT_EQ(remembered->markers.size(), 2U) << "its begin and its end";
  EXPECT_EQ(remembered->markers[0].end, std::string("<tool_call>").size());
}

// With a stop text the markers wait with the text, and are markers still.
TEST_F(AnswerStreamTest, CallsAndStopTextsTogether) {
  offer_tools();
  options_.stop = {"<tool_response>", "never"};
  run("Hm<tool_call>\n{\"name\":\"add\",\"arguments\":{}}\n</tool_call>");
  EXPECT_EQ(read_.content, "Hm");
  EXPECT_EQ(read_.ended_calls, 1U);
}

// A client can do nothing with half a call.
TEST_F(AnswerStreamTest, StopTextsAreNotLookedForWithinCalls) {
  offer_tools();
  options_.stop = {"END", "}", "\"a"};
  run("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\": \"x END\"}}\n</tool_call> Done END "
      "more");
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(OrderedJson::parse(read_.arguments), OrderedJson::parse("{\"a\":\"x END\"}"));
  EXPECT_EQ(read_.content, "Done ") << "behind the call they count again";
  EXPECT_EQ(read_.end.stop_text, "END");
}

TEST_F(AnswerStreamTest, AStopTextBehindTheArgumentsLeavesAWholeCall) {
  offer_tools();
  options_.stop = {"\n"};
  run("<tool_call>\n{\"name\":\"add\",\n\"arguments\":{\"a\":\n1}}\n</tool_call>");
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(OrderedJson::parse(read_.arguments), OrderedJson::parse("{\"a\":1}"));
}

// Between the arguments and the closing marker, and between two calls, nothing is of the content.
TEST_F(AnswerStreamTest, AStopTextWithinTheFrameOfCallsEndsNothing) {
  const std::string call = kCall;
  for (const std::string stop : {"\n", "\n</", "tool", ">", "</tool_call>"}) {
    SCOPED_TRACE(stop);
    offer_tools();
    read_ = {};
    is_ended_ = false;
    options_.stop = {stop};
    run(call + "\n" + call);
    EXPECT_EQ(read_.ended_calls, 2U);
    EXPECT_EQ(read_.content, "");
    EXPECT_EQ(read_.end.reason, AnswerEndReason::kToolCalls);
    ASSERT_EQ(read_.ids.size(), 2U);
    EXPECT_TRUE(calls_.recall(call_key("", read_.ids[1])).has_value()) << "with its closing marker";
  }
}

TEST_F(AnswerStreamTest, AStopTextWithinTheTagsOfACallEndsNothing) {
  offer_tools();
  options_.parser.format = ToolFormat::kQwenXml;
  options_.stop = {"\n", "/"};
  run("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
      "\nSo/so");
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(read_.content, "So") << "behind the frame they count again, from the first byte on";
  EXPECT_EQ(read_.end.stop_text, "/");
}

// A marker stays one where a stop text begins within it.
TEST_F(AnswerStreamTest, WhatEndsAMarkerMayBeginAStopText) {
  offer_tools();
  options_.stop = {">>>"};
  run("Hm<tool_call>\n{\"name\":\"add\",\"arguments\":{}}\n</tool_call>");
  EXPECT_EQ(read_.content, "Hm");
  EXPECT_EQ(read_.ended_calls, 1U);
}

// The line ends between thoughts and answer are told to nobody.
TEST_F(AnswerStreamTest, ALineEndBehindThoughtsIsNoStopText) {
  options_.stop = {"\n\n"};
  run("<think>Hm</think>\n\nOne\n\nTwo");
  EXPECT_EQ(read_.reasoning, "Hm");
  EXPECT_EQ(read_.content, "One");
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kStopText);
}

TEST_F(AnswerStreamTest, NoStopTextIsFoundInTheHeadersOfMessages) {
  options_.parser.format = ToolFormat::kHarmony;
  options_.parser.added_tokens = {};  // the markers are plain text here
  options_.stop = {"final", "assistant", "<|channel|>"};
  run("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>It is "
      "final.");
  EXPECT_EQ(read_.reasoning, "Hm");
  EXPECT_EQ(read_.content, "It is ");
  EXPECT_EQ(read_.end.stop_text, "final");
}

TEST_F(AnswerStreamTest, AMessageWithoutAHeaderIsContentFromItsFirstByteOn) {
  options_.parser.format = ToolFormat::kHarmony;
  options_.parser.added_tokens = {};
  options_.stop = {"END"};
  run("END of it");
  EXPECT_EQ(read_.content, "");
  EXPECT_EQ(read_.end.stop_text, "END");
}

TEST_F(AnswerStreamTest, AStopTextBeforeACallEndsTheAnswer) {
  offer_tools();
  options_.stop = {"END"};
  run("One END <tool_call>\n{\"name\":\"add\",\"arguments\":{}}\n</tool_call>");
  EXPECT_EQ(read_.names.size(), 0U);
  EXPECT_EQ(read_.end.stop_text, "END");
}

TEST_F(AnswerStreamTest, OneCallIsEnoughWhereMoreAreNotWanted) {
  offer_tools();
  options_.is_parallel = false;
  const std::string call = "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n</tool_call>";
  const std::size_t taken = run(call + call);
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(taken, demo().encode(call).value().size()) << "with its end marker, and no more";
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kToolCalls);
  const auto remembered = calls_.recall(call_key("", read_.ids.at(0)));
  ASSERT_TRUE(remembered.has_value());
  EXPECT_EQ(remembered->text, call);
}

TEST_F(AnswerStreamTest, ACallThatLosesItsEndMarkerEndsTheAnswerAllTheSame) {
  offer_tools();
  options_.is_parallel = false;
  options_.stop = {"never"};
  const std::string call = "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}";
  std::string tail;
  for (int i = 0; i < 100; ++i) tail += " and on";
  const std::size_t taken = run(call + tail);
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_LE(taken, demo().encode(call).value().size() + 40);
  EXPECT_EQ(read_.content, "");
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kToolCalls);
}

// The limit may come between the call and its marker.
TEST_F(AnswerStreamTest, ALimitBehindTheOnlyCallIsACall) {
  offer_tools();
  options_.is_parallel = false;
  run("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}", TextEnd::kLength);
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kToolCalls);
}

// A client must not replay half a call.
TEST_F(AnswerStreamTest, ALimitWithinACallIsNoCall) {
  offer_tools();
  run("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":", TextEnd::kLength);
  EXPECT_EQ(read_.ended_calls, 0U);
  EXPECT_EQ(read_.end.reason, AnswerEndReason::kLength);
}

TEST_F(AnswerStreamTest, ThoughtsHaveABudget) {
  options_.parser.begins_in_reasoning = true;
  options_.thinking_budget = 2;
  options_.end_of_thinking = {1, 2, 3};
  run("one two three four five");
  EXPECT_EQ(forced_, (std::vector<std::int32_t>{1, 2, 3})) << "told once";
  EXPECT_TRUE(read_.content.empty());
  EXPECT_EQ(read_.reasoning, "one two three four five");
}

// Kimi writes the ids of its calls.
TEST_F(AnswerStreamTest, IdsOfCallsAreNotTheSameTwice) {
  offer_tools();
  options_.parser.format = ToolFormat::kKimi;
  options_.parser.added_tokens = {};
  options_.known_ids = std::make_shared<const std::unordered_set<std::string>>(
      std::initializer_list<std::string>{"functions.add:7", "functions.add:9"});
  std::string text = "<|tool_calls_section_begin|>";
  for (const char* id : {"functions.add:7", "functions.add:7", "functions.add:3"}) {
    text += "<|tool_call_begin|>" + std::string(id) +
            "<|tool_call_argument_begin|>{\"a\":1}<|tool_call_end|>";
  }
  run(text + "<|tool_calls_section_end|>");
  EXPECT_EQ(read_.ids,
            (std::vector<std::string>{"functions.add:8", "functions.add:10", "functions.add:3"}));
  EXPECT_FALSE(calls_.recall(call_key("", "functions.add:8")).has_value())
      << "its text says another id";
  EXPECT_TRUE(calls_.recall(call_key("", "functions.add:3")).has_value());
}

// Of marks and of white space behind them nothing is told.
TEST_F(AnswerStreamTest, ProbabilitiesAreOfTheTextThatIsTold) {
  options_.wants_logprobs = true;
  run("<think>Let me see</think>\n\nIt is four");
  EXPECT_EQ(read_.reasoning, "Let me see");
  EXPECT_EQ(read_.content, "It is four");
  const auto count = [](const char* text) { return demo().encode(text).value().size(); };
  EXPECT_EQ(read_.logprobs, count("Let me see") + count("It is four"));
}

// Texts that repeat themselves, also while a stop text or a mark is waited for.
TEST_F(AnswerStreamTest, NoProbabilityOfATextIsLost) {
  struct Case {
    const char* text;
    std::vector<std::string> stop;
    bool marks_are_text;
  };
  const std::vector<Case> cases = {{"A\n\nB", {"\n\nUser:"}, false},
                                   {"x---- y", {"-----"}, false},
                                   {"a<<b", {}, true},
                                   {"a a a a", {"a a b"}, false}};
  options_.wants_logprobs = true;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    read_ = {};
    is_ended_ = false;
    options_.stop = c.stop;
    if (c.marks_are_text) options_.parser.added_tokens = {};
    // Byte by byte, so that tokens repeat.
    std::vector<std::int32_t> ids;
    for (const char* at = c.text; *at != 0; ++at) {
      ids.push_back(demo().encode(std::string(1, *at)).value().at(0));
    }
    run_ids(ids);
    EXPECT_EQ(read_.content, c.text);
    EXPECT_EQ(read_.logprobs, ids.size());
  }
}

TEST_F(AnswerStreamTest, MarksAtTheEndHaveNoProbabilities) {
  options_.wants_logprobs = true;
  run("<think>x</think>");
  EXPECT_EQ(read_.logprobs, demo().encode("x").value().size());
  EXPECT_EQ(read_.contents, 0U);
}

TEST_F(AnswerStreamTest, EveryTokenHasItsProbability) {
  options_.wants_logprobs = true;
  const std::string text = "naïve ✓ text";
  run(text);
  EXPECT_EQ(read_.logprobs, demo().encode(text).value().size());
}

// Tokens of calls and of stop texts are no part of the content.
TEST_F(AnswerStreamTest, ProbabilitiesAreThoseOfTheContent) {
  offer_tools();
  options_.wants_logprobs = true;
  const std::string call = kCall;
  run(call + "\n");
  EXPECT_EQ(read_.ended_calls, 1U);
  EXPECT_EQ(read_.logprobs, 0U);
  EXPECT_EQ(read_.contents, 0U) << "an empty piece stands behind the call";
}

TEST_F(AnswerStreamTest, ACallThatIsCutOffHasNoProbabilities) {
  offer_tools();
  options_.wants_logprobs = true;
  run("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":", TextEnd::kLength);
  EXPECT_EQ(read_.logprobs, 0U);
}

TEST_F(AnswerStreamTest, AStopTextHasNoProbabilities) {
  options_.wants_logprobs = true;
  options_.stop = {"END"};
  run("one two END three");
  EXPECT_EQ(read_.content, "one two ");
  const std::vector<std::int32_t> ids = demo().encode("one two END three").value();
  std::size_t begun = 0;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    if (at < read_.content.size()) ++begun;
    at += demo().bytes(id).size();
  }
  EXPECT_EQ(read_.logprobs, begun);
}

TEST_F(AnswerStreamTest, AnUnfinishedCharacterHasItsProbabilities) {
  options_.wants_logprobs = true;
  const std::vector<std::int32_t> ids = demo().encode("𓀀").value();
  ASSERT_GT(ids.size(), 2U);
  AnswerStream stream(options_, sink());
  for (const std::int32_t id : {ids[0], ids[1]}) {
    TokenStep step;
    step.token = {.id = id, .logprob = -0.5F};
    stream.on_token(step);
  }
  stream.on_end(TextEnd::kLength, Status::ok(), {});
  EXPECT_EQ(read_.logprobs, 2U);
}

TEST_F(AnswerStreamTest, AnEchoesCharactersAreToldWhole) {
  options_.wants_logprobs = true;
  const std::string text = "a 𓀀 naïve ✓";
  options_.echoed = demo().encode(text).value();
  std::string told;
  std::size_t logprobs = 0;
  AnswerStream stream(options_, [&](const AnswerEvent& event) {
    const auto* part = std::get_if<ContentText>(&event.body);
    if (part == nullptr) return;
    EXPECT_EQ(find_invalid_utf8(part->text), std::string::npos);
    told += part->text;
    logprobs += part->logprobs.size();
  });
  stream.on_started(options_.echoed.size(), 0);
  for (std::size_t i = 1; i < options_.echoed.size(); ++i) {
    TokenStep step;
    step.token = {.id = options_.echoed[i], .logprob = -0.5F};
    stream.on_prompt_token(step);
  }
  stream.on_end(TextEnd::kLength, Status::ok(), {});
  EXPECT_EQ(told, text);
  EXPECT_EQ(logprobs, options_.echoed.size());
}

}  // namespace
}  // namespace moepack::answer_stream_test
