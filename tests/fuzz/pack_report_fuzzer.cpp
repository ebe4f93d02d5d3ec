#include <cstddef>
#include <cstdint>
#include <string_view>

#include "convert/pack_report.h"

// Anything may stand in a report; the reader takes what it knows and never fails on the rest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)moepack::parse_pack_report(text, "fuzz");
  return 0;
}
