#include "runtime/serve/anthropic_answer.h"

#include <gtest/gtest.h>

#include "tests/runtime/serve/answer_script.h"

namespace moepack::anthropic_answer_test {
namespace {

using test::ended;
using test::event;
using test::json;
using test::ServerEvent;

MessageIdentity identity(bool thinks = false) {
  return {.id = "msg_01", .model = "m", .request_id = "req_1", .thinks = thinks};
}

struct Accumulated {
  OrderedJson message;
  OrderedJson error;          // of an error event
  bool has_ended = false;     // message_stop came
  bool has_cut_call = false;  // the last block is a call without a whole object
};

// What a strict client makes of a stream: fails the test wherever the real ones would fail.
class Client {
 public:
  Accumulated take(const std::string& stream) {
    for (const ServerEvent& one : test::parse_stream(stream)) take(one);
    EXPECT_FALSE(is_open_ && result_.has_ended) << "the last block stayed open";
    return result_;
  }

 private:
  void take(const ServerEvent& one) {
    EXPECT_FALSE(result_.has_ended) << one.name << " after the end";
    EXPECT_TRUE(result_.error.is_null()) << one.name << " after an error";
    if (one.name == "ping") return;
    if (one.name == "error") {
      result_.error = one.data["error"];
      EXPECT_EQ(one.data["request_id"], "req_1");
      return;
    }
    if (one.name == "message_start") {
      EXPECT_TRUE(result_.message.is_null());
      result_.message = one.data["message"];
      return;
    }
    ASSERT_FALSE(result_.message.is_null()) << one.name << " before message_start";
    if (one.name == "message_delta") return finish(one.data);
    if (one.name == "message_stop") {
      result_.has_ended = true;
      EXPECT_FALSE(result_.message["stop_reason"].is_null());
      return;
    }
    block(one);
  }
  void block(const ServerEvent& one) {
    OrderedJson& content = result_.message["content"];
    const auto index = one.data["index"].get<std::size_t>();
    if (one.name == "content_block_start") {
      EXPECT_FALSE(is_open_) << "two blocks are open";
      EXPECT_EQ(index, content.size()) << "indices have a gap";
      is_open_ = true;
      partial_.clear();
      content.push_back(one.data["content_block"]);
      return;
    }
    ASSERT_TRUE(is_open_);
    ASSERT_EQ(index + 1, content.size());
    if (one.name == "content_block_stop") {
      close(content.back());
    } else {
      ASSERT_EQ(one.name, "content_block_delta");
      add(content.back(), one.data["delta"]);
    }
  }
  void add(OrderedJson& target, const OrderedJson& delta) {
    const std::string type = delta["type"];
    const auto append = [&](const char* key) {
      target[key] = target[key].get<std::string>() + delta[key].get<std::string>();
    };
    if (type == "text_delta") {
      EXPECT_EQ(target["type"], "text");
      append("text");
    } else if (type == "thinking_delta") {
      EXPECT_EQ(target["type"], "thinking");
      append("thinking");
    } else if (type == "signature_delta") {
      target["signature"] = delta["signature"];
    } else {
      EXPECT_EQ(type, "input_json_delta");
      EXPECT_EQ(target["type"], "tool_use");
      partial_ += delta["partial_json"].get<std::string>();
    }
  }
  void close(OrderedJson& target) {
    is_open_ = false;
    EXPECT_FALSE(result_.has_cut_call) << "a call that is no object has something behind it";
    if (target["type"] == "thinking") {
      EXPECT_NE(target["signature"], "");
    }
    if (target["type"] != "tool_use") return;
    const OrderedJson input = OrderedJson::parse(partial_, nullptr, false);
    if (input.is_object()) {
      target["input"] = input;
    } else {
      result_.has_cut_call = true;
    }
  }
  void finish(const OrderedJson& data) {
    EXPECT_FALSE(is_open_);
    result_.message["stop_reason"] = data["delta"]["stop_reason"];
    result_.message["stop_sequence"] = data["delta"]["stop_sequence"];
    for (const auto& [key, value] : data["usage"].items()) result_.message["usage"][key] = value;
  }

