#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/score/kl_stats.h"
#include "runtime/score/kld_base.h"

// Opens the bytes as a base file and decodes every row; whatever decodes must go through the
// statistics.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moepack;
  ByteSource source{.name = "fuzz",
                    .size = size,
                    .read_at = [data](std::uint64_t offset, std::span<std::byte> out) {
                      if (!out.empty()) std::memcpy(out.data(), data + offset, out.size());
                      return Status::ok();
                    }};
  auto reader = KldBaseReader::open(std::move(source));
  if (!reader.is_ok()) return 0;
  std::vector<float> row(reader.value().vocab_size());
  KlAccumulator accumulator;
  for (std::size_t r = 0; r < reader.value().rows(); ++r) {
    if (!reader.value().read_row(r, row).is_ok()) continue;
    if (!accumulator.add_log_probs(row, row, 0).is_ok()) __builtin_trap();
  }
  (void)accumulator.report();
  return 0;
}
