// Frames of calls, with texts as the families' templates and models write them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/chat/output_parser.h"
#include "tests/runtime/constrain/constrain_support.h"
#include "tests/support/status_matchers.h"

namespace moepack::tool_grammar_test {
namespace {

using test::accepts;
using test::kEndId;
using test::make_vocabulary;
using test::tokenised;

ToolSpec tool(const std::string& name, const std::string& parameters) {
  ToolSpec spec;
  spec.name = name;
  if (!parameters.empty()) spec.parameters = OrderedJson::parse(parameters);
  return spec;
}

std::vector<ToolSpec> tools() {
  return {tool("get_weather", R"({"type":"object","properties":{
              "city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14},
              "unit":{"enum":["c","f"]},"exact":{"type":"boolean"},
              "tags":{"type":"array","items":{"type":"string"}}},"required":["city"]})"),
          tool("get_time", ""), tool("get", R"({"properties":{"x":{"type":["number","null"]}}})")};
}

struct Family {
  ToolFormat format;
  std::vector<std::string> markers;  // added tokens of its vocabulary
  std::string one;                   // a call of get_weather
  std::string two;                   // that and a call of get_time
  std::vector<std::string> wrong;
};

std::vector<Family> families() {
  const std::string city = R"({"city": "Rome", "days": 3})";
  std::vector<Family> all;
  all.push_back(
      {ToolFormat::kHermes,
       {"<tool_call>", "</tool_call>", "<think>"},
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + city + "}\n</tool_call>",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + city +
           "}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": "
           "{}}\n</tool_call>",
       {"<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
        "15}}\n</tool_call>",
        "<tool_call>\n{\"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n"}});
  const std::string qwen =
      "<tool_call>\n<function=get_weather>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n"
      "<parameter=city>\nNew <b>York</b>\n</para & "
      "\"more\"\n</parameter>\n<parameter=exact>\nTrue\n"
      "</parameter>\n<parameter=unit>\nc\n</parameter>\n</function>\n</tool_call>";
  all.push_back({ToolFormat::kQwenXml,
                 {"<tool_call>", "</tool_call>", "<think>"},
                 qwen,
                 qwen + "\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
                 {"<tool_call>\n<function=get_weather>\n</function>\n</tool_call>",
                  "<tool_call>\n<function=get_weather>\n<parameter=town>\nx\n</parameter>\n</"
                  "function>\n</tool_call>",
                  "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</"
                  "parameter>\n<parameter=city>\nx\n"
                  "</parameter>\n</function>\n</tool_call>",
                  "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</"
                  "parameter>\n<parameter=days>\nsoon\n"
                  "</parameter>\n</function>\n</tool_call>",
                  "<tool_call>\n<function=get_weathe>\n",
                  "<tool_call>\n<function=get>\n<parameter=x>\n1\n</parameter>\n"}});
  const std::string glm =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome > all</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>14</arg_value>\n</tool_call>";
  all.push_back(
      {ToolFormat::kGlm,
       {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
       glm,
       glm + "<tool_call>get_time</tool_call>",
       {"<tool_call>get_weather</tool_call>", "<tool_call>get_tim</tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a</arg_value>"
        "<arg_key>unit</arg_key><arg_value>k</arg_value></tool_call>"}});
  const std::string kimi =
      "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" + city +
      "<|tool_call_end|>";
  all.push_back(
      {ToolFormat::kKimi,
       {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
        "<|tool_call_end|>", "<|tool_call_argument_begin|>"},
       "<|tool_calls_section_begin|>" + kimi + "<|tool_calls_section_end|>",
       "<|tool_calls_section_begin|>" + kimi +
           "<|tool_call_begin|>functions.get_time:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
           "<|tool_calls_section_end|>",
       {"<|tool_calls_section_begin|><|tool_calls_section_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>get_time:0",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time<|tool_call_argument_"
        "begin|>"}});
  const std::string v31 =
      "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + city + "<｜tool▁call▁end｜>";
  all.push_back({ToolFormat::kDeepseek,
                 {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                  "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
                 "<｜tool▁calls▁begin｜>" + v31 + "<｜tool▁calls▁end｜>",
                 "<｜tool▁calls▁begin｜>" + v31 +
                     "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<"
                     "｜tool▁call▁end｜>"
                     "<｜tool▁calls▁end｜>",
                 {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>[]",
                  "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"}});
  const std::string dsml =
      "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
      "string=\"true\">Rome <\n>"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
      "string=\"false\">2</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"unit\" string=\"true\">c</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n";
  all.push_back({ToolFormat::kDsml,
                 {"｜DSML｜"},
                 "\n\n<｜DSML｜function_calls>\n" + dsml + "</｜DSML｜function_calls>",
                 "\n\n<｜DSML｜tool_calls>\n" + dsml +
                     "<｜DSML｜invoke name=\"get_time\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
                 {"<｜DSML｜function_calls>\n<｜DSML｜invoke "
                  "name=\"get_time\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
                  "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
                  "<｜DSML｜parameter name=\"days\" string=\"true\">2</｜DSML｜parameter>\n"}});
  const std::string minimax =
      "<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome\n\n</parameter>\n"
      "<parameter name=\"exact\">true</parameter>\n</invoke>\n";
  all.push_back({ToolFormat::kMinimax,
                 {"<minimax:tool_call>", "</minimax:tool_call>"},
                 "<minimax:tool_call>\n" + minimax + "</minimax:tool_call>",
                 "<minimax:tool_call>\n" + minimax +
                     "<invoke name=\"get_time\">\n</invoke>\n</minimax:tool_call>",
                 {"<minimax:tool_call>\n</minimax:tool_call>",
                  "<minimax:tool_call>\n<invoke name=\"get\">\n"}});
  return all;
}

ToolGrammarOptions options_of(ToolFormat format, bool is_required) {
  ToolGrammarOptions options;
  options.format = format;
  options.tools = tools();
  options.is_required = is_required;
  return options;
}

std::shared_ptr<const Grammar> grammar_of(ToolFormat format, bool is_required,
                                          bool is_parallel = true) {
  ToolGrammarOptions options = options_of(format, is_required);
  options.is_parallel = is_parallel;
  std::vector<std::string> warnings;
  auto grammar = make_tool_grammar(options, &warnings);
  EXPECT_TRUE(grammar.is_ok());
  EXPECT_TRUE(warnings.empty()) << warnings.front();
  return grammar.is_ok() ? grammar.value() : nullptr;
}

TEST(ToolGrammar, AcceptsWhatFamiliesWrite) {
  std::mt19937 random(5);
  for (const Family& family : families()) {
    // Markers as tokens of the vocabulary, and as text.
    for (const auto& markers : {family.markers, std::vector<std::string>{}}) {
      const auto tokens = make_vocabulary(test::usual_pieces(), markers);
      const auto write = [&](const std::string& text) { return tokenised(*tokens, text, &random); };
      for (const bool is_required : {true, false}) {
        const auto many = grammar_of(family.format, is_required);
        const auto single = grammar_of(family.format, is_required, false);
        EXPECT_TRUE(accepts(many, tokens, write(family.one))) << family.one;
        EXPECT_TRUE(accepts(many, tokens, write(family.two))) << family.two;
        EXPECT_TRUE(accepts(single, tokens, write(family.one))) << family.one;
        EXPECT_FALSE(accepts(single, tokens, write(family.two))) << family.two;
        for (const std::string& text : family.wrong) {
          EXPECT_FALSE(accepts(many, tokens, write(text))) << text;
        }
        const std::string talk = "Let me see: 1 < 2.\n";
        EXPECT_EQ(accepts(many, tokens, write(talk)), !is_required) << talk;
        EXPECT_EQ(accepts(many, tokens, write(talk + family.one)), !is_required);
        EXPECT_EQ(accepts(many, tokens, {}), !is_required);
        // Where calls may follow each other, so may text; a single call is the end.
        EXPECT_EQ(accepts(many, tokens, write(family.one + " done")), !is_required);
        EXPECT_FALSE(accepts(single, tokens, write(family.one + " done")));
      }
    }
  }
}

TEST(ToolGrammar, AcceptsHarmony) {
  const auto tokens = make_vocabulary(
      {}, {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>"});
  const auto write = [&](const std::string& text) { return tokenised(*tokens, text, nullptr); };
  const std::string args = R"({"city":"Rome"})";
  const std::string thoughts =
      "<|channel|>analysis<|message|>I <think> so.<|end|><|start|>assistant";
  const auto needed = grammar_of(ToolFormat::kHarmony, true);
  const auto free = grammar_of(ToolFormat::kHarmony, false);
  for (const std::string header :
       {"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather<|message|>",
        "<|channel|>analysis to=functions.get_weather json<|message|>"}) {
    for (const std::string end : {"", "<|call|>"}) {
      EXPECT_TRUE(accepts(needed, tokens, write(thoughts + header + args + end))) << header;
      EXPECT_TRUE(accepts(needed, tokens, write(header + args + end))) << header;
      EXPECT_TRUE(accepts(free, tokens, write(thoughts + header + args + end))) << header;
    }
    EXPECT_FALSE(accepts(needed, tokens, write(header + "{}")));
    EXPECT_FALSE(accepts(free, tokens, write(header + "{}")));
    EXPECT_FALSE(accepts(free, tokens, write(header + args + " ")));
  }
  const std::string by_role =
      "<|start|>assistant to=functions.get_time<|channel|>commentary json<|message|>{}<|call|>";
  EXPECT_TRUE(accepts(free, tokens, write("<|channel|>analysis<|message|>x<|end|>" + by_role)));
  EXPECT_TRUE(accepts(needed, tokens, write(by_role.substr(18))));
  EXPECT_FALSE(accepts(needed, tokens, write("<|channel|>final<|message|>no<|end|>")));
  EXPECT_FALSE(accepts(needed, tokens, write(thoughts)));
  EXPECT_TRUE(accepts(free, tokens, write("<|channel|>final<|message|>yes")));
}

// Where the answer has a form, a text is a call or an answer of that form, and nothing else.
TEST(ToolGrammar, AnAnswerOfAFormIsTheOtherWay) {
  std::mt19937 random(6);
  const OrderedJson schema = OrderedJson::parse(
      R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})");
  const std::string answer = R"({"n":12})";
  for (const Family& family : families()) {
    const auto tokens = make_vocabulary(test::usual_pieces(), family.markers);
    const auto write = [&](const std::string& text) { return tokenised(*tokens, text, &random); };
    ToolGrammarOptions options = options_of(family.format, true);
    options.answer_schema = schema;
    ASSERT_OK_AND_ASSIGN(const auto grammar, make_tool_grammar(options, nullptr));
    EXPECT_TRUE(accepts(grammar, tokens, write(answer))) << family.one;
    EXPECT_TRUE(accepts(grammar, tokens, write("\n" + answer)));
    EXPECT_TRUE(accepts(grammar, tokens, write(family.one))) << family.one;
    EXPECT_TRUE(accepts(grammar, tokens, write(family.two))) << family.two;
    for (const std::string& wrong : {std::string("Yes."), std::string(R"({"n":"12"})"),
                                     answer + family.one, family.one + answer}) {
      EXPECT_FALSE(accepts(grammar, tokens, write(wrong))) << wrong;
    }
  }
}

// The schema of an answer is compiled beside the calls alone, so that it is checked there.
TEST(ToolGrammar, TheSchemaOfAnAnswerIsCheckedBesideTools) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kHarmony}) {
    ToolGrammarOptions options = options_of(format, true);
    options.answer_schema = OrderedJson::parse(R"({"type":"object","not":{"required":["x"]}})");
    std::vector<std::string> warnings;
    EXPECT_OK(make_tool_grammar(options, &warnings));
    EXPECT_EQ(warnings.size(), 1U) << "of \"not\"";
    for (const char* wrong :
         {R"({"type":"object","properties":{"a":false},"required":["a"]})", "3", R"({"type":7})"}) {
      options.answer_schema = OrderedJson::parse(wrong);
      EXPECT_EQ(make_tool_grammar(options, nullptr).status().code(), StatusCode::kInvalidArgument)
          << wrong;
    }
  }
}

