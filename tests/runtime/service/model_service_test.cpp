// The service over the demo model: conversations with tools, agents beside each other, and what is
// refused before anything is computed.
#include "runtime/service/model_service.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/service/answer_grammar.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"

namespace moepack::model_service_test {
namespace {

// An answer as one who reads its events sees it.
class Reader {
 public:
  AnswerSink sink() {
    return
        [this](AnswerEvent event) { std::visit([this](auto& body) { note(body); }, event.body); };
  }
  // After the end.
  AnswerEnd end() { return ended_.get_future().get(); }

  std::string content;
  std::vector<ToolCall> calls;
  std::uint64_t progress = 0;

 private:
  void note(const AnswerQueued&) {}
  void note(const AnswerStarted&) {}
  void note(const PromptProgress& part) { progress = part.done; }
  void note(const ReasoningText&) {}
  void note(const ContentText& text) { content += text.text; }
  void note(const CallBegin& call) { calls.push_back({call.id, call.name, {}}); }
  void note(const CallArguments& part) { calls.back().arguments += part.fragment; }
  void note(const CallEnd&) {}
  void note(const AnswerEnd& end) { ended_.set_value(end); }

  std::promise<AnswerEnd> ended_;
};

ToolSpec tool(const std::string& name, const std::string& argument, const std::string& type) {
  ToolSpec spec;
  spec.name = name;
  spec.parameters = {{"type", "object"}, {"properties", {{argument, {{"type", type}}}}}};
  spec.wire = {{"type", "function"},
               {"function", {{"name", name}, {"parameters", spec.parameters}}}};
  return spec;
}

ChatMessage message(ChatRole role, std::string content) {
  ChatMessage made;
  made.role = role;
  made.content = std::move(content);
  return made;
}

ChatRequest question(const std::string& text) {
  ChatRequest request;
  request.conversation.messages.push_back(message(ChatRole::kUser, text));
  request.options.sampling.temperature = 0;
  request.options.max_tokens = 30;
  return request;
}

class ModelServiceTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSlice = 64;

  void SetUp() override {
    model_ = test::convert_for_test(test::demo_mlx_model(), dir_);
    ASSERT_FALSE(model_.empty());
    open(2, 3);
  }
  void open(std::uint32_t parallel, std::uint32_t sequences) {
    service_.reset();
    EngineOptions options = test::fast_options(model_);
    options.activations = ActivationType::kInt8;
    options.context = 4096;
    options.sequences = sequences;
    ASSERT_OK_AND_ASSIGN(auto engine, Engine::open(options));
    ASSERT_OK_AND_ASSIGN(Tokenizer tokenizer, Tokenizer::load(model_ / "tokenizer.json"));
    ModelServiceOptions service;
    service.model = model_;
    service.chat_template = chat_template_;
    service.scheduler.parallel = parallel;
    service.scheduler.slice_tokens = kSlice;
    ASSERT_OK_AND_ASSIGN(service_,
                         ModelService::open(std::move(engine), std::move(tokenizer), service));
  }

  // Writes it into the model's tokenizer.json.
  void begin_texts_with(const std::string& token) {
    const std::filesystem::path path = model_ / "tokenizer.json";
    std::ifstream in(path);
    auto json = nlohmann::json::parse(in);
    std::int32_t id = -1;
    for (const auto& added : json["added_tokens"]) {
      if (added["content"] == token) id = added["id"].get<std::int32_t>();
    }
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", token}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{token, {{"id", token}, {"ids", {id}}}}}}};
    std::filesystem::remove(path);  // it may be a link
    std::ofstream(path) << json.dump();
  }

  struct Answer {
    std::shared_ptr<Reader> reader;
    std::unique_ptr<RunningAnswer> running;
    AnswerEnd end;
  };
  template <typename Request>
  Answer begin(const Request& request) {
    Answer answer{std::make_shared<Reader>(), nullptr, {}};
    auto started = service_->start(request, [reader = answer.reader, sink = answer.reader->sink()](
                                                AnswerEvent event) { sink(std::move(event)); });
    if (auto* refusal = std::get_if<Refusal>(&started)) {
      ADD_FAILURE() << refusal->message;
      return answer;
    }
    answer.running = std::move(std::get<std::unique_ptr<RunningAnswer>>(started));
    return answer;
  }
  template <typename Request>
  Answer ask(const Request& request) {
    Answer answer = begin(request);
    if (answer.running != nullptr) answer.end = answer.reader->end();
    return answer;
  }

