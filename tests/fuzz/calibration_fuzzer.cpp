// A calibration's texts and layer files. First byte: 0 the manifest, 1 the state of an unfinished
// one, else a layer file as it is, with a manifest that agrees with its checksum; the next three
// bytes are then tokens, hidden size and number of experts.
#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "formats/base/checksum.h"
#include "formats/calibration/calibration.h"
#include "formats/calibration/calibration_state.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::test::require;

// What a reader accepts must survive being written and read again.
template <typename Parse, typename Text>
void round_trip(std::string_view text, Parse parse, Text to_text) {
  const auto value = parse(text, "fuzz");
  if (!value.is_ok()) return;
  const std::string once = to_text(value.value());
  const auto again = parse(once, "fuzz");
  require(again.is_ok() && to_text(again.value()) == once);
}

void read_layer(std::string_view input) {
  if (input.size() < 3) return;
  moepack::CalibrationManifest m;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  m.tokens = 1 + byte(0) * std::uint64_t{byte(0)};
  m.hidden_size = 1 + byte(1);
  m.num_experts = 2 + byte(2) % 16;
  m.experts_per_token = 2;
  m.num_layers = 1;
  const std::string_view file = input.substr(3);
  const int fd = ::memfd_create("layer", 0);
  require(fd >= 0);
  require(::pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
  moepack::CalibrationLayer layer;
  layer.file = std::to_string(fd);
  layer.file_size = file.size();
  layer.checksum = moepack::checksum(std::as_bytes(std::span(file)));
  // Every expert as often as the others: one input of the corpus is such a layer.
  layer.samples.assign(m.num_experts, m.tokens * 2 / m.num_experts);
  m.layers.push_back(layer);
  const auto read = moepack::read_layer_activations("/proc/self/fd", m, 0);
  if (read.is_ok()) {
    require(read.value().inputs.size() == m.tokens * m.hidden_size);
    require(read.value().experts.size() == m.tokens * 2);
  }
  ::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) {
    round_trip(rest, moepack::parse_calibration_manifest, moepack::calibration_manifest_text);
  } else if (data[0] % 3 == 1) {
    round_trip(rest, moepack::parse_calibration_state, moepack::calibration_state_text);
  } else {
    read_layer(rest);
  }
  return 0;
}
