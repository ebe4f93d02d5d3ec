// The parser of each family. Made by make_output_parser.
#pragma once

#include <memory>

#include "runtime/chat/output_parser.h"

namespace moepack {

std::unique_ptr<OutputParser> make_hermes_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_qwen_xml_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_harmony_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_deepseek_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_dsml_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_glm_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_kimi_parser(OutputParserOptions options);
std::unique_ptr<OutputParser> make_minimax_parser(OutputParserOptions options);

}  // namespace moepack
