// Texts that models wrote or may write, and what they mean.
#pragma once

#include <string>
#include <vector>

#include "runtime/chat/output_parser.h"
#include "tests/support/parsed_text.h"

namespace moepack::test {

struct ParserVector {
  std::string name;
  std::string text;  // "@@" within a marker keeps it from being an added token
  std::string reasoning = {};
  std::string content = {};
  std::vector<ParsedCall> calls = {};  // is_ended: complete
  bool begins_in_reasoning = false;
  bool is_cut = false;
  bool parses_calls = true;
  bool parses_reasoning = true;
  bool has_tools = true;  // else any name counts
};

// A family's vectors; `added_tokens` of its published vocabulary.
struct ParserVectors {
  ToolFormat format = ToolFormat::kNone;
  std::vector<std::string> added_tokens;
  std::vector<ParserVector> vectors;
};

std::vector<ParserVectors> all_parser_vectors();
ParserVectors plain_vectors();
ParserVectors hermes_vectors();
ParserVectors qwen_xml_vectors();
ParserVectors harmony_vectors();
ParserVectors deepseek_vectors();
ParserVectors dsml_vectors();
ParserVectors glm_vectors();
ParserVectors kimi_vectors();
ParserVectors minimax_vectors();

OutputParserOptions vector_options(const ParserVectors& family, const ParserVector& vector);

}  // namespace moepack::test
