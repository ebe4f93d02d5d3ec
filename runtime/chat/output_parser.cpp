#include "runtime/chat/output_parser.h"

#include <utility>

#include "runtime/chat/output_parser_core.h"
#include "runtime/chat/output_parser_families.h"

namespace moepack {

std::unique_ptr<OutputParser> make_output_parser(OutputParserOptions options) {
  switch (options.format) {
    case ToolFormat::kHermes:
      return make_hermes_parser(std::move(options));
    case ToolFormat::kQwenXml:
      return make_qwen_xml_parser(std::move(options));
    case ToolFormat::kHarmony:
      return make_harmony_parser(std::move(options));
    case ToolFormat::kDeepseek:
      return make_deepseek_parser(std::move(options));
    case ToolFormat::kDsml:
      return make_dsml_parser(std::move(options));
    case ToolFormat::kGlm:
      return make_glm_parser(std::move(options));
    case ToolFormat::kKimi:
      return make_kimi_parser(std::move(options));
    case ToolFormat::kMinimax:
      return make_minimax_parser(std::move(options));
    case ToolFormat::kNone:
      break;
  }
  return std::make_unique<OutputParserCore>(std::move(options));
}

}  // namespace moepack
