// Generated text taken apart: thoughts, content and calls of tools, as they come.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/chat/tool_format.h"

namespace moepack {

// A token's bytes. A marker that is an added token of the vocabulary is recognised only where a
// piece is that token, and one that is ordinary text anywhere in the text.
struct OutputPiece {
  std::string_view bytes;
  bool is_added = false;  // an added token of the tokenizer
};

struct ParsedReasoning {
  std::string text;
};
struct ParsedContent {
  std::string text;
};
struct ParsedCallBegin {
  std::string id, name;
};  // id is empty unless the family writes one
struct ParsedCallArguments {
  std::string fragment;
};
struct ParsedCallEnd {};
using ParsedOutput = std::variant<ParsedReasoning, ParsedContent, ParsedCallBegin,
                                  ParsedCallArguments, ParsedCallEnd>;

struct OutputParserOptions {
  ToolFormat format = ToolFormat::kNone;
  bool begins_in_reasoning = false;  // the prompt has opened the thoughts
  bool parses_reasoning = true;      // else they stay content, markers and all
  bool parses_calls = false;         // tools are offered
  std::vector<ToolSpec> tools = {};  // types of arguments, names
  // The literal markers of thoughts, e.g. "<think>" and "</think>"; empty: the format's own.
  std::string reasoning_begin = {}, reasoning_end = {};
  // Which marker texts are added tokens of the vocabulary.
  std::vector<std::string> added_tokens = {};
};

// A pure function of the pieces pushed: however a text is cut into pieces of plain text, the joined
// outputs are the same, and those of a prefix are a prefix of them but for what is held back. Never
// fails: what is no call stays content. One thread at a time.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  // What is certain now.
  virtual std::vector<ParsedOutput> push(const OutputPiece& piece) = 0;
  // The rest. `is_cut`: the text was cut off, so a call that is not complete is not ended.
  virtual std::vector<ParsedOutput> finish(bool is_cut) = 0;
  // Whether the text stands in thoughts now: what follows a budget and decides when constraints
  // begin.
  virtual bool is_in_reasoning() const = 0;
  // Whether it stands in a call, from the name on to the end of what belongs to it: texts that end
  // an answer are not looked for there.
  virtual bool is_in_call() const = 0;
  // Whether `next`, which is not empty and not pushed yet, would begin within a call, within what
  // frames calls and messages (markers, headers, what stands between a call's arguments and its
  // closing marker, blanks behind that) or with line ends that are told to nobody: a text that ends
  // an answer does not begin there. Where a marker that is plain text may begin in content, false.
  virtual bool is_in_frame(const OutputPiece& next) const = 0;
};

std::unique_ptr<OutputParser> make_output_parser(OutputParserOptions options);

}  // namespace moepack
