#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto result = moepack::parse_json(text, moepack::Where{.file = "fuzz"});
  if (result.is_ok()) (void)result.value().type();
  return 0;
}
