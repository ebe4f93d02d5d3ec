// The input is a whole GGUF file: its configuration is read, and what can be planned is read too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convert/pack/plan.h"
#include "convert/pack/transcode.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

namespace {

using moepack::test::check_message;
using moepack::test::require;

// Every row of the matrix, as a conversion without rounding reads it.
void read_matrix(const moepack::SourceMatrix& source, std::size_t size) {
  const auto bytes = moepack::matrix_bytes(source.format, source.rows, source.cols);
  // Heads that were split are put together again, decoded where they were blocks.
  constexpr std::size_t kMostGrowth = 32;
  require(bytes.has_value());
  require(source.encoded != nullptr
              ? bytes->codes() <= kMostGrowth * size
              : bytes->codes() == source.slices.codes().bytes && bytes->codes() <= size);
  std::vector<std::byte> out(bytes->codes());
  moepack::Transcoder transcoder;
  check_message(transcoder.run(source, source.format, 0, source.rows,
                               moepack::affine_components<std::span<std::byte>>(out)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  auto model = moepack::GgufModel::open(memory.path());
  if (!model.is_ok()) return 0;  // fuzz_gguf
  const auto source = moepack::ModelSource::of(std::move(model).value());
  check_message(source.status());
  if (!source.is_ok()) return 0;
  const auto plan = moepack::make_plan(source.value(), {});
  check_message(plan.status());
  if (!plan.is_ok()) return 0;
  require(plan.value().source_bytes <= size);
  for (const auto& matrix : plan.value().resident_sources) read_matrix(matrix, size);
  const moepack::PackManifest& pack = plan.value().pack;
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    if (pack.experts_of(layer) == 0) continue;  // a dense one
    for (moepack::Projection p : moepack::kAllProjections) {
      read_matrix(plan.value().experts.of(layer, pack.num_experts - 1, p), size);
    }
  }
  return 0;
}