  test::TempDir dir_;
  std::filesystem::path model_;
  std::filesystem::path chat_template_;  // empty: the model's own
  std::unique_ptr<ModelService> service_;
};

// The recorded shape of an agent: a long system prompt, tools, a growing history of calls and
// results, another question now and then, and small requests of other kinds in between.
class Agent {
 public:
  Agent() {
    std::string rules = "You help with files and timers.";
    for (int i = 0; i < 30; ++i) rules += " Rule " + std::to_string(i) + ": be brief and exact.";
    request_ = question("List the files in /home/ada/sketch.");
    request_.conversation.messages.insert(request_.conversation.messages.begin(),
                                          message(ChatRole::kSystem, rules));
    request_.conversation.tools = {tool("list_files", "path", "string"),
                                   tool("set_timer", "minutes", "integer")};
    request_.options.max_tokens = 80;
  }
  ChatRequest request(std::size_t turn) {
    request_.tool_choice.kind =
        turn % 4 == 3 ? ToolChoice::Kind::kAuto : ToolChoice::Kind::kRequired;
    request_.options.sampling.temperature = turn % 2 == 0 ? 0 : 0.7F;
    request_.options.sampling.seed = turn;
    return request_;
  }
  void take(std::size_t turn, const Reader& answer) {
    ChatMessage said = message(ChatRole::kAssistant, answer.content);
    said.calls = answer.calls;
    request_.conversation.messages.push_back(said);
    for (const ToolCall& call : answer.calls) {
      ChatMessage result = message(ChatRole::kTool, "ok " + std::to_string(turn));
      result.tool_call_id = call.id;
      request_.conversation.messages.push_back(result);
    }
    if (answer.calls.empty() || turn % 5 == 4) {
      request_.conversation.messages.push_back(
          message(ChatRole::kUser, "Now set a timer of " + std::to_string(turn) + " minutes."));
    }
  }

 private:
  ChatRequest request_;
};

TEST_F(ModelServiceTest, AnAgentsTurnComputesWhatIsNew) {
  Agent agent;
  std::uint64_t known = 0;  // tokens that the turn before has left
  std::uint64_t computed_at_first = 0;
  std::size_t calls = 0;
  for (std::size_t turn = 0; turn < 30; ++turn) {
    const Answer answer = ask(agent.request(turn));
    ASSERT_NE(answer.running, nullptr);
    ASSERT_TRUE(answer.end.reason == AnswerEndReason::kStop ||
                answer.end.reason == AnswerEndReason::kToolCalls ||
                answer.end.reason == AnswerEndReason::kLength)
        << answer.end.status.message();
    const AnswerUsage& usage = answer.end.usage;
    const std::uint64_t computed = usage.prompt_tokens - usage.cached_tokens;
    if (turn == 0) {
      computed_at_first = computed;
      EXPECT_GT(computed, 400U);
    } else {
      EXPECT_LE(computed, usage.prompt_tokens - known + kSlice) << "turn " << turn;
    }
    RecordProperty("turn_" + std::to_string(turn), std::to_string(usage.prompt_tokens) +
                                                       " tokens, computed " +
                                                       std::to_string(computed) + ", new " +
                                                       std::to_string(usage.prompt_tokens - known));
    known = usage.prompt_tokens + usage.completion_tokens;
    calls += answer.reader->calls.size();
    agent.take(turn, *answer.reader);
    if (turn % 3 == 2) {
      const Answer title = ask(question("A title for chat " + std::to_string(turn) + ", please"));
      EXPECT_LT(title.end.usage.prompt_tokens, 60U);
    }
  }
  EXPECT_GT(calls, 20U);
  const ServiceStats stats = service_->stats();
  EXPECT_LT(stats.prompt_tokens, computed_at_first + 30 * (kSlice + 60));
  EXPECT_GT(stats.cached_tokens, 10 * computed_at_first);
}

// Greedy: agents and questions beside each other get what each gets alone, by a fresh service.
TEST_F(ModelServiceTest, EightClientsGetWhatEachGetsAlone) {
  std::vector<ChatRequest> requests;
  for (int i = 0; i < 8; ++i) {
    if (i % 2 == 0) {
      Agent agent;
      requests.push_back(agent.request(4));
      requests.back().conversation.messages.back().content +=
          " And " + std::to_string(i) + " more.";
    } else {
      requests.push_back(
          question("What is " + std::to_string(i) + " and " + std::to_string(2 * i)));
    }
  }
  open(8, 9);
  std::vector<Answer> together;
  for (const ChatRequest& request : requests) together.push_back(begin(request));
  for (Answer& answer : together) answer.end = answer.reader->end();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    open(1, 1);
    const Answer alone = ask(requests[i]);
    EXPECT_EQ(together[i].reader->content, alone.reader->content) << i;
    ASSERT_EQ(together[i].reader->calls.size(), alone.reader->calls.size()) << i;
    for (std::size_t c = 0; c < alone.reader->calls.size(); ++c) {
      EXPECT_EQ(together[i].reader->calls[c].arguments, alone.reader->calls[c].arguments);
    }
    EXPECT_EQ(together[i].end.usage.completion_tokens, alone.end.usage.completion_tokens);
  }
}

