#include "runtime/serve/responses_answer.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/runtime/serve/answer_script.h"

namespace moepack::responses_answer_test {
namespace {

using test::ended;
using test::event;
using test::json;
using test::ServerEvent;

ResponseIdentity identity() {
  ResponseIdentity identity;
  identity.id = "resp_01";
  identity.model = "m";
  identity.unix_seconds = 1795000000;
  identity.echo = json(R"({"instructions":"i","tools":[{"type":"function","name":"f"}]})");
  return identity;
}

// What a strict client makes of a stream: fails the test wherever the real ones would fail.
class Client {
 public:
  // The response of the last event.
  OrderedJson take(const std::string& stream) {
    for (const ServerEvent& one : test::parse_stream(stream)) {
      EXPECT_TRUE(last_.is_null()) << one.name << " after the end";
      EXPECT_EQ(one.data["sequence_number"], sequence_++);
      take(one);
    }
    EXPECT_FALSE(last_.is_null()) << "no end";
    return last_;
  }
  // Items of output_item.done, which Codex builds its history from.
  const OrderedJson& done() const { return done_; }
  std::size_t begun() const { return begun_; }

 private:
  void take(const ServerEvent& one) {
    const std::string& name = one.name;
    if (sequence_ == 1) {
      EXPECT_EQ(name, "response.created");
      EXPECT_TRUE(one.data["response"]["output"].is_array());
      return;
    }
    if (name == "response.in_progress") {
      EXPECT_EQ(one.data["response"]["id"], "resp_01");
      return;
    }
    if (name == "response.completed" || name == "response.incomplete" ||
        name == "response.failed") {
      last_ = one.data["response"];
      EXPECT_EQ("response." + last_["status"].get<std::string>(), name);
      EXPECT_FALSE(is_open_ && name == "response.completed");
      return;
    }
    if (name == "response.output_item.added") {
      EXPECT_FALSE(is_open_);
      EXPECT_EQ(one.data["output_index"], begun_);
      item_ = one.data["item"];
      EXPECT_TRUE(ids_.insert({item_["id"], 1}).second) << "an id came twice";
      ++begun_;
      is_open_ = true;
      return;
    }
    ASSERT_TRUE(is_open_) << name;
    EXPECT_EQ(one.data["output_index"], begun_ - 1);
    if (name == "response.output_item.done") {
      check_done(one.data["item"]);
    } else {
      EXPECT_EQ(one.data["item_id"], item_["id"]);
      take_part(one);
    }
  }
  void take_part(const ServerEvent& one) {
    const std::string& name = one.name;
    if (name == "response.content_part.added") {
      EXPECT_EQ(item_["type"], "message");
      item_["content"].push_back(one.data["part"]);
    } else if (name == "response.output_text.delta") {
      ASSERT_EQ(item_["content"].size(), 1U);
      OrderedJson& text = item_["content"][0]["text"];
      text = text.get<std::string>() + one.data["delta"].get<std::string>();
      EXPECT_TRUE(one.data["logprobs"].is_array());
    } else if (name == "response.output_text.done") {
      EXPECT_EQ(one.data["text"], item_["content"][0]["text"]);
    } else if (name == "response.content_part.done") {
      EXPECT_EQ(one.data["part"]["text"], item_["content"][0]["text"]);
    } else if (name == "response.reasoning_text.delta") {
      EXPECT_EQ(item_["type"], "reasoning");
      thoughts_ += one.data["delta"].get<std::string>();
    } else if (name == "response.reasoning_text.done") {
      EXPECT_EQ(one.data["text"], thoughts_);
    } else if (name == "response.function_call_arguments.delta") {
      OrderedJson& arguments = item_["arguments"];
      arguments = arguments.get<std::string>() + one.data["delta"].get<std::string>();
    } else {
      ASSERT_EQ(name, "response.function_call_arguments.done");
      EXPECT_EQ(one.data["arguments"], item_["arguments"]);
      EXPECT_EQ(one.data["name"], item_["name"]);
    }
  }
  void check_done(const OrderedJson& item) {
    is_open_ = false;
    EXPECT_EQ(item["id"], item_["id"]);
    EXPECT_EQ(item["type"], item_["type"]);
    if (item["type"] == "message") {
      EXPECT_EQ(item["content"][0]["text"], item_["content"][0]["text"]);
    } else if (item["type"] == "reasoning") {
      EXPECT_EQ(item["content"][0]["text"], thoughts_);
    } else {
      EXPECT_EQ(item["arguments"], item_["arguments"]);
      EXPECT_TRUE(OrderedJson::accept(item["arguments"].get<std::string>()));
    }
    thoughts_.clear();
    done_.push_back(item);
  }