  Accumulated result_;
  bool is_open_ = false;
  std::string partial_;
};

std::string stream_of(const std::vector<AnswerEvent>& events,
                      std::mt19937_64* keeps_alive = nullptr, bool thinks = false) {
  const auto writer = make_messages_stream(identity(thinks));
  return test::streamed(*writer, events, keeps_alive);
}

const std::vector<AnswerEvent> kAnswer = {
    event(AnswerStarted{412, 380}),
    event(ReasoningText{"I need", {}}),
    event(ReasoningText{" it.", {}}),
    event(ContentText{"Looking.", {}}),
    event(CallBegin{0, "toolu_01", "get_weather"}),
    event(CallArguments{0, "{\"city\":"}),
    event(CallArguments{0, "\"Rome\"}"}),
    event(CallEnd{0}),
    event(CallBegin{1, "toolu_02", "now"}),
    event(CallEnd{1}),
    event(ended(AnswerEndReason::kToolCalls)),
};

TEST(MessagesAnswer, WholeObject) {
  const auto writer = make_messages_whole(identity());
  EXPECT_EQ(test::whole(*writer, kAnswer).dump(),
            R"({"id":"msg_01","type":"message","role":"assistant","model":"m","content":[)"
            R"({"type":"thinking","thinking":"I need it.","signature":"moepack"},)"
            R"({"type":"text","text":"Looking."},)"
            R"({"type":"tool_use","id":"toolu_01","name":"get_weather","input":{"city":"Rome"}},)"
            R"({"type":"tool_use","id":"toolu_02","name":"now","input":{}}],)"
            R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":32,)"
            R"("cache_creation_input_tokens":0,"cache_read_input_tokens":380,"output_tokens":37,)"
            R"("output_tokens_details":{"thinking_tokens":12}}})");
}

TEST(MessagesAnswer, StreamIsTheSequenceOfTheProtocol) {
  std::vector<std::string> names;
  std::vector<std::string> deltas;
  for (const ServerEvent& one : test::parse_stream(stream_of(kAnswer))) {
    names.push_back(one.name == "content_block_delta" ? one.data["delta"]["type"].get<std::string>()
                                                      : one.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "message_start", "content_block_start", "thinking_delta", "thinking_delta",
                       "signature_delta", "content_block_stop", "content_block_start", "text_delta",
                       "content_block_stop", "content_block_start", "input_json_delta",
                       "input_json_delta", "content_block_stop", "content_block_start",
                       "input_json_delta", "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_TRUE(stream_of(kAnswer).starts_with(
      R"(event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":32,"cache_creation_input_tokens":0,"cache_read_input_tokens":380,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"I need"}}

)"));
}

TEST(MessagesAnswer, StopReasons) {
  const std::pair<AnswerEndReason, const char*> reasons[] = {
      {AnswerEndReason::kStop, "end_turn"},
      {AnswerEndReason::kStopText, "stop_sequence"},
      {AnswerEndReason::kToolCalls, "tool_use"},
      {AnswerEndReason::kLength, "max_tokens"},
      {AnswerEndReason::kContext, "model_context_window_exceeded"},
  };
  for (const auto& [reason, word] : reasons) {
    const auto writer = make_messages_whole(identity());
    const OrderedJson message =
        test::whole(*writer, {event(AnswerStarted{1, 0}), event(ended(reason))});
    EXPECT_EQ(message["stop_reason"], word);
    EXPECT_EQ(message["stop_sequence"].is_null(), reason != AnswerEndReason::kStopText);
    EXPECT_TRUE(message["content"].empty());
  }
}

// A stop text in the midst of a call ends the answer, which is one: without the call.
TEST(MessagesAnswer, AStopTextInACallLeavesItOut) {
  const std::vector<AnswerEvent> events = {
      event(AnswerStarted{1, 0}),
      event(ContentText{"Writing.", {}}),
      event(CallBegin{0, "t", "write"}),
      event(CallArguments{0, "{\"text\":\"a"}),
      event(ended(AnswerEndReason::kStopText)),
  };
  const auto writer = make_messages_whole(identity());
  const OrderedJson message = test::whole(*writer, events);
  ASSERT_EQ(message["content"].size(), 1U);
  EXPECT_EQ(message["content"][0]["text"], "Writing.");
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  const Accumulated streamed = Client().take(stream_of(events));
  EXPECT_TRUE(streamed.has_ended);
  EXPECT_EQ(streamed.message["stop_reason"], "stop_sequence");
}

// Properties of any answer: the stream is well-formed, and what is accumulated of it is the whole
// object, but for a call that was cut off.
TEST(MessagesAnswer, StreamAndWholeAreOneAnswer) {
  std::mt19937_64 random(7);
  int errors = 0;
  int cuts = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::vector<AnswerEvent> events = test::random_answer(random);
    const Accumulated got = Client().take(stream_of(events));
    std::string error;
    const auto writer = make_messages_whole(identity());
    OrderedJson expected = test::whole(*writer, events, &error);
    if (expected.is_null()) {
      ++errors;
      EXPECT_EQ(got.error["message"], error);
      EXPECT_FALSE(got.has_ended);
      continue;
    }
    EXPECT_TRUE(got.has_ended);
    OrderedJson message = got.message;
    if (message["content"].size() == expected["content"].size() + 1) {
      ++cuts;
      const OrderedJson reason = message["stop_reason"];
      EXPECT_TRUE(reason == "max_tokens" || reason == "model_context_window_exceeded" ||
                  reason == "stop_sequence");
      EXPECT_EQ(message["content"].back()["type"], "tool_use");
      message["content"].erase(message["content"].size() - 1);
    }
    EXPECT_EQ(message.dump(), expected.dump());
  }
  EXPECT_GT(errors, 30);
  EXPECT_GT(cuts, 30);
}