TEST_F(ModelServiceTest, RequiredCallsAreJson) {
  for (const char* text : {"Set a timer of 7 minutes.", "hello", "List the files in /tmp."}) {
    ChatRequest request = question(text);
    request.conversation.tools = {tool("list_files", "path", "string"),
                                  tool("set_timer", "minutes", "integer")};
    request.tool_choice.kind = ToolChoice::Kind::kRequired;
    request.tool_choice.is_parallel = false;
    request.options.max_tokens = 200;
    const Answer answer = ask(request);
    ASSERT_EQ(answer.reader->calls.size(), 1U) << text;
    EXPECT_EQ(answer.end.reason, AnswerEndReason::kToolCalls);
    EXPECT_TRUE(nlohmann::json::accept(answer.reader->calls[0].arguments))
        << answer.reader->calls[0].arguments;
  }
}

// An agent asks for structured answers in every turn: its model still calls.
TEST_F(ModelServiceTest, AFormOfTheAnswerLeavesCallsAlone) {
  ChatRequest request = question("Set a timer of 7 minutes.");
  request.conversation.tools = {tool("list_files", "path", "string"),
                                tool("set_timer", "minutes", "integer")};
  request.format.kind = ResponseFormat::Kind::kJsonSchema;
  request.format.schema = {{"enum", {"done"}}};
  request.options.max_tokens = 200;
  const Answer calls = ask(request);
  ASSERT_EQ(calls.reader->calls.size(), 1U) << calls.reader->content;
  EXPECT_EQ(calls.end.reason, AnswerEndReason::kToolCalls);
  request.tool_choice.kind = ToolChoice::Kind::kNone;
  const Answer answers = ask(request);
  EXPECT_TRUE(answers.reader->calls.empty());
  EXPECT_EQ(answers.reader->content, "\"done\"");
}

TEST_F(ModelServiceTest, AFormGoesOnFromWhatIsBegun) {
  ChatRequest request = question("How many files are there?");
  request.format.kind = ResponseFormat::Kind::kJsonSchema;
  request.format.schema = OrderedJson::parse(
      R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})");
  request.conversation.continues_last = true;
  request.conversation.add_generation_prompt = false;
  request.conversation.messages.push_back(message(ChatRole::kAssistant, "{\"a\":"));
  const std::string whole = "{\"a\":" + ask(request).reader->content;
  const auto json = OrderedJson::parse(whole, nullptr, false);
  ASSERT_TRUE(json.is_object()) << whole;
  EXPECT_TRUE(json["a"].is_number_integer()) << whole;
  request.conversation.messages.back().content = "Gladly: ";
  const auto started = service_->start(request, [](const AnswerEvent&) {});
  const auto* refusal = std::get_if<Refusal>(&started);
  ASSERT_NE(refusal, nullptr);
  EXPECT_EQ(refusal->kind, Refusal::Kind::kInvalid);
  EXPECT_EQ(refusal->parameter, "messages");
}

