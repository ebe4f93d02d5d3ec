// An activation dump of the flash-moe engines: what opens is read, layer by layer.
#include <cstddef>
#include <cstdint>

#include "formats/flashmoe/flashmoe_activations.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

namespace {

using moepack::test::require;

constexpr moepack::ActivationDumpDimensions kDims{
    .num_layers = 3, .num_experts = 5, .hidden_size = 2};

void read_layers(const moepack::FlashMoeActivations& dump, std::size_t size) {
  std::uint64_t records = 0;
  for (std::uint32_t layer = 0; layer < kDims.num_layers; ++layer) {
    const std::uint64_t tokens = dump.tokens(layer);
    records += tokens;
    const auto read = dump.read_layer(layer);
    if (!read.is_ok()) continue;
    require(read.value().tokens == tokens && tokens > 0);
    require(read.value().inputs.size() == tokens * kDims.hidden_size);
    for (std::uint16_t expert : read.value().experts) require(expert < kDims.num_experts);
  }
  require(records * (8 + dump.experts_per_token() * 12) == size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const auto dump = moepack::FlashMoeActivations::open(memory.path(), kDims);
  if (dump.is_ok()) read_layers(dump.value(), size);
  return 0;
}