// gpt-oss thinks and names the channel before it answers, with tools and without.
TEST(ToolGrammar, HarmonyAnswersInItsFrame) {
  const auto tokens = make_vocabulary(
      {}, {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>"});
  const auto write = [&](const std::string& text) { return tokenised(*tokens, text, nullptr); };
  const std::string thoughts = "<|channel|>analysis<|message|>I think so.<|end|><|start|>assistant";
  for (const bool has_tools : {true, false}) {
    ToolGrammarOptions options = options_of(ToolFormat::kHarmony, true);
    if (!has_tools) options.tools.clear();
    options.answer_schema = OrderedJson{{"type", "object"}};
    ASSERT_OK_AND_ASSIGN(const auto grammar, make_tool_grammar(options, nullptr));
    for (const std::string header :
         {"<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"}) {
      EXPECT_TRUE(accepts(grammar, tokens, write(header + "{\"a\":1}")));
      EXPECT_TRUE(accepts(grammar, tokens, write(thoughts + header + "{\"a\":1}")));
      EXPECT_FALSE(accepts(grammar, tokens, write(header + "a")));
    }
    EXPECT_FALSE(accepts(grammar, tokens, write("{\"a\":1}")));
    EXPECT_FALSE(accepts(grammar, tokens, write(thoughts)));
    const std::string call = "<|channel|>commentary to=functions.get_time<|message|>{}<|call|>";
    EXPECT_EQ(accepts(grammar, tokens, write(thoughts + call)), has_tools);
  }
}

// The first tag is sometimes left out; text about functions is still text.
TEST(ToolGrammar, QwenMayForgetTheFirstTag) {
  const auto tokens = make_vocabulary({"=get"}, {"<tool_call>", "</tool_call>"});
  const auto write = [&](const std::string& text) { return tokenised(*tokens, text, nullptr); };
  const auto grammar = grammar_of(ToolFormat::kQwenXml, false);
  const std::string call = "<function=get_time>\n</function>\n</tool_call>";
  EXPECT_TRUE(accepts(grammar, tokens, write("So:\n" + call + "\nand")));
  EXPECT_TRUE(accepts(grammar, tokens, write("Write <function=f> and <function=>.")));
  EXPECT_FALSE(accepts(grammar, tokens, write("<function=get_time> is a function")));
}

// A marker of the vocabulary is that token: text that spells it is text.
TEST(ToolGrammar, SpelledMarkersAreText) {
  const auto tokens = make_vocabulary({}, {"<tool_call>", "</tool_call>"});
  const auto bytes = make_vocabulary({});
  const std::string spelled = "<tool_call> is a tag";
  const auto ids = tokenised(*bytes, spelled, nullptr);
  const auto grammar = grammar_of(ToolFormat::kHermes, false);
  EXPECT_TRUE(accepts(grammar, tokens, ids));
  EXPECT_FALSE(accepts(grammar, bytes, ids));
  const auto filter = make_constraint(grammar, tokens, "");
  EXPECT_FALSE(filter->is_active());
  filter->accept(257);
  EXPECT_TRUE(filter->is_active());
  EXPECT_FALSE(filter->allows(kEndId));
  EXPECT_FALSE(filter->allows(257));
  EXPECT_FALSE(filter->allows('x'));
  // A forbidden token wakes nobody: the text goes on free.
  filter->accept('x');
  EXPECT_FALSE(filter->is_active());
  EXPECT_TRUE(filter->allows(kEndId));
}

TEST(ToolGrammar, SleepsUntilThoughtsEnd) {
  const auto tokens = make_vocabulary({"k>\n\n", "k>x"}, {"<tool_call>", "</tool_call>"});
  const auto write = [&](const std::string& text) { return tokenised(*tokens, text, nullptr); };
  const std::string call = "<tool_call>{\"name\":\"get_time\",\"arguments\":{}}</tool_call>";
  const auto needed = grammar_of(ToolFormat::kHermes, true);
  EXPECT_TRUE(accepts(needed, tokens, write("I could</think>\n\n" + call), "</think>"));
  EXPECT_FALSE(accepts(needed, tokens, write("I could</think>No."), "</think>"));
  // A call begun in thoughts is a call.
  EXPECT_TRUE(accepts(needed, tokens, write("I could" + call), "</think>"));
  EXPECT_FALSE(accepts(needed, tokens, write("I could<tool_call>{}"), "</think>"));
  // The token that brings the end of the text brings what follows, too.
  const auto filter = make_constraint(needed, tokens, "</think>");
  for (const char c : std::string("</thin")) filter->accept(c);
  EXPECT_TRUE(filter->is_active());
  EXPECT_TRUE(filter->allows(257));
  EXPECT_FALSE(filter->allows(258));
  EXPECT_TRUE(filter->allows('q'));
  std::vector<float> logits(tokens->size());
  filter->mask(logits);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(!std::isinf(logits[i]), filter->allows(static_cast<std::int32_t>(i))) << i;
  }
  filter->accept(257);
  EXPECT_FALSE(filter->allows('x'));
  EXPECT_TRUE(filter->allows(259));
}

// A model that opens its thoughts itself may, at the start alone; the form holds behind them.
TEST(ToolGrammar, MayBeginWithThoughts) {
  const std::string call = "<tool_call>{\"name\":\"get_time\",\"arguments\":{}}</tool_call>";
  const auto needed = grammar_of(ToolFormat::kHermes, true);
  for (const bool has_markers : {false, true}) {
    std::vector<std::string> markers = {"<tool_call>", "</tool_call>"};
    if (has_markers) markers.insert(markers.end(), {"<think>", "</think>"});
    const auto tokens = make_vocabulary({"<th", "ink>\nI", "\n\n", "think"}, markers);
    std::mt19937 random(7);
    const auto may = [&](const std::string& text) {
      const auto filter = make_constraint(needed, tokens, "</think>", "<think>");
      for (const std::int32_t id : tokenised(*tokens, text, &random)) {
        if (!filter->allows(id)) return false;
        std::vector<float> logits(tokens->size());
        filter->mask(logits);
        for (std::size_t i = 0; i < logits.size(); ++i) {
          EXPECT_EQ(!std::isinf(logits[i]), filter->allows(static_cast<std::int32_t>(i))) << i;
        }
        filter->accept(id);
      }
      return filter->allows(kEndId);
    };
    EXPECT_TRUE(may(call));
    EXPECT_TRUE(may("<think>\nI could.</think>" + call));
    EXPECT_TRUE(may("\n<think>I could.</think>\n\n" + call));
    EXPECT_FALSE(may("<think>\nI could.</think>No."));
    EXPECT_FALSE(may("No.<think>I could.</think>" + call));
    EXPECT_FALSE(may("\n\n\n\n<think>I could.</think>" + call));
    EXPECT_FALSE(may(call + "<think>I could.</think>"));
    EXPECT_FALSE(may("<thin" + call));
    EXPECT_FALSE(may("<think>I could.")) << "ends within thoughts";
  }
}

// Thoughts end while there is room for a whole call, and do not begin where there is none.
TEST(ToolGrammar, ThoughtsEndInTime) {
  const auto needed = grammar_of(ToolFormat::kHermes, true);
  std::mt19937 random(11);
  for (const bool has_markers : {false, true}) {
    std::vector<std::string> markers = {"<tool_call>", "</tool_call>"};
    if (has_markers) markers.insert(markers.end(), {"<think>", "</think>"});
    const auto tokens = make_vocabulary({"<th", "ink>\nI", "hm", "</", "</think>\n"}, markers);
    for (const char* begin : {"<think>", ""}) {
      for (std::uint64_t limit = 120; limit < 400; ++limit) {
        const auto filter = make_constraint(needed, tokens, "</think>", begin);
        std::uint64_t left = limit;
        bool has_ended = false;
        while (left > 0 && !has_ended) {
          filter->set_remaining(left--);
          std::vector<float> logits(tokens->size());
          filter->mask(logits);
          std::vector<std::int32_t> allowed;
          for (std::size_t i = 0; i < logits.size(); ++i) {
            const auto id = static_cast<std::int32_t>(i);
            const bool is_allowed = filter->allows(id);
            ASSERT_EQ(!std::isinf(logits[i]), is_allowed) << id;
            if (is_allowed) allowed.push_back(id);
          }
          ASSERT_FALSE(allowed.empty());
          const std::int32_t id = allowed[random() % allowed.size()];
          filter->accept(id);
          has_ended = id == kEndId;
        }
        EXPECT_TRUE(has_ended) << "within " << limit << " tokens";
      }
    }
  }
}

// However it goes, a required call is complete and has the right arguments.
TEST(ToolGrammar, WalksAreCalls) {
  std::mt19937 random(6);
  for (const Family& family : families()) {
    std::vector<std::string> pieces = test::usual_pieces();
    pieces.insert(pieces.end(), {"</parameter>\n", "</function>", "\n</", "arg", ">\n<"});
    const auto tokens = make_vocabulary(pieces, family.markers);
    const auto grammar = grammar_of(family.format, true, false);
    int ended = 0;
    for (int i = 0; i < 40; ++i) {
      const auto filter = make_constraint(grammar, tokens, "");
      // Text before a tag ends by chance alone, so its end is offered often.
      std::string text;
      for (int step = 0; step < 4000; ++step) {
        std::vector<float> logits(tokens->size());
        filter->mask(logits);
        std::vector<std::int32_t> allowed;
        for (std::size_t id = 0; id < logits.size(); ++id) {
          if (!std::isinf(logits[id])) allowed.push_back(static_cast<std::int32_t>(id));
        }
        ASSERT_FALSE(allowed.empty());
        const std::string_view ends = "<>/\"}]";
        const auto pick = std::find_if(allowed.begin(), allowed.end(), [&](std::int32_t id) {
          return id > kEndId && tokens->kind(id) == TokenBytes::Kind::kMarker;
        });
        std::int32_t id = allowed[random() % allowed.size()];
        if (pick != allowed.end() && random() % 8 == 0) id = *pick;
        if (filter->allows(kEndId)) id = kEndId;
        if (random() % 3 == 0) {
          const char end = ends[random() % ends.size()];
          if (filter->allows(end)) id = end;
        }
        ASSERT_TRUE(filter->allows(id));
        filter->accept(id);
        if (id == kEndId) {
          ++ended;
          break;
        }
        text += tokens->bytes(id);
      }
    }
    // Tags of several letters do not come by chance.
    const bool has_json =
        family.format == ToolFormat::kHermes || family.format == ToolFormat::kKimi ||
        family.format == ToolFormat::kDeepseek || family.format == ToolFormat::kGlm;
    if (has_json) {
      EXPECT_GT(ended, 20) << static_cast<int>(family.format);
    }
  }
}

TEST(ToolGrammar, SchemasThatCannotBeUsedAllowAnyArguments) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kQwenXml}) {
    ToolGrammarOptions options;
    options.format = format;
    options.tools = {
        tool("f", R"({"type":"object","properties":{"a":{"enum":[]}},"required":["a"]})"),
        tool("g", R"({"type":"object","properties":{"a":{"$ref":"#/none"}}})"),
        tool("h", R"({"type":"object","properties":{"a":{"const":1}}})")};
    options.is_required = true;
    std::vector<std::string> warnings;
    const auto grammar = make_tool_grammar(options, &warnings);
    ASSERT_TRUE(grammar.is_ok());
    EXPECT_EQ(warnings.size(), 2U);
    const auto bytes = make_vocabulary({});
    const auto allowed = [&](const std::string& name) {
      const std::string text =
          format == ToolFormat::kHermes
              ? "<tool_call>{\"name\":\"" + name + "\",\"arguments\":{\"a\":\"x\"}}</tool_call>"
              : "<tool_call>\n<function=" + name +
                    ">\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>";
      return accepts(grammar.value(), bytes, tokenised(*bytes, text, nullptr));
    };
    EXPECT_TRUE(allowed("f"));
    EXPECT_TRUE(allowed("g"));
    EXPECT_FALSE(allowed("h"));
  }
}

