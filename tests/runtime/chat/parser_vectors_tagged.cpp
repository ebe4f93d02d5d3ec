// Vectors of the families whose arguments are text between tags.
#include "tests/runtime/chat/parser_vectors.h"

namespace moepack::test {
namespace {

// A call of `set` in Qwen's form with one parameter.
ParserVector qwen_value(const std::string& key, const std::string& value, const std::string& json) {
  return {.name = key + " = " + value,
          .text = "<tool_call>\n<function=set>\n<parameter=" + key + ">\n" + value +
                  "\n</parameter>\n</function>\n</tool_call>",
          .calls = {{"", "set", "{\"" + key + "\":" + json + "}", true}}};
}

ParserVector glm_value(const std::string& key, const std::string& value, const std::string& json) {
  return {.name = key + " = " + value,
          .text = "<tool_call>set<arg_key>" + key + "</arg_key><arg_value>" + value +
                  "</arg_value></tool_call>",
          .calls = {{"", "set", "{\"" + key + "\":" + json + "}", true}}};
}

std::vector<ParserVector> qwen_values() {
  return {
      qwen_value("s", "a \"b\"\tc", R"("a \"b\"\tc")"),
      qwen_value("s", "5", R"("5")"),
      qwen_value("s", "null", R"("null")"),
      qwen_value("s", "", R"("")"),
      qwen_value("s", "  two lines\n\n ", R"("  two lines\n\n ")"),
      qwen_value("s", "&lt;b&gt;", R"("&lt;b&gt;")"),
      qwen_value("s", "\xe2\x82\xac", "\"\xe2\x82\xac\""),
      qwen_value("i", "5", "5"),
      qwen_value("i", "five", R"("five")"),
      qwen_value("i", "5.0", "5.0"),
      qwen_value("i", "007", R"("007")"),
      qwen_value("i", "1e999", R"("1e999")"),
      qwen_value("n", "-1.5e3", "-1.5e3"),
      qwen_value("b", "True", "true"),
      qwen_value("b", "false", "false"),
      qwen_value("b", "1", "true"),
      qwen_value("b", "maybe", R"("maybe")"),
      qwen_value("o", R"({"a": [1, {"b": null}]})", R"({"a":[1,{"b":null}]})"),
      qwen_value("o", "{'a': True, 'b': 'it\\'s'}", R"({"a":true,"b":"it's"})"),
      qwen_value("o", "{broken", R"("{broken")"),
      qwen_value("a", "[1, 'x',]", R"([1,"x"])"),
      qwen_value("sn", "null", "null"),
      qwen_value("sn", "None", "null"),
      qwen_value("sn", "", "null"),
      qwen_value("sn", "nullable", R"("nullable")"),
      qwen_value("in", "null", "null"),
      qwen_value("in", "3", "3"),
      qwen_value("e", "x", R"("x")"),
      qwen_value("r", "True", "true"),
      qwen_value("so", "{\"a\": 1}", R"({"a":1})"),
      qwen_value("so", "5", R"("5")"),
      qwen_value("zz", "5", R"("5")"),
  };
}

}  // namespace

namespace {

const char* const kQwenBegin = "<tool_call>\n<function=write>\n";
const char* const kQwenEnd = "\n</parameter>\n</function>\n</tool_call>";

std::vector<ParserVector> qwen_frames() {
  const std::string begin = kQwenBegin, end = kQwenEnd;
  return {
      {.name = "a call after thoughts and words",
       .text = "I look.\n</think>\n\nLet me see.\n\n<tool_call>\n<function=read>\n<parameter="
               "path>\na/b\n</parameter>\n<parameter=limit>\n10\n</parameter>\n</function>\n"
               "</tool_call>",
       .reasoning = "I look.",
       .content = "Let me see.",
       .calls = {{"", "read", R"({"path":"a/b","limit":10})", true}},
       .begins_in_reasoning = true},
      {.name = "two calls",
       .text = "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n"
               "<function=read>\n<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>\n",
       .calls = {{"", "now", "{}", true}, {"", "read", R"({"path":"x"})", true}}},
      {.name = "on one line",
       .text = "<tool_call><function=read><parameter=path>x</parameter><parameter=limit>1"
               "</parameter></function></tool_call>",
       .calls = {{"", "read", R"({"path":"x","limit":1})", true}}},
      {.name = "the first marker is missing (Qwen3-Coder 480)",
       .text = "Now:\n<function=read>\n<parameter=path>\nx\n</parameter>\n</function>\n"
               "</tool_call>",
       .content = "Now:",
       .calls = {{"", "read", R"({"path":"x"})", true}}},
      {.name = "all markers but the function's are missing",
       .text = "<function=read>\n<parameter=path>\nx\n</parameter>\n</function>",
       .calls = {{"", "read", R"({"path":"x"})", true}}},
      {.name = "quotes around names",
       .text = "<tool_call><function=\"read\"><parameter= \"path\" >x</parameter></function>"
               "</tool_call>",
       .calls = {{"", "read", R"({"path":"x"})", true}}},
      {.name = "the value's end is missing before a parameter",
       .text = begin + "<parameter=path>\nx\n<parameter=text>\ny" + end,
       .calls = {{"", "write", R"({"path":"x","text":"y"})", true}}},
      {.name = "the value's end is missing before the function's end",
       .text = begin + "<parameter=text>\ny\n</function>\n</tool_call>",
       .calls = {{"", "write", R"({"text":"y"})", true}}},
      {.name = "both ends are missing",
       .text = begin + "<parameter=text>\ny\n</tool_call>",
       .calls = {{"", "write", R"({"text":"y"})", true}}},
      {.name = "tags in a value",
       .text = begin +
               "<parameter=text>\n<a></parameter>\n<parameter=other>\n</function>\n"
               "<tool_call@@></b>" +
               end,
       .calls = {{"", "write",
                  R"({"text":"<a></parameter>\n<parameter=other>\n</function>\n<tool_call></b>"})",
                  true}}},
      {.name = "a parameter's tag within a line",
       .text = begin + "<parameter=text>\nsee <parameter=path> there" + end,
       .calls = {{"", "write", R"({"text":"see <parameter=path> there"})", true}}},
      {.name = "the same parameter in a value",
       .text = begin + "<parameter=text>\na\n</parameter>\n<parameter=text>\nb" + end,
       .calls = {{"", "write", R"({"text":"a\n</parameter>\n<parameter=text>\nb"})", true}}},
      {.name = "a key that is not named twice: the last counts for readers of JSON",
       .text = "<tool_call>\n<function=extra>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\na\n"
               "</parameter>\n<parameter=x>\n2" +
               end,
       .calls = {{"", "extra", R"({"x":1,"s":"a","x":2})", true}}},
      {.name = "a value's end twice (llama.cpp 24807)",
       .text = begin + "<parameter=text>\ny\n</parameter>\n</parameter>\n</function>\n"
                       "</tool_call>",
       .calls = {{"", "write", R"({"text":"y"})", true}}},
      {.name = "ends repeated after the call",
       .text = begin + "<parameter=text>\ny" + end + "\n</parameter>\n</function>\n</tool_call>",
       .calls = {{"", "write", R"({"text":"y"})", true}}},
      {.name = "one line end at each side goes",
       .text = begin + "<parameter=text>\n\n  y\n\n</parameter>\n</function>\n</tool_call>",
       .calls = {{"", "write", R"({"text":"\n  y\n"})", true}}},
  };
}

std::vector<ParserVector> qwen_ends() {
  const std::string begin = kQwenBegin;
  return {
      {.name = "the turn ends behind the function",
       .text = begin + "<parameter=text>\ny\n</parameter>\n</function>\n",
       .calls = {{"", "write", R"({"text":"y"})", true}}},
      {.name = "the turn ends behind a value",
       .text = begin + "<parameter=text>\ny\n</parameter>",
       .calls = {{"", "write", R"({"text":"y"})", true}}},
      {.name = "the turn ends within a value",
       .text = begin + "<parameter=text>\ny",
       .content = begin + "<parameter=text>\ny",
       .calls = {{"", "write", R"({"text":"y)", false}}},
      {.name = "cut within a value",
       .text = begin + "<parameter=text>\nyes",
       .calls = {{"", "write", R"({"text":"yes)", false}},
       .is_cut = true},
      {.name = "cut behind a value",
       .text = begin + "<parameter=text>\nyes\n</parameter>\n",
       .calls = {{"", "write", R"({"text":"yes)", false}},
       .is_cut = true},
      {.name = "cut before the name",
       .text = "So.\n<tool_call>\n<func",
       .content = "So.",
       .is_cut = true},
      {.name = "JSON where parameters should be",
       .text = "<tool_call>\n<function=read>\n{\"path\": \"x\"}\n</function>\n</tool_call>",
       .content = "<tool_call>\n<function=read>\n{\"path\": \"x\"}\n</function>\n</tool_call>"},
      {.name = "words between parameters",
       .text = "<tool_call><function=now></parameter>or</function></tool_call>",
       .content = "<tool_call><function=now></parameter>or</function></tool_call>"},
      {.name = "a function that is not offered (vllm 22975)",
       .text = "<tool_call>\n<function=rm>\n</function>\n</tool_call>",
       .content = "<tool_call>\n<function=rm>\n</function>\n</tool_call>"},
      {.name = "the marker in prose",
       .text = "Begin with <function=NAME> and go on. <tool_call> too.",
       .content = "Begin with <function=NAME> and go on. <tool_call> too."},
      {.name = "a call within thoughts (Qwen3.5, vllm 39056)",
       .text = "I look.\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       .reasoning = "I look.",
       .calls = {{"", "now", "{}", true}},
       .begins_in_reasoning = true},
      {.name = "thoughts about the marker stay thoughts",
       .text = "I could write <tool_call> here.\n</think>\nNo.",
       .reasoning = "I could write <tool_call> here.",
       .content = "No.",
       .begins_in_reasoning = true},
      {.name = "text before a call stays (llama.cpp 20260)",
       .text = "One.\nTwo. <tool_call>\n<function=now>\n</function>\n</tool_call>\nThree.",
       .content = "One.\nTwo.Three.",
       .calls = {{"", "now", "{}", true}}},
      {.name = "no tools, no calls",
       .text = "<tool_call>\n<function=now>\n</function>\n</tool_call>",
       .content = "<tool_call>\n<function=now>\n</function>\n</tool_call>",
       .parses_calls = false},
  };
}

}  // namespace

ParserVectors qwen_xml_vectors() {
  ParserVectors family{
      ToolFormat::kQwenXml, {"<think>", "</think>", "<tool_call>", "</tool_call>"}, {}};
  for (const auto& some : {qwen_frames(), qwen_ends(), qwen_values()}) {
    family.vectors.insert(family.vectors.end(), some.begin(), some.end());
  }
  return family;
}

ParserVectors dsml_vectors() {
  const std::string begin = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"set\">\n";
  const std::string end = "\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  const auto value = [](const char* key, const char* kind, const std::string& text) {
    return "<｜DSML｜parameter name=\"" + std::string(key) + "\" string=\"" + kind + "\">" + text +
           "</｜DSML｜parameter>";
  };
  return {
      ToolFormat::kDsml,
      {"<think>", "</think>", "｜DSML｜"},
      {
          {.name = "strings and JSON",
           .text = "I look.\n\n" + begin + value("s", "true", "5") + "\n" +
                   value("i", "false", "5") + "\n" + value("o", "false", "{\"a\": [true]}") + end,
           .content = "I look.",
           .calls = {{"", "set", R"({"s":"5","i":5,"o":{"a":[true]}})", true}}},
          {.name = "V4's section and two calls",
           .text = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
                   "<｜DSML｜invoke name=\"read\">\n" +
                   value("path", "true", "x") + "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
           .calls = {{"", "now", "{}", true}, {"", "read", R"({"path":"x"})", true}}},
          {.name = "JSON that is none becomes a string",
           .text = begin + value("o", "false", "{no") + end,
           .calls = {{"", "set", R"({"o":"{no"})", true}}},
          {.name = "the attribute is missing: the schema decides",
           .text = begin + "<｜DSML｜parameter name=\"i\">7</｜DSML｜parameter>" + end,
           .calls = {{"", "set", R"({"i":7})", true}}},
          {.name = "line ends of a value stay",
           .text = begin + value("s", "true", "\na\n") + end,
           .calls = {{"", "set", R"({"s":"\na\n"})", true}}},
          {.name = "the word in plain letters is text (vllm 36654)",
           .text = begin + value("s", "true", "</｜DSML@@｜parameter>") + end,
           .calls = {{"", "set", R"({"s":"</｜DSML｜parameter>"})", true}}},
          {.name = "the section's begin is missing",
           .text = "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
           .calls = {{"", "now", "{}", true}}},
          {.name = "cut within a value",
           .text = begin + "<｜DSML｜parameter name=\"s\" string=\"true\">ab",
           .calls = {{"", "set", R"({"s":"ab)", false}},
           .is_cut = true},
          {.name = "a tool that is not offered",
           .text = "<｜DSML｜invoke name=\"rm\">\n</｜DSML｜invoke>",
           .content = "<｜DSML｜invoke name=\"rm\">\n</｜DSML｜invoke>"},
      }};
}

ParserVectors glm_vectors() {
  ParserVectors family{
      ToolFormat::kGlm,
      {"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
       "<arg_value>", "</arg_value>"},
      {
          {.name = "with line ends (GLM-4.5)",
           .text =
               "\n<think>I look.</think>\nLet me see.\n<tool_call>read\n<arg_key>path</arg_key>\n"
               "<arg_value>a b</arg_value>\n<arg_key>limit</arg_key>\n<arg_value>3</arg_value>\n"
               "</tool_call>",
           .reasoning = "I look.",
           .content = "Let me see.",
           .calls = {{"", "read", R"({"path":"a b","limit":3})", true}}},
          {.name = "without line ends (GLM-4.7), two calls",
           .text = "I look.</think><tool_call>read<arg_key>path</arg_key><arg_value>x</arg_value>"
                   "</tool_call><tool_call>now</tool_call>",
           .reasoning = "I look.",
           .calls = {{"", "read", R"({"path":"x"})", true}, {"", "now", "{}", true}},
           .begins_in_reasoning = true},
          {.name = "no arguments (vllm 32436)",
           .text = "<tool_call>now\n</tool_call>",
           .calls = {{"", "now", "{}", true}}},
          {.name = "a key twice: the last counts for readers of JSON",
           .text = "<tool_call>write<arg_key>text</arg_key><arg_value>a</arg_value><arg_key>text"
                   "</arg_key><arg_value>b</arg_value></tool_call>",
           .calls = {{"", "write", R"({"text":"a","text":"b"})", true}}},
          {.name = "tags of others in a value",
           .text = "<tool_call>write<arg_key>text</arg_key><arg_value><b>\n</arg_value@@></b>\n"
                   "</arg_value></tool_call>",
           .calls = {{"", "write", R"({"text":"<b>\n</arg_value></b>\n"})", true}}},
          {.name = "cut within a value",
           .text = "<tool_call>write<arg_key>text</arg_key><arg_value>ab",
           .calls = {{"", "write", R"({"text":"ab)", false}},
           .is_cut = true},
          {.name = "a tool that is not offered",
           .text = "<tool_call>rm</tool_call>",
           .content = "<tool_call>rm</tool_call>"},
          {.name = "prose after the marker",
           .text = "<tool_call>now then</tool_call>",
           .content = "<tool_call>now then</tool_call>"},
      }};
  for (const ParserVector& vector :
       {glm_value("s", "5", R"("5")"), glm_value("i", "5", "5"), glm_value("b", "true", "true"),
        glm_value("o", "{\"a\": 1}", R"({"a":1})"), glm_value("sn", "x", R"("x")"),
        glm_value("s", "\nkeeps\n", R"("\nkeeps\n")"), glm_value("a", "[1, 2]", "[1,2]")}) {
    family.vectors.push_back(vector);
  }
  return family;
}

ParserVectors minimax_vectors() {
  const std::string begin = "<minimax:tool_call>\n<invoke name=\"set\">\n";
  const std::string end = "\n</invoke>\n</minimax:tool_call>";
  return {
      ToolFormat::kMinimax,
      {"<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"},
      {
          {.name = "a call after thoughts",
           .text = "I look.\n</think>\n\nSo:\n" + begin + "<parameter name=\"s\">5</parameter>\n" +
                   "<parameter name=\"i\">5</parameter>" + end + "\n",
           .reasoning = "I look.",
           .content = "So:",
           .calls = {{"", "set", R"({"s":"5","i":5})", true}},
           .begins_in_reasoning = true},
          {.name = "two calls",
           .text = "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"read\">\n"
                   "<parameter name=\"path\">x</parameter>\n</invoke>\n</minimax:tool_call>",
           .calls = {{"", "now", "{}", true}, {"", "read", R"({"path":"x"})", true}}},
          {.name = "tags in a value",
           .text = begin + "<parameter name=\"s\"><p></parameter></invoke> x</parameter>" + end,
           .calls = {{"", "set", R"({"s":"<p></parameter></invoke> x"})", true}}},
          {.name = "no quotes",
           .text = begin + "<parameter name=s>x</parameter>" + end,
           .calls = {{"", "set", R"({"s":"x"})", true}}},
          {.name = "a tool that is not offered",
           .text = "<minimax:tool_call>\n<invoke name=\"rm\">\n</invoke>\n</minimax:tool_call>",
           .content = "<minimax:tool_call>\n<invoke name=\"rm\">\n</invoke>\n</minimax:tool_call>"},
          {.name = "thoughts between calls",
           .text = "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>\n"
                   "<think>again</think>Done.",
           .reasoning = "again",
           .content = "Done.",
           .calls = {{"", "now", "{}", true}}},
          {.name = "cut within a value",
           .text = begin + "<parameter name=\"s\">ab",
           .calls = {{"", "set", R"({"s":"ab)", false}},
           .is_cut = true},
      }};
}

}  // namespace moepack::test
