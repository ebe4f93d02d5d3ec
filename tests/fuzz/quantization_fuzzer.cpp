// The input is the quantization of a config.json, and ModelOpt's own file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/config/model_config.h"
#include "tests/fuzz/require.h"

using moepack::test::check_message;
using moepack::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = moepack::parse_quantization(text, "fuzz");
  check_message(parsed.status());
  moepack::ParsedConfig config;
  if (parsed.is_ok()) {
    config = parsed.value();
    // What readers of tensors rely on without asking again.
    const moepack::SourceQuantization& named = config.source_quantization;
    require((named.block_rows == 0) == (named.block_cols == 0));
    require((named.code_widths & ~0x1fcU) == 0);
    require(!named.method.empty() || named == moepack::SourceQuantization{});
    if (config.quantization.has_value()) {
      require(named.method.empty());
      for (const auto& entry : config.quantization->overrides) {
        require(config.quantization->format_of(entry.module) == entry.format);
      }
    }
  }
  check_message(moepack::add_quantization_file(text, "fuzz", config));
  return 0;
}