using TaggedTexts = std::vector<std::pair<std::string, std::string>>;

// A call of "f" as Qwen3-Coder writes it.
std::string qwen_call(const TaggedTexts& arguments) {
  std::string text = "<tool_call>\n<function=f>\n";
  for (const auto& [key, value] : arguments) {
    text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  }
  return text + "</function>\n</tool_call>";
}

// Whether calls with the arguments are allowed, and what the parser makes of them.
class TaggedTool {
 public:
  explicit TaggedTool(const std::string& parameters) {
    options_.format = ToolFormat::kQwenXml;
    options_.tools = {tool("f", parameters)};
    options_.is_required = true;
    std::vector<std::string> warnings;
    const auto grammar = make_tool_grammar(options_, &warnings);
    EXPECT_TRUE(grammar.is_ok());
    EXPECT_TRUE(warnings.empty()) << warnings.front();
    grammar_ = grammar.value();
  }
  bool allows(const TaggedTexts& arguments) const {
    const auto bytes = make_vocabulary({});
    return accepts(grammar_, bytes, tokenised(*bytes, qwen_call(arguments), nullptr));
  }
  std::string parsed(const TaggedTexts& arguments) const {
    OutputParserOptions options;
    options.format = options_.format;
    options.tools = options_.tools;
    options.parses_calls = true;
    const auto parser = make_output_parser(options);
    std::vector<ParsedOutput> outputs = parser->push({.bytes = qwen_call(arguments)});
    for (ParsedOutput& output : parser->finish(false)) outputs.push_back(std::move(output));
    std::string json;
    for (const ParsedOutput& output : outputs) {
      if (const auto* part = std::get_if<ParsedCallArguments>(&output)) json += part->fragment;
    }
    return json;
  }

