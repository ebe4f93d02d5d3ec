#include "runtime/chat/tool_format.h"

#include <array>

namespace moepack {
namespace {

struct ToolFormatName {
  ToolFormat format;
  std::string_view name;
};

constexpr std::array<ToolFormatName, 9> kToolFormatNames = {{
    {ToolFormat::kNone, "none"},
    {ToolFormat::kHermes, "hermes"},
    {ToolFormat::kQwenXml, "qwen-xml"},
    {ToolFormat::kHarmony, "harmony"},
    {ToolFormat::kDeepseek, "deepseek"},
    {ToolFormat::kDsml, "dsml"},
    {ToolFormat::kGlm, "glm"},
    {ToolFormat::kKimi, "kimi"},
    {ToolFormat::kMinimax, "minimax"},
}};

}  // namespace

std::string_view tool_format_name(ToolFormat format) {
  for (const ToolFormatName& entry : kToolFormatNames) {
    if (entry.format == format) return entry.name;
  }
  return "none";
}

std::optional<ToolFormat> find_tool_format(std::string_view name) {
  for (const ToolFormatName& entry : kToolFormatNames) {
    if (entry.name == name) return entry.format;
  }
  return std::nullopt;
}

}  // namespace moepack
