// Vectors of the families whose arguments are JSON. Numbers are reports of the sort that a vector
// keeps from coming back.
#include "tests/runtime/chat/parser_vectors.h"

namespace moepack::test {

ParserVectors plain_vectors() {
  return {
      ToolFormat::kNone,
      {"<think>", "</think>"},
      {
          {.name = "content alone", .text = "Hello.\n\nWorld \n", .content = "Hello.\n\nWorld \n"},
          {.name = "thoughts first",
           .text = "<think>\nWhy not?\n\n</think>\n\nYes.\n",
           .reasoning = "Why not?",
           .content = "Yes.\n"},
          {.name = "thoughts that the prompt opened",
           .text = "\nWhy not?\n</think>\n\n  Yes.",
           .reasoning = "Why not?",
           .content = "  Yes.",
           .begins_in_reasoning = true},
          {.name = "the model opens them again",
           .text = "<think>\nWhy?\n</think>\nYes.",
           .reasoning = "Why?",
           .content = "Yes.",
           .begins_in_reasoning = true},
          {.name = "thoughts that never end",
           .text = "and so on\n",
           .reasoning = "and so on\n",
           .begins_in_reasoning = true},
          {.name = "thoughts stay content",
           .text = "<think>\nWhy?\n</think>\nYes.",
           .content = "<think>\nWhy?\n</think>\nYes.",
           .parses_reasoning = false},
          {.name = "marker in words is a word",
           .text = "Write <think@@> before thoughts and </think@@> behind.",
           .content = "Write <think> before thoughts and </think> behind."},
          {.name = "an end without a beginning", .text = "</think>\n\nYes.", .content = "Yes."},
          {.name = "a stray beginning at the end loses nothing (llama.cpp 27733)",
           .text = "The answer is 4.\n<think>",
           .content = "The answer is 4."},
          {.name = "tool markers of others are text",
           .text = "<tool_call>{\"name\":\"read\"}</tool_call>",
           .content = "<tool_call>{\"name\":\"read\"}</tool_call>"},
          {.name = "wrong bytes become one character each",
           .text = "a\xff"
                   "b\xe2\x82",
           .content = "a\xef\xbf\xbd"
                      "b\xef\xbf\xbd"},
          {.name = "a cut character is dropped",
           .text = "a\xe2\x82",
           .content = "a",
           .is_cut = true},
      }};
}

ParserVectors hermes_vectors() {
  const std::string end = "</tool_call>";
  return {
      ToolFormat::kHermes,
      {"<think>", "</think>", "<tool_call>", "</tool_call>"},
      {
          {.name = "one call",
           .text =
               "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a b\", \"limit\": "
               "5}}\n</tool_call>",
           .calls = {{"", "read", R"({"path":"a b","limit":5})", true}}},
          {.name = "two calls after words and thoughts",
           .text = "<think>\nI look.\n</think>\n\nLet me see.\n\n<tool_call>\n{\"name\": \"read\", "
                   "\"arguments\": {\"path\": \"x\"}}\n</tool_call>\n<tool_call>\n{\"name\": "
                   "\"now\", \"arguments\": {}}\n</tool_call>\n",
           .reasoning = "I look.",
           .content = "Let me see.",
           .calls = {{"", "read", R"({"path":"x"})", true}, {"", "now", "{}", true}}},
          {.name = "arguments before the name",
           .text = "<tool_call>{\"arguments\": {\"path\": \"x\"}, \"name\": \"read\"}</tool_call>",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "arguments as a string",
           .text = "<tool_call>{\"name\": \"read\", \"arguments\": \"{\\\"path\\\": "
                   "\\\"x\\\"}\"}</tool_call>",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "parameters for arguments",
           .text = "<tool_call>{\"name\": \"read\", \"parameters\": {\"path\": \"x\"}}</tool_call>",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "no arguments",
           .text = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
           .calls = {{"", "now", "{}", true}}},
          {.name = "null for arguments",
           .text = "<tool_call>\n{\"name\": \"now\", \"arguments\": null}\n</tool_call>",
           .calls = {{"", "now", "{}", true}}},
          {.name = "members behind the arguments",
           .text = "<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}, \"id\": "
                   "\"7\"}</tool_call>done",
           .content = "done",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "the end marker is missing at the end of the turn",
           .text = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}}",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "a bracket is missing",
           .text = "<tool_call>\n{\"name\": \"set\", \"arguments\": {\"a\": [1, 2</tool_call>",
           .calls = {{"", "set", R"({"a":[1,2]})", true}}},
          {.name = "a bracket too many",
           .text = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}}}\n" + end,
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "line ends, Python and commas in the JSON",
           .text =
               "<tool_call>{\"name\": \"set\", \"arguments\": {\"s\": \"a\nb\\qc\", \"b\": True,"
               " 'o': {'x': None,}, \"a\": (1, 2), }}</tool_call>",
           .calls = {{"", "set", R"({"s":"a\nb\\qc","b":true,"o":{"x":null},"a":[1,2]})", true}}},
          {.name = "the end marker in a string is text",
           .text = "<tool_call>{\"name\": \"write\", \"arguments\": {\"text\": "
                   "\"</tool_call@@>\"}}</tool_call>",
           .calls = {{"", "write", R"({"text":"</tool_call>"})", true}}},
          {.name = "half of a surrogate pair",
           .text = R"(<tool_call>{"name": "set", "arguments": {"s": "\ud83d\ude00\ud83dx"}})" + end,
           .calls = {{"", "set", R"({"s":"\ud83d\ude00\ufffdx"})", true}}},
          {.name = "the marker is forgotten",
           .text = "{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}}\n",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "JSON that is an answer",
           .text = "{\"name\": \"Ada\", \"born\": 1815}",
           .content = "{\"name\": \"Ada\", \"born\": 1815}"},
          {.name = "JSON with words behind it",
           .text = "{\"name\": \"now\", \"arguments\": {}} is how to ask.",
           .content = "{\"name\": \"now\", \"arguments\": {}} is how to ask."},
          {.name = "the marker in a quotation is text",
           .text = "Use <tool_call@@>{\"name\": \"now\"}</tool_call@@> for it.",
           .content = "Use <tool_call>{\"name\": \"now\"}</tool_call> for it."},
          {.name = "the marker in prose does not silence what follows (club-3090 72)",
           .text = "Tools are called with <tool_call> and then JSON.\nThat is all.",
           .content = "Tools are called with <tool_call> and then JSON.\nThat is all."},
          {.name = "a tool that is not offered",
           .text = "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
           .content = "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>"},
          {.name = "any name when none is offered",
           .text = "<tool_call>\n{\"name\": \"rm\", \"arguments\": {\"f\": 1}}\n</tool_call>",
           .calls = {{"", "rm", R"({"f":1})", true}},
           .has_tools = false},
          {.name = "no tools, no calls",
           .text = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
           .content = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
           .parses_calls = false},
          {.name = "no JSON",
           .text = "<tool_call>\nread the file\n</tool_call>",
           .content = "<tool_call>\nread the file\n</tool_call>"},
          {.name = "JSON that breaks within the arguments",
           .text = "<tool_call>{\"name\": \"set\", \"arguments\": {\"i\": 1x}}</tool_call> sorry",
           .content =
               "<tool_call>{\"name\": \"set\", \"arguments\": {\"i\": 1x}}</tool_call> sorry",
           .calls = {{"", "set", R"({"i":)", false}}},
          {.name = "a call within thoughts that never ended (vllm 39056)",
           .text = "I should look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
                   "{}}\n</tool_call></think>",
           .reasoning = "I should look.",
           .calls = {{"", "now", "{}", true}},
           .begins_in_reasoning = true},
          {.name = "cut within the arguments (vllm 47761)",
           .text = "<tool_call>{\"name\": \"write\", \"arguments\": {\"path\": \"x\", \"te",
           .calls = {{"", "write", R"({"path":"x","te)", false}},
           .is_cut = true},
          {.name = "cut within the name",
           .text = "I write.\n<tool_call>{\"name\": \"wri",
           .content = "I write.",
           .is_cut = true},
          {.name = "an end repeated",
           .text = "<tool_call>{\"name\": \"now\"}</tool_call>\n</tool_call>\n\nSo.",
           .content = "So.",
           .calls = {{"", "now", "{}", true}}},
      }};
}