 private:
  ToolGrammarOptions options_;
  std::shared_ptr<const Grammar> grammar_;
};

TEST(ToolGrammar, ParametersAreReadThroughReferencesAndCombinations) {
  const std::string args = R"({"type":"object","properties":{"n":{"type":"integer"},
      "b":{"type":"boolean"},"l":{"type":"array","items":{"type":"integer"},"maxItems":2}},
      "required":["n","l"],"additionalProperties":false})";
  for (const std::string& parameters :
       {R"({"$ref":"#/definitions/Args","definitions":{"Args":)" + args + "}}",
        R"({"allOf":[)" + args + "]}", R"({"oneOf":[)" + args + "]}",
        std::string(R"({"allOf":[{"properties":{"n":{"type":"integer"}},"required":["n"]},
            {"$ref":"#/$defs/L"}],"properties":{"b":{"type":"boolean"}},"required":["l"],
            "$defs":{"L":{"properties":{"l":{"type":"array","items":{"type":"integer"},
            "maxItems":2}}}}})")}) {
    const TaggedTool f(parameters);
    const TaggedTexts all = {{"b", "true"}, {"n", "7"}, {"l", "[1, 2]"}};
    EXPECT_TRUE(f.allows(all)) << parameters;
    EXPECT_EQ(f.parsed(all), R"({"b":true,"n":7,"l":[1,2]})") << parameters;
    EXPECT_FALSE(f.allows({{"n", "7"}})) << parameters;
    EXPECT_FALSE(f.allows({{"n", "x"}, {"l", "[]"}})) << parameters;
    EXPECT_FALSE(f.allows({{"n", "1"}, {"l", "[1,2,3]"}})) << parameters;
    EXPECT_FALSE(f.allows({{"n", "1"}, {"l", "[]"}, {"x", "1"}})) << parameters;
  }
}

