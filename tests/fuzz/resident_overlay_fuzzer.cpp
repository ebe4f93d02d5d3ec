#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "formats/pack/resident_overlay.h"
#include "tests/fuzz/require.h"

// The first byte chooses the file's name. What the reader accepts of our own files must survive
// being written and read again; no matrix leaves what its size and offset say.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moepack::test::require;
  constexpr std::uint32_t kLayers = 7;
  if (size == 0) return 0;
  const auto group = moepack::kOverlayGroups[data[0] % moepack::kOverlayGroups.size()];
  const auto stems = moepack::overlay_stems(group);
  const std::string& stem = stems[data[0] / moepack::kOverlayGroups.size() % stems.size()];
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const moepack::Architecture& architecture = *moepack::find_architecture("qwen3_5_moe");
  const auto overlay = moepack::parse_resident_overlay(text, "fuzz", stem, architecture, kLayers);
  if (!overlay.is_ok()) {
    moepack::test::check_message(overlay.status());
    return 0;
  }
  for (const moepack::OverlayTensor& entry : overlay.value().tensors) {
    require(entry.layer < kLayers && entry.role->group == group);
    require(entry.tensor.offsets.codes() + entry.tensor.bytes.codes() >
            entry.tensor.offsets.codes());
  }
  if (!overlay.value().has_checksum) return 0;
  const std::string once = moepack::resident_overlay_text(overlay.value());
  const auto again = moepack::parse_resident_overlay(once, "fuzz", stem, architecture, kLayers);
  require(again.is_ok() && moepack::resident_overlay_text(again.value()) == once);
  return 0;
}