ParserVectors harmony_vectors() {
  const std::string call = "<|channel|>commentary to=functions.read <|constrain|>json<|message|>";
  return {
      ToolFormat::kHarmony,
      {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>",
       "<|return|>"},
      {
          {.name = "analysis and answer",
           .text = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final"
                   "<|message|>4<|return|>",
           .reasoning = "Easy.",
           .content = "4"},
          {.name = "analysis and call",
           .text = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant" + call +
                   "{\"path\": \"x\"}<|call|>",
           .reasoning = "Look.",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "the recipient in the role",
           .text = " to=functions.read<|channel|>commentary json<|message|>{\"path\": \"x\"}",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "a call in the analysis channel",
           .text = "<|channel|>analysis to=functions.read code<|message|>{\"path\":\"x\"}<|call|>",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "preamble, two calls and answer",
           .text = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + call +
                   "{}<|call|><|start|>assistant" + call +
                   "{\"limit\": 3}<|call|><|start|>assistant<|channel|>final<|message|>Done.",
           .content = "I look.\n\nDone.",
           .calls = {{"", "read", "{}", true}, {"", "read", R"({"limit":3})", true}}},
          {.name = "a channel twice (harmony 38)",
           .text = "<|channel|><|channel|>final<|message|>4",
           .content = "4"},
          {.name = "type and channel run together (vllm 23567)",
           .text = "<|channel|>commentaryjson to=functions.read<|message|>{}<|call|>",
           .calls = {{"", "read", "{}", true}}},
          {.name = "the recipient twice (vllm 46464)",
           .text = "<|start|>assistant to=functions.read<|channel|>commentary to=functions.read "
                   "<|constrain|>json<|message|>{}<|call|>",
           .calls = {{"", "read", "{}", true}}},
          {.name = "a message marker is missing (harmony 60)",
           .text = "<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>4",
           .content = "4"},
          {.name = "the header is missing", .text = "Hello <there>.", .content = "Hello <there>."},
          {.name = "arguments that are no JSON go on",
           .text = call + "{\"path\": nope}<|call|>",
           .calls = {{"", "read", R"({"path": nope})", true}}},
          {.name = "a call without arguments",
           .text = call + "<|call|>",
           .calls = {{"", "read", "{}", true}}},
          {.name = "cut within the arguments",
           .text = call + "{\"path\": \"x",
           .calls = {{"", "read", R"({"path":"x)", false}},
           .is_cut = true},
          {.name = "a tool that is not offered",
           .text = "<|channel|>commentary to=functions.rm<|message|>{}<|call|>",
           .content = "{}"},
          {.name = "thoughts stay content",
           .text = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final"
                   "<|message|>4",
           .content = "<|channel|>analysis<|message|>Easy.<|end|>\n\n4",
           .parses_reasoning = false},
          {.name = "thoughts that stay content lack their end",
           .text = "<|channel|>analysis<|message|>Easy.<|start|>assistant<|channel|>final"
                   "<|message|>4",
           .content = "<|channel|>analysis<|message|>Easy.\n\n4",
           .parses_reasoning = false},
          {.name = "two analyses",
           .text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis"
                   "<|message|>b<|end|>",
           .reasoning = "a\n\nb"},
          {.name = "markers in words are words",
           .text = "<|channel|>final<|message|>Write <|end@@|> there.",
           .content = "Write <|end|> there."},
      }};
}

ParserVectors deepseek_vectors() {
  const std::string begin = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
  const std::string end = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  return {
      ToolFormat::kDeepseek,
      {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
       "<｜tool▁calls▁end｜>", "<think>", "</think>"},
      {
          {.name = "one call",
           .text = "I look.\n" + begin + "read<｜tool▁sep｜>{\"path\": \"x\"}" + end,
           .content = "I look.",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "two calls in a section",
           .text =
               "thinking</think>" + begin +
               "read<｜tool▁sep｜>{\"path\": \"x\"}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now"
               "<｜tool▁sep｜>{}" +
               end,
           .reasoning = "thinking",
           .calls = {{"", "read", R"({"path":"x"})", true}, {"", "now", "{}", true}},
           .begins_in_reasoning = true},
          {.name = "the older form",
           .text = begin + "function<｜tool▁sep｜>read\n```json\n{\"path\": \"x\"}\n```" + end +
                   "\nDone.",
           .content = "Done.",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "misspelt by a model of few bits",
           .text = "<｜tool_calls_begin｜><｜tool calls begin｜><｜tool_call_begin｜>read"
                   "<｜tool_sep｜>{\"path\": \"x\"}<｜tool_call_end｜><｜tool_calls_end｜>",
           .content = "<｜tool_calls_begin｜>",
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "nothing for arguments",
           .text = begin + "now<｜tool▁sep｜>" + end,
           .calls = {{"", "now", "{}", true}}},
          {.name = "the section's begin is missing",
           .text = "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}" + end,
           .calls = {{"", "now", "{}", true}}},
          {.name = "a bracket is missing",
           .text = begin + "read<｜tool▁sep｜>{\"path\": \"x\"" + end,
           .calls = {{"", "read", R"({"path":"x"})", true}}},
          {.name = "the end comes within a string",
           .text = begin + "read<｜tool▁sep｜>{\"path\": \"x" + end,
           .content = begin + "read<｜tool▁sep｜>{\"path\": \"x" + end,
           .calls = {{"", "read", R"({"path":"x)", false}}},
          {.name = "a tool that is not offered",
           .text = begin + "rm<｜tool▁sep｜>{}" + end,
           .content = begin + "rm<｜tool▁sep｜>{}" + end},
          {.name = "cut before the separator",
           .text = "Hm." + begin + "rea",
           .content = "Hm.",
           .is_cut = true},
          {.name = "spelt in words",
           .text = "The marker <｜tool▁calls▁begin@@｜> begins calls.",
           .content = "The marker <｜tool▁calls▁begin｜> begins calls."},
      }};
}

ParserVectors kimi_vectors() {
  const std::string begin = "<|tool_calls_section_begin|><|tool_call_begin|>";
  const std::string mid = "<|tool_call_argument_begin|>";
  const std::string end = "<|tool_call_end|><|tool_calls_section_end|>";
  return {ToolFormat::kKimi,
          {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
           "<|tool_call_end|>", "<|tool_calls_section_end|>"},
          {
              {.name = "two calls with their ids",
               .text = "I look." + begin + "functions.read:0" + mid + "{\"path\": \"x\"}" +
                       "<|tool_call_end|><|tool_call_begin|>functions.now:1" + mid + "{}" + end,
               .content = "I look.",
               .calls = {{"functions.read:0", "read", R"({"path":"x"})", true},
                         {"functions.now:1", "now", "{}", true}}},
              {.name = "a point and a colon are missing (sglang 21377)",
               .text = begin + "functionsread0" + mid + "{}" + end,
               .calls = {{"functions.read:0", "read", "{}", true}}},
              {.name = "a colon is missing",
               .text = begin + " functions.read12 " + mid + "{}" + end,
               .calls = {{"functions.read:12", "read", "{}", true}}},
              {.name = "the name alone",
               .text = begin + "read" + mid + "{}" + end,
               .calls = {{"", "read", "{}", true}}},
              {.name = "the name and the number",
               .text = begin + "read:3" + mid + "{}" + end,
               .calls = {{"read:3", "read", "{}", true}}},
              {.name = "the section in the singular",
               .text = "<|tool_call_section_begin|><|tool_call_begin|>functions.now:0" + mid +
                       "{}<|tool_call_end|><|tool_call_section_end|>",
               .calls = {{"functions.now:0", "now", "{}", true}}},
              {.name = "within thoughts that never ended",
               .text = "<think>I look." + begin + "functions.now:0" + mid + "{}" + end,
               .reasoning = "I look.",
               .calls = {{"functions.now:0", "now", "{}", true}}},
              {.name = "no arguments",
               .text = begin + "functions.now:0" + mid + end,
               .calls = {{"functions.now:0", "now", "{}", true}}},
              {.name = "a tool that is not offered",
               .text = begin + "functions.rm:0" + mid + "{}" + end,
               .content = begin + "functions.rm:0" + mid + "{}" + end},
              {.name = "any name when none is offered",
               .text = begin + "functions.rm:0" + mid + "{}" + end,
               .calls = {{"functions.rm:0", "rm", "{}", true}},
               .has_tools = false},
              {.name = "another model's id is no name",
               .text = begin + "call_1234" + mid + "{}" + end,
               .content = begin + "call_1234" + mid + "{}" + end},
          }};
}

}  // namespace moepack::test
