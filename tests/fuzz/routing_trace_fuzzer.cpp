// Traces of routing: what is read names nothing that the model does not have, and passes of a whole
// file are the same after another writing.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/calibration/trace_file.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

namespace {

using moepack::test::require;

void check_pass(const moepack::TraceModel& model, const moepack::TracePass& pass) {
  require(pass.tokens > 0 && pass.layers.size() <= model.num_layers);
  for (const moepack::TraceLayer& layer : pass.layers) {
    require(layer.layer < model.num_layers && layer.uses.size() <= model.num_experts);
    require(layer.misses <= layer.uses.size());
    for (const moepack::TraceUse& use : layer.uses) {
      require(use.expert < model.num_experts && use.tokens > 0 && use.tokens <= pass.tokens);
      require(model.bytes_of(layer.layer, use.expert) > 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile file({reinterpret_cast<const char*>(data), size});
  auto reader = moepack::TraceReader::open(file.path());
  moepack::test::check_message(reader.status());
  while (reader.is_ok()) {
    const auto pass = reader.value().next();
    moepack::test::check_message(pass.status());
    if (!pass.is_ok() || pass.value() == nullptr) break;
    check_pass(reader.value().model(), *pass.value());
    moepack::TraceBlock block;
    block.add(*pass.value());
    const auto bytes = block.take();
    const std::span<const std::byte> all = bytes;
    const auto head = moepack::parse_trace_block_head(all.first(16), "fuzz", 0);
    std::vector<moepack::TracePass> again;
    require(head.is_ok() && moepack::parse_trace_payload(head.value(), all.subspan(16),
                                                         reader.value().model(), "fuzz", 0, again)
                                .is_ok());
    require(again.size() == 1 && again.front() == *pass.value());
  }
  return 0;
}
