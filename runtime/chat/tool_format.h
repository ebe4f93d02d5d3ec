// How a family of models writes its calls of tools and its thoughts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moepack {

enum class ToolFormat : std::uint8_t {
  kNone,      // the family knows no calls
  kHermes,    // <tool_call>{"name":…,"arguments":…}</tool_call>: Qwen2.5, Qwen3, Qwen3-Next
  kQwenXml,   // <tool_call><function=f><parameter=k>…: Qwen3-Coder, Qwen3.5 and later
  kHarmony,   // channels of gpt-oss
  kDeepseek,  // <｜tool▁calls▁begin｜>…: DeepSeek V3, V3.1, R1
  kDsml,      // <｜DSML｜function_calls>…: DeepSeek V3.2, V4
  kGlm,       // <tool_call>f<arg_key>…: GLM-4.5 and later
  kKimi,      // <|tool_calls_section_begin|>…: Kimi K2
  kMinimax,   // <minimax:tool_call><invoke name=…>: MiniMax M2
};

std::string_view tool_format_name(ToolFormat format);  // as --tool-parser takes it
std::optional<ToolFormat> find_tool_format(std::string_view name);

}  // namespace moepack
