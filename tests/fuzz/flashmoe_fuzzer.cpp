#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "tests/fuzz/require.h"
#include "tests/support/flashmoe_model.h"

namespace {

using moepack::test::check_message;
using moepack::test::require;

// What the readers accept, `moepack import` writes in our form: that must be valid and the same.
void check_pack(const moepack::Result<moepack::PackManifest>& read) {
  if (!read.is_ok()) return check_message(read.status());
  moepack::PackManifest manifest = read.value();
  require(!manifest.has_checksums);
  manifest.source = {.name = "fuzz", .fingerprint = 0, .method = "import"};
  const std::string text = moepack::pack_manifest_text(manifest);
  const auto again = moepack::parse_pack_manifest(text, "fuzz");
  require(again.is_ok() && moepack::pack_manifest_text(again.value()) == text);
}

void check_residents(const moepack::Result<moepack::ResidentManifest>& read) {
  if (!read.is_ok()) return check_message(read.status());
  const std::string text = moepack::resident_manifest_text(read.value());
  const auto again = moepack::parse_resident_manifest(text, "fuzz");
  require(again.is_ok() && moepack::resident_manifest_text(again.value()) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const moepack::PackDimensions dims = moepack::test::flashmoe_dimensions();
  check_pack(moepack::parse_flashmoe_layout(text, "fuzz", dims));
  check_pack(moepack::parse_flashmoe_tiered(text, "fuzz", dims));
  const moepack::Status tiered = moepack::check_flashmoe_tiered_layout(text, "fuzz", dims);
  if (!tiered.is_ok()) check_message(tiered);
  check_residents(moepack::parse_flashmoe_resident(text, "fuzz", moepack::test::flashmoe_config()));
  return 0;
}