  std::size_t sequence_ = 0;
  std::size_t begun_ = 0;
  bool is_open_ = false;
  OrderedJson item_, last_;
  OrderedJson done_ = OrderedJson::array();
  std::string thoughts_;
  std::map<std::string, int> ids_;
};

const std::vector<AnswerEvent> kAnswer = {
    event(AnswerStarted{412, 380}),
    event(ReasoningText{"I need it.", {}}),
    event(ContentText{"Look", {}}),
    event(ContentText{"ing.", {}}),
    event(CallBegin{0, "call_1", "get_weather"}),
    event(CallArguments{0, "{\"city\":"}),
    event(CallArguments{0, "\"Rome\"}"}),
    event(CallEnd{0}),
    event(CallBegin{1, "call_2", "now"}),
    event(CallEnd{1}),
    event(ended(AnswerEndReason::kToolCalls)),
};

TEST(ResponsesAnswer, WholeObject) {
  const auto writer = make_responses_whole(identity());
  const OrderedJson response = test::whole(*writer, kAnswer);
  EXPECT_EQ(response["id"], "resp_01");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["created_at"], 1795000000);
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["instructions"], "i");
  EXPECT_TRUE(response["error"].is_null());
  EXPECT_EQ(
      response["output"].dump(),
      R"([{"type":"reasoning","id":"rs_01_0","summary":[],"content":[{"type":"reasoning_text",)"
      R"("text":"I need it."}]},{"type":"message","id":"msg_01_1","role":"assistant",)"
      R"("status":"completed","content":[{"type":"output_text","text":"Looking.",)"
      R"("annotations":[],"logprobs":[]}]},{"type":"function_call","id":"fc_01_2",)"
      R"("call_id":"call_1","name":"get_weather","arguments":"{\"city\":\"Rome\"}",)"
      R"("status":"completed"},{"type":"function_call","id":"fc_01_3","call_id":"call_2",)"
      R"("name":"now","arguments":"{}","status":"completed"}])");
  EXPECT_EQ(response["usage"].dump(),
            R"({"input_tokens":412,"input_tokens_details":{"cached_tokens":380,)"
            R"("cache_write_tokens":0},"output_tokens":37,"output_tokens_details":)"
            R"({"reasoning_tokens":12},"total_tokens":449})");
}