// The form was promised, calls were only offered. What is not heeded is told once.
TEST(AnswerGrammar, AFormOutlivesToolsThatAreTooLarge) {
  ChatRequest request;
  request.format.kind = ResponseFormat::Kind::kJsonSchema;
  request.format.schema = OrderedJson::parse(R"({"type":"object","not":{"required":["x"]}})");
  for (int i = 0; i < 40; ++i) {
    ToolSpec large;
    large.name = "tool_" + std::to_string(i);
    OrderedJson texts = OrderedJson::array();
    for (int k = 0; k < 100; ++k) texts.push_back(std::to_string(k) + std::string(200, 'x'));
    large.parameters = {{"type", "object"}, {"properties", {{"a", {{"enum", texts}}}}}};
    request.conversation.tools.push_back(std::move(large));
  }
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kHarmony}) {
    std::vector<std::string> warnings;
    const auto grammar = answer_grammar(request, format, &warnings);
    ASSERT_OK(grammar);
    EXPECT_NE(grammar.value(), nullptr);
    ASSERT_EQ(warnings.size(), 2U) << warnings.front();
    EXPECT_NE(warnings[0].find("not"), std::string::npos);
    EXPECT_NE(warnings[1].find("no calls"), std::string::npos);
    ChatRequest wrong = request;
    wrong.format.schema = {{"enum", OrderedJson::array()}};
    EXPECT_EQ(answer_grammar(wrong, format, nullptr).status().code(), StatusCode::kInvalidArgument);
  }
}

// A call cannot go on from the text of an assistant's message.
TEST_F(ModelServiceTest, ARequiredCallDoesNotGoOnFromAnAnswer) {
  chat_template_ = dir_.path() / "thinking.jinja";
  std::ofstream(chat_template_)
      << "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
         "<|im_end|>\n{% endfor %}{% if tools %}<tool_call>{% endif %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
  open(2, 3);
  ChatRequest request = question("Set a timer of 7 minutes.");
  request.conversation.tools = {tool("set_timer", "minutes", "integer")};
  request.tool_choice.kind = ToolChoice::Kind::kRequired;
  request.conversation.continues_last = true;
  request.conversation.add_generation_prompt = false;
  request.options.max_tokens = 1;
  const auto refusal_behind = [&](const std::string& begun) -> std::optional<Refusal> {
    ChatRequest asked = request;
    asked.conversation.messages.push_back(message(ChatRole::kAssistant, begun));
    auto started = service_->start(asked, [](const AnswerEvent&) {});
    auto* refusal = std::get_if<Refusal>(&started);
    return refusal == nullptr ? std::nullopt : std::optional(std::move(*refusal));
  };
  for (const char* begun : {"Gladly: ", "<tool_call>\n{\"name\":", "{", "<think>I must"}) {
    const auto refusal = refusal_behind(begun);
    ASSERT_TRUE(refusal.has_value()) << begun;
    EXPECT_EQ(refusal->kind, Refusal::Kind::kInvalid);
    EXPECT_EQ(refusal->parameter, "messages");
    EXPECT_NE(refusal->message.find("tool_choice"), std::string::npos) << refusal->message;
    EXPECT_NE(refusal->message.find("messages"), std::string::npos) << refusal->message;
  }
  for (const char* begun : {"\n", "<think>I must</think>\n\n"}) {
    const auto refusal = refusal_behind(begun);
    EXPECT_FALSE(refusal.has_value()) << begun << refusal->message;
  }
  request.tool_choice.kind = ToolChoice::Kind::kAuto;
  EXPECT_FALSE(refusal_behind("Gladly: ").has_value());
}

TEST_F(ModelServiceTest, EchoTellsEveryTokensProbability) {
  CompletionRequest request;
  request.prompt = "The quick brown fox";
  request.options.max_tokens = 0;
  request.options.top_logprobs = 1;
  request.options.sampling.temperature = 0;
  request.echo = true;
  const Answer answer = ask(request);
  EXPECT_EQ(answer.reader->content, "The quick brown fox");
  EXPECT_EQ(answer.end.usage.completion_tokens, 0U);
}