TEST(ToolGrammar, ArgumentsOfAllChoicesAreOffered) {
  const TaggedTool f(R"({"type":"object","required":["s"],"properties":{"s":{"type":"string"}},
      "oneOf":[{"properties":{"n":{"type":"integer"}},"required":["n"]},
      {"properties":{"m":{"type":"integer"},"n":{"type":"boolean"}},"required":["m"]}]})");
  EXPECT_TRUE(f.allows({{"s", "x"}, {"n", "1"}}));
  EXPECT_TRUE(f.allows({{"m", "1"}, {"n", "true"}, {"s", "x"}}));
  EXPECT_FALSE(f.allows({{"s", "x"}, {"n", "x"}}));
  EXPECT_FALSE(f.allows({{"n", "1"}}));  // all choices require "s"
  EXPECT_EQ(f.parsed({{"s", "1"}, {"m", "1"}, {"n", "true"}}), R"({"s":"1","m":1,"n":true})");
}

TEST(ToolGrammar, WhatOneOfTheChoicesRequiresIsThere) {
  const std::string text = R"({"type":"string"})";
  const TaggedTool either(R"({"type":"object","properties":{"a":)" + text + R"(,"b":)" + text +
                          R"(,"c":)" + text +
                          R"(},"anyOf":[{"required":["a"]},{"required":["b","c"]}]})");
  EXPECT_FALSE(either.allows({}));
  EXPECT_FALSE(either.allows({{"b", "x"}}));
  EXPECT_TRUE(either.allows({{"a", "x"}}));
  EXPECT_TRUE(either.allows({{"c", "x"}, {"b", "x"}}));
  EXPECT_TRUE(either.allows({{"b", "x"}, {"a", "x"}}));
  const TaggedTool source(R"({"oneOf":[{"properties":{"path":)" + text +
                          R"(},"required":["path"]},{"properties":{"url":)" + text +
                          R"(},"required":["url"]}]})");
  EXPECT_FALSE(source.allows({}));
  EXPECT_TRUE(source.allows({{"path", "x"}}));
  EXPECT_TRUE(source.allows({{"url", "x"}}));
  const TaggedTool maybe(R"({"properties":{"a":)" + text + R"(},"anyOf":[{"required":["a"]},{}]})");
  EXPECT_TRUE(maybe.allows({})) << "one of the ways requires nothing";
}