// The same with pings at any time; empty blocks that were opened early are all that is added.
TEST(MessagesAnswer, KeepAlivesChangeNothing) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<AnswerEvent> events = test::random_answer(random);
    const bool thinks = round % 2 == 0;
    const OrderedJson plain = Client().take(stream_of(events)).message;
    OrderedJson kept = Client().take(stream_of(events, &random, thinks)).message;
    if (plain.is_null()) continue;
    OrderedJson joined = OrderedJson::array();
    for (const OrderedJson& block : kept["content"]) {
      const bool is_empty = (block["type"] == "text" && block["text"] == "") ||
                            (block["type"] == "thinking" && block["thinking"] == "");
      if (!is_empty) joined.push_back(block);
    }
    kept["content"] = joined;
    if (plain["stop_reason"].is_null()) continue;  // an error: counts may differ
    EXPECT_EQ(kept.dump(), plain.dump());
  }
}

TEST(MessagesAnswer, WaitingClientsSeeLife) {
  const auto writer = make_messages_stream(identity(true));
  EXPECT_EQ(writer->begin(), "");
  EXPECT_EQ(writer->on_event(event(AnswerQueued{2})), "");
  std::string text = writer->keep_alive();
  EXPECT_TRUE(text.starts_with("event: message_start\n"));
  EXPECT_TRUE(text.ends_with("event: ping\ndata: {\"type\":\"ping\"}\n\n"));
  text += writer->on_event(event(AnswerStarted{412, 380}));
  text += writer->keep_alive();
  EXPECT_NE(text.find("\"content_block\":{\"type\":\"thinking\""), std::string::npos);
  EXPECT_TRUE(text.ends_with(R"("delta":{"type":"thinking_delta","thinking":""}})"
                             "\n\n"));
  text += writer->on_event(event(ReasoningText{"so", {}}));
  text += writer->on_event(event(ended(AnswerEndReason::kStop)));
  const OrderedJson message = Client().take(text).message;
  EXPECT_EQ(message["content"].size(), 1U);
  EXPECT_EQ(message["usage"]["input_tokens"], 32) << "message_delta brings the true counts";
  EXPECT_EQ(writer->keep_alive(), "") << "nothing follows the end";
}

// A client that ran what came so far would run something that nobody asked for.
TEST(MessagesAnswer, CallsThatAreNoObjectsEndTheStreamWithAnError) {
  for (const char* arguments : {"{\"a\": tru3}", "[1]", "{\"a\":1", "{\"path\":\"/tmp/x", "nope"}) {
    const std::vector<AnswerEvent> events = {event(AnswerStarted{1, 0}),
                                             event(CallBegin{0, "t", "rm"}),
                                             event(CallArguments{0, arguments}), event(CallEnd{0}),
                                             event(ended(AnswerEndReason::kToolCalls))};
    const Accumulated got = Client().take(stream_of(events));
    EXPECT_EQ(got.error["type"], "api_error") << arguments;
    EXPECT_FALSE(got.has_ended);
    std::string error;
    const auto writer = make_messages_whole(identity());
    EXPECT_TRUE(test::whole(*writer, events, &error).is_null());
    EXPECT_EQ(got.error["message"], error);
  }
  // Never ended, although no limit cut it off.
  const Accumulated got = Client().take(
      stream_of({event(AnswerStarted{1, 0}), event(CallBegin{0, "t", "rm"}),
                 event(CallArguments{0, "{}"}), event(ended(AnswerEndReason::kStop))}));
  EXPECT_FALSE(got.error.is_null());
}

TEST(MessagesAnswer, NumbersOfAnySizeStayExact) {
  const auto writer = make_messages_whole(identity());
  for (const AnswerEvent& one :
       {event(AnswerStarted{1, 0}), event(CallBegin{0, "t", "f"}),
        event(CallArguments{0, R"({"n":123456789012345678901234567890,"x":1e999})"}),
        event(CallEnd{0}), event(ended(AnswerEndReason::kToolCalls))}) {
    writer->on_event(one);
  }
  const auto result = writer->finish();
  EXPECT_NE(std::get<std::string>(result).find(
                R"("input":{"n":123456789012345678901234567890,"x":1e999})"),
            std::string::npos);
}

TEST(MessagesAnswer, BrokenUtf8AndHostileNamesAreWritten) {
  MessageIdentity odd = identity();
  odd.model = "\"content\":[]\xff\n";
  const auto writer = make_messages_whole(odd);
  const OrderedJson message =
      test::whole(*writer, {event(AnswerStarted{1, 0}), event(ContentText{"a\xff", {}}),
                            event(ended(AnswerEndReason::kStop))});
  EXPECT_EQ(message["content"][0]["text"], "a\xef\xbf\xbd");
}

}  // namespace
}  // namespace moepack::anthropic_answer_test
