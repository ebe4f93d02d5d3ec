#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/pack/pack_manifest.h"

// What the reader accepts must survive being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = moepack::parse_pack_manifest(text, "fuzz");
  if (!manifest.is_ok()) return 0;
  const std::string once = moepack::pack_manifest_text(manifest.value());
  const auto again = moepack::parse_pack_manifest(once, "fuzz");
  if (!again.is_ok() || moepack::pack_manifest_text(again.value()) != once) std::abort();
  return 0;
}