TEST(ToolGrammar, ValuesKeepWhatStandsBesideTheirChoices) {
  const TaggedTool f(R"({"properties":{"n":{"type":"integer","anyOf":[{"maximum":2},
      {"minimum":5,"maximum":9}]},"p":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"type":"null"}}})");
  EXPECT_TRUE(f.allows({{"n", "2"}, {"p", "null"}}));
  EXPECT_TRUE(f.allows({{"n", "6"}}));
  EXPECT_FALSE(f.allows({{"n", "4"}}));
  EXPECT_FALSE(f.allows({{"n", "some"}}));
  EXPECT_FALSE(f.allows({{"p", "some"}}));
}

TEST(ToolGrammar, OtherArgumentsFollowWhereTheSchemaAllowsThem) {
  const TaggedTool f(R"({"type":"object","properties":{"n":{"type":"integer"},
      "name":{"type":"string"}},"required":["n","x"],"additionalProperties":{"type":"integer"}})");
  EXPECT_TRUE(f.allows({{"n", "1"}, {"x", "2"}}));
  EXPECT_TRUE(f.allows({{"x", "2"}, {"n", "1"}, {"na", "3"}, {"names", "4"}, {"m", "5"}}));
  EXPECT_FALSE(f.allows({{"n", "1"}}));
  EXPECT_FALSE(f.allows({{"n", "1"}, {"x", "yes"}}));
  EXPECT_FALSE(f.allows({{"n", "1"}, {"x", "2"}, {"m", "yes"}}));
  EXPECT_FALSE(f.allows({{"n", "1"}, {"x", "2"}, {"y", "3"}, {"n", "1"}}));
  EXPECT_EQ(f.parsed({{"n", "1"}, {"x", "2"}, {"y", "3"}}), R"({"n":1,"x":2,"y":3})");
  const TaggedTool silent(R"({"properties":{"n":{"type":"integer"}},"required":["x"]})");
  EXPECT_TRUE(silent.allows({{"x", "anything"}}));
  EXPECT_FALSE(silent.allows({{"n", "1"}}));
  EXPECT_FALSE(silent.allows({{"x", "anything"}, {"y", "1"}}));
}