TEST_F(ModelServiceTest, WhatCannotBeIsRefusedAtOnce) {
  ChatRequest request = question(std::string(40000, 'x'));
  const auto started = service_->start(request, [](const AnswerEvent&) { FAIL(); });
  const auto* refusal = std::get_if<Refusal>(&started);
  ASSERT_NE(refusal, nullptr);
  EXPECT_EQ(refusal->kind, Refusal::Kind::kContextLength);
  EXPECT_EQ(refusal->context, 4096U);
  EXPECT_GT(refusal->prompt_tokens, 4096U);
}

// Before it is turned into tokens, which takes many times its memory.
TEST_F(ModelServiceTest, ATextThatCannotFitIsNotTurnedIntoTokens) {
  const std::string text((16U << 20U) + 1, ' ');
  CompletionRequest completion;
  completion.prompt = text;
  const ChatRequest chat = question(text);
  for (const auto& started : {service_->start(chat, [](const AnswerEvent&) { FAIL(); }),
                              service_->start(completion, [](const AnswerEvent&) { FAIL(); })}) {
    const auto* refusal = std::get_if<Refusal>(&started);
    ASSERT_NE(refusal, nullptr);
    EXPECT_EQ(refusal->kind, Refusal::Kind::kContextLength);
    EXPECT_GE(refusal->prompt_tokens, 4096U);
    EXPECT_NE(refusal->message.find(" bytes"), std::string::npos) << refusal->message;
  }
  const auto ids = service_->tokenize(text, {});
  const auto* refusal = std::get_if<Refusal>(&ids);
  ASSERT_NE(refusal, nullptr);
  EXPECT_EQ(refusal->kind, Refusal::Kind::kInvalid);
  EXPECT_TRUE(std::holds_alternative<std::vector<std::int32_t>>(
      service_->tokenize(std::string_view(text).substr(0, 1U << 20U), {})));
}

// A tokenizer that puts a token before texts does so for raw prompts, and for nothing else.
TEST_F(ModelServiceTest, TextsBeginAsTheTokenizerSays) {
  const auto start = [&](CompletionRequest request) {
    request.options.max_tokens = 1;
    request.echo = true;
    const Answer answer = ask(request);
    return std::pair(answer.end.usage.prompt_tokens, answer.reader->content);
  };
  CompletionRequest text;
  text.prompt = "Hello world";
  CompletionRequest marked;
  marked.prompt = "<|im_start|>Hello world";
  const ChatRequest chat = question("Hi");
  const auto plain = start(text).first;
  const auto plain_chat = ask(chat).end.usage.prompt_tokens;

  begin_texts_with("<|im_start|>");
  open(2, 3);
  const auto begun = start(text);
  EXPECT_EQ(begun.first, plain + 1);
  EXPECT_TRUE(begun.second.starts_with("Hello world")) << "nobody wrote the token";
  EXPECT_EQ(start(marked).first, plain + 1) << "the token is there already";
  EXPECT_TRUE(start(marked).second.starts_with("<|im_start|>Hello world"));
  EXPECT_EQ(ask(chat).end.usage.prompt_tokens, plain_chat);
  const auto tokens = [&](const TextReading& reading) {
    return std::get<std::vector<std::int32_t>>(service_->tokenize("Hello world", reading));
  };
  EXPECT_EQ(tokens({}).size(), plain);
  EXPECT_EQ(tokens({.begins_text = true}).size(), plain + 1);
  CompletionRequest ids;
  ids.prompt = tokens({});
  EXPECT_EQ(start(ids).first, plain);
}

TEST_F(ModelServiceTest, DroppingAnAnswerCancelsIt) {
  ChatRequest request = question("Tell me a story.");
  request.options.max_tokens = 3000;
  request.options.ignores_end = true;
  Answer answer = begin(request);
  ASSERT_NE(answer.running, nullptr);
  answer.running.reset();
  EXPECT_EQ(answer.reader->end().reason, AnswerEndReason::kCancelled);
  EXPECT_LT(service_->stats().decode_tokens, 2900U);
}