TEST(ResponsesAnswer, StreamIsTheSequenceOfTheProtocol) {
  const auto writer = make_responses_stream(identity());
  std::vector<std::string> names;
  for (const ServerEvent& one : test::parse_stream(test::streamed(*writer, kAnswer))) {
    names.push_back(one.name.substr(9));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"created",
                                             "in_progress",
                                             "output_item.added",
                                             "reasoning_text.delta",
                                             "reasoning_text.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "content_part.added",
                                             "output_text.delta",
                                             "output_text.delta",
                                             "output_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "completed"}));
}

// Properties of any answer: the stream is well-formed with keep-alives at any time, and its last
// event, the items that were done and the whole object are one.
TEST(ResponsesAnswer, StreamAndWholeAreOneAnswer) {
  std::mt19937_64 random(9);
  int failures = 0;
  int cuts = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::vector<AnswerEvent> events = test::random_answer(random);
    const auto stream = make_responses_stream(identity());
    Client client;
    const OrderedJson last =
        client.take(test::streamed(*stream, events, round % 2 == 0 ? &random : nullptr));
    std::string error;
    const auto writer = make_responses_whole(identity());
    const OrderedJson expected = test::whole(*writer, events, &error);
    if (expected.is_null()) {
      ++failures;
      EXPECT_EQ(last["status"], "failed");
      EXPECT_EQ(last["error"]["message"], error);
      continue;
    }
    EXPECT_EQ(last.dump(), expected.dump());
    EXPECT_EQ(client.done().dump(), expected["output"].dump());
    if (client.begun() > client.done().size()) {
      ++cuts;
      EXPECT_EQ(client.begun(), client.done().size() + 1);
      EXPECT_EQ(last["incomplete_details"]["reason"], "max_output_tokens");
    }
    EXPECT_EQ(stream->keep_alive(), "") << "nothing follows the end";
  }
  EXPECT_GT(failures, 30);
  EXPECT_GT(cuts, 30);
}

TEST(ResponsesAnswer, LimitsMakeIt) {
  for (const AnswerEndReason reason : {AnswerEndReason::kLength, AnswerEndReason::kContext}) {
    const auto writer = make_responses_whole(identity());
    const OrderedJson response = test::whole(
        *writer, {event(AnswerStarted{1, 0}), event(ContentText{"a", {}}), event(ended(reason))});
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(response["output"][0]["status"], "incomplete");
  }
}

TEST(ResponsesAnswer, CallsThatNeverEndedFail) {
  const auto writer = make_responses_stream(identity());
  const OrderedJson last = Client().take(
      test::streamed(*writer, {event(AnswerStarted{1, 0}), event(CallBegin{0, "c", "rm"}),
                               event(CallArguments{0, "{\"a\":"}), event(ContentText{"x", {}}),
                               event(ended(AnswerEndReason::kStop))}));
  EXPECT_EQ(last["error"]["code"], "server_error");
}

TEST(ResponsesAnswer, Logprobs) {
  const TokenLogprobs token{{5, "H\xc3", -0.5F}, {{5, "H\xc3", -0.5F}, {6, "J", -1.0F}}};
  const std::vector<AnswerEvent> events = {event(AnswerStarted{1, 0}),
                                           event(ContentText{"H", {token}}),
                                           event(ended(AnswerEndReason::kStop))};
  const auto writer = make_responses_whole(identity());
  const OrderedJson logprobs = test::whole(*writer, events)["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 1U);
  EXPECT_EQ(logprobs[0]["token"], "H\xef\xbf\xbd");
  EXPECT_EQ(logprobs[0]["bytes"].dump(), "[72,195]");
  EXPECT_EQ(logprobs[0]["logprob"], -0.5);
  EXPECT_EQ(logprobs[0]["top_logprobs"][1]["token"], "J");
  const auto stream = make_responses_stream(identity());
  for (const ServerEvent& one : test::parse_stream(test::streamed(*stream, events))) {
    if (one.name == "response.output_text.delta") {
      EXPECT_EQ(one.data["logprobs"].dump(), logprobs.dump());
    }
  }
}

// The requests of agents are long; what is sent every few seconds must not repeat them.
TEST(ResponsesAnswer, KeepAlivesAreShort) {
  const auto writer = make_responses_stream(identity());
  EXPECT_NE(writer->begin().find("\"instructions\":\"i\""), std::string::npos);
  const std::string text = writer->keep_alive();
  EXPECT_TRUE(text.starts_with("event: response.in_progress\n"));
  EXPECT_EQ(text.find("\"instructions\":\"i\""), std::string::npos);
}

}  // namespace
}  // namespace moepack::responses_answer_test