// A call of "f" with one argument.
std::string call_with(ToolFormat format, const std::string& key, const std::string& value,
                      bool is_text = false) {
  const std::string parameter = "<parameter name=\"" + key + "\">" + value + "</parameter>\n";
  switch (format) {
    case ToolFormat::kHermes:
      return R"(<tool_call>{"name":"f","arguments":{")" + key +
             "\":" + (is_text ? '"' + value + '"' : value) + "}}</tool_call>";
    case ToolFormat::kQwenXml:
      return qwen_call({{key, value}});
    case ToolFormat::kGlm:
      return "<tool_call>f<arg_key>" + key + "</arg_key><arg_value>" + value +
             "</arg_value></tool_call>";
    case ToolFormat::kMinimax:
      return "<minimax:tool_call>\n<invoke name=\"f\">\n" + parameter +
             "</invoke>\n</minimax:tool_call>";
    default:
      return "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
             "name=\"" +
             key + "\" string=\"" + (is_text ? "true" : "false") + "\">" + value +
             "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  }
}

// A call of "f" without arguments.
std::string empty_call(ToolFormat format) {
  switch (format) {
    case ToolFormat::kQwenXml:
      return qwen_call({});
    case ToolFormat::kGlm:
      return "<tool_call>f</tool_call>";
    case ToolFormat::kMinimax:
      return "<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>";
    default:
      return "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n"
             "</｜DSML｜function_calls>";
  }
}

constexpr ToolFormat kTaggedFormats[] = {ToolFormat::kQwenXml, ToolFormat::kGlm,
                                         ToolFormat::kMinimax, ToolFormat::kDsml};

std::shared_ptr<const Grammar> grammar_of_tool(ToolFormat format, const std::string& parameters,
                                               std::size_t warnings_expected = 0) {
  ToolGrammarOptions options;
  options.format = format;
  options.tools = {tool("f", parameters)};
  options.is_required = true;
  std::vector<std::string> warnings;
  const auto grammar = make_tool_grammar(options, &warnings);
  EXPECT_TRUE(grammar.is_ok()) << parameters;
  EXPECT_EQ(warnings.size(), warnings_expected) << parameters;
  return grammar.is_ok() ? grammar.value() : nullptr;
}

TEST(ToolGrammar, ConstantsOfArgumentsSatisfyWhatStandsBesideThem) {
  std::vector<ToolFormat> formats(std::begin(kTaggedFormats), std::end(kTaggedFormats));
  formats.push_back(ToolFormat::kHermes);
  for (const ToolFormat format : formats) {
    const auto allows = [&](const std::string& schema, const std::string& value, bool is_text) {
      const auto grammar = grammar_of_tool(format, R"({"properties":{"a":)" + schema + "}}");
      return test::accepts_text(grammar, call_with(format, "a", value, is_text));
    };
    SCOPED_TRACE(static_cast<int>(format));
    const std::string number = R"({"type":"integer","enum":["x",1,5],"minimum":3})";
    EXPECT_TRUE(allows(number, "5", false));
    EXPECT_FALSE(allows(number, "1", false));
    EXPECT_FALSE(allows(number, "x", true));
    const std::string text = R"({"anyOf":[{"enum":["a",7]},{"const":"abc"}],"pattern":"^a.c$"})";
    EXPECT_TRUE(allows(text, "abc", true));
    EXPECT_TRUE(allows(text, "7", false));
    EXPECT_FALSE(allows(text, "a", true));
    const std::string listed = R"({"enum":[[1],["x"]],"items":{"type":"string"}})";
    EXPECT_TRUE(allows(listed, R"(["x"])", false));
    EXPECT_FALSE(allows(listed, "[1]", false));
  }
}