// Whether it is to think is part of the prompt.
TEST_F(ModelServiceTest, CountsThePromptThatIsAnswered) {
  chat_template_ = dir_.path() / "thinking.jinja";
  std::ofstream(chat_template_)
      << "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
         "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
         "<|im_start|>assistant\n{% if enable_thinking is defined and not "
         "enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n"
         "{% endif %}{% endif %}";
  open(2, 3);
  std::set<std::uint64_t> counts;
  for (const std::optional<bool> thinks :
       {std::optional<bool>(), std::optional(true), std::optional(false)}) {
    ChatRequest request = question("hi");
    request.thinks = thinks;
    const auto rendered = service_->render(request);
    ASSERT_TRUE(std::holds_alternative<RenderedPrompt>(rendered));
    const std::uint64_t count = std::get<RenderedPrompt>(rendered).ids.size();
    EXPECT_EQ(ask(request).end.usage.prompt_tokens, count);
    counts.insert(count);
  }
  EXPECT_EQ(counts.size(), 2U);
}

// Hybrid families open their thoughts themselves: a form of the answer must leave them that, unless
// the request or the template says that there are none.
TEST_F(ModelServiceTest, ThinksBeforeAnAnswerOfAForm) {
  chat_template_ = dir_.path() / "hybrid.jinja";
  std::ofstream(chat_template_)
      << "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
         "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
         "<|im_start|>assistant\n{% if enable_thinking is defined and not "
         "enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";
  open(2, 3);
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(model_ / "tokenizer.json"));
  ChatRequest request = question("An object, please.");
  request.format.kind = ResponseFormat::Kind::kJsonObject;
  request.options.max_tokens = 60;
  request.options.sampling.logit_bias = {{tokenizer.added_token("<think>"), 1000}};
  request.thinking_budget = 3;
  const Answer thought = ask(request);
  EXPECT_GT(thought.end.usage.reasoning_tokens, 0U);
  EXPECT_TRUE(OrderedJson::parse(thought.reader->content, nullptr, false).is_object())
      << thought.reader->content;
  request.thinks = false;
  const Answer plain = ask(request);
  EXPECT_EQ(plain.end.usage.reasoning_tokens, 0U);
  EXPECT_TRUE(OrderedJson::parse(plain.reader->content, nullptr, false).is_object())
      << plain.reader->content;
}

// Calls are only offered where a form is promised.
TEST_F(ModelServiceTest, AFormHoldsWithoutCallsWhereToolsAreTooLarge) {
  ChatRequest request = question("An object, please.");
  request.format.kind = ResponseFormat::Kind::kJsonObject;
  request.options.max_tokens = 60;
  request.thinks = false;
  OrderedJson properties = OrderedJson::object();
  for (int i = 0; i < 1000; ++i)
    properties["argument_" + std::to_string(i)] = {{"type", "integer"}};
  for (int i = 0; i < 30; ++i) {
    ToolSpec large = tool("tool_" + std::to_string(i), "argument", "integer");
    large.parameters["properties"] = properties;
    request.conversation.tools.push_back(large);
  }
  const Answer answer = ask(request);
  EXPECT_TRUE(OrderedJson::parse(answer.reader->content, nullptr, false).is_object())
      << answer.reader->content;
}

// Also the token that a prompt's own forward gives, which no step of generation computes.
TEST_F(ModelServiceTest, CountsEveryTokenOfAnAnswer) {
  ChatRequest request = question("hi");
  request.options.max_tokens = 3;
  const std::uint64_t told =
      ask(request).end.usage.completion_tokens + ask(question("and")).end.usage.completion_tokens;
  EXPECT_GT(told, 0U);
  const auto wait_until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (service_->stats().requests_running > 0 && std::chrono::steady_clock::now() < wait_until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(service_->stats().answer_tokens, told);
  EXPECT_LT(service_->stats().decode_tokens, told);
}

TEST_F(ModelServiceTest, TellsOfItselfWithoutWaiting) {
  EXPECT_EQ(service_->model().parallel, 2U);
  EXPECT_TRUE(service_->model().can_call_tools);
  EXPECT_EQ(service_->slots().size(), 3U);
  const auto rendered = service_->render(question("hi"));
  ASSERT_TRUE(std::holds_alternative<RenderedPrompt>(rendered));
  EXPECT_EQ(std::get<RenderedPrompt>(rendered).text.text,
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  ask(question("hi"));
  const ExpertMap map = service_->expert_map();
  EXPECT_EQ(map.warmth.size(), std::size_t{map.layers} * map.experts);
}

}  // namespace
}  // namespace moepack::model_service_test
