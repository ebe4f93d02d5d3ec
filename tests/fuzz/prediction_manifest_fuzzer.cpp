#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "formats/pack/prediction_manifest.h"
#include "tests/fuzz/require.h"

// What the reader accepts must survive being written and read again, and no tensor leaves the data.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moepack::test::require;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = moepack::parse_prediction_manifest(text, "fuzz");
  if (!manifest.is_ok()) {
    moepack::test::check_message(manifest.status());
    return 0;
  }
  for (const moepack::PredictionTensor& tensor : manifest.value().tensors) {
    require(tensor.offset <= manifest.value().data_size &&
            tensor.size <= manifest.value().data_size - tensor.offset);
    require(manifest.value().find(tensor.name) == &tensor);
  }
  const std::string once = moepack::prediction_manifest_text(manifest.value());
  const auto again = moepack::parse_prediction_manifest(once, "fuzz");
  require(again.is_ok() && moepack::prediction_manifest_text(again.value()) == once);
  return 0;
}