TEST(ToolGrammar, AnOptionalKeyThatNoValueSatisfiesIsLeftOut) {
  for (const ToolFormat format : kTaggedFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    const std::string impossible = R"({"type":"integer","minimum":5,"maximum":2})";
    const auto grammar = grammar_of_tool(
        format, R"({"type":"object","properties":{"b":)" + impossible +
                    R"(,"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})");
    EXPECT_TRUE(test::accepts_text(grammar, call_with(format, "a", "7")));
    EXPECT_FALSE(test::accepts_text(grammar, call_with(format, "a", "x")));
    EXPECT_FALSE(test::accepts_text(grammar, call_with(format, "b", "5")));
    EXPECT_FALSE(test::accepts_text(grammar, empty_call(format)));
    const auto open = grammar_of_tool(
        format, R"({"properties":{"b":)" + impossible + R"(},"additionalProperties":true})");
    EXPECT_TRUE(test::accepts_text(open, empty_call(format)));
    EXPECT_TRUE(test::accepts_text(open, call_with(format, "c", "5", true)));
    EXPECT_FALSE(test::accepts_text(open, call_with(format, "b", "5", true)));
    const auto closed = grammar_of_tool(
        format, R"({"properties":{"b":false},"additionalProperties":{"type":"integer"}})");
    EXPECT_TRUE(test::accepts_text(closed, call_with(format, "c", "5")));
    EXPECT_FALSE(test::accepts_text(closed, call_with(format, "b", "5")));
    grammar_of_tool(format, R"({"properties":{"b":)" + impossible + R"(},"required":["b"]})", 1);
  }
}

// What the parser makes of a call with one argument.
std::string parsed_call(ToolFormat format, const std::string& parameters, const std::string& text) {
  OutputParserOptions options;
  options.format = format;
  options.tools = {tool("f", parameters)};
  options.parses_calls = true;
  const auto parser = make_output_parser(options);
  std::vector<ParsedOutput> outputs = parser->push({.bytes = text});
  for (ParsedOutput& output : parser->finish(false)) outputs.push_back(std::move(output));
  std::string json;
  for (const ParsedOutput& output : outputs) {
    if (const auto* part = std::get_if<ParsedCallArguments>(&output)) json += part->fragment;
  }
  return json;
}

TEST(ToolGrammar, KeysOfTagsAreReadBackAsTheyAreWritten) {
  for (const ToolFormat format : kTaggedFormats) {
    for (const std::string& key :
         {std::string("a>b"), std::string("a\"b"), std::string(" a"), std::string("a\nb"),
          std::string("'a"), std::string("a "), std::string(""), std::string("a b"),
          std::string("a'b"), std::string("<a"), std::string("ä"), std::string("a</arg_key>"),
          std::string(230, 'k'), std::string(300, 'k')}) {
      const OrderedJson schema = {
          {"type", "object"},
          {"properties", {{key, {{"type", "integer"}}}, {"z", {{"type", "integer"}}}}}};
      const auto grammar = grammar_of_tool(format, schema.dump());
      const std::string text = call_with(format, key, "7");
      const std::string expected = OrderedJson{{key, 7}}.dump();
      EXPECT_EQ(test::accepts_text(grammar, text),
                parsed_call(format, schema.dump(), text) == expected)
          << static_cast<int>(format) << ' ' << key;
      EXPECT_TRUE(test::accepts_text(grammar, call_with(format, "z", "7")));
      EXPECT_FALSE(test::accepts_text(grammar, call_with(format, "z", "x")));
    }
    const std::string required = R"({"properties":{"a</arg_key>\n":{"type":"integer"}},
        "required":["a</arg_key>\n"]})";
    grammar_of_tool(format, required, 1);
  }
}

TEST(ToolGrammar, FamiliesWithoutCallsAndNoToolsHaveNone) {
  ToolGrammarOptions options;
  options.format = ToolFormat::kNone;
  options.tools = tools();
  ASSERT_OK_AND_ASSIGN(const auto none, make_tool_grammar(options, nullptr));
  EXPECT_EQ(none, nullptr);
  options.format = ToolFormat::kHermes;
  options.tools.clear();
  ASSERT_OK_AND_ASSIGN(const auto empty, make_tool_grammar(options, nullptr));
  EXPECT_EQ(empty, nullptr);
}

}  // namespace
}  // namespace moepack::tool_grammar_test
