// The head of a file of --prompt-cache; what follows it is saved_sequence_fuzzer's.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "formats/base/checksum.h"
#include "runtime/prompt_file.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/same_head.h"

namespace {

// What can be read is written again as it was.
void read_and_write(const std::vector<std::byte>& bytes) {
  const auto head = moepack::parse_prompt_head(bytes, bytes.size(), "fuzz");
  moepack::test::check_message(head.status());
  if (!head.is_ok()) return;
  const std::vector<std::byte> again = moepack::prompt_head_bytes(head.value());
  moepack::test::require(again.size() + head.value().sequence_bytes == bytes.size());
  moepack::test::require_same_head(bytes, again);
}

}  // namespace

// Reads the bytes as they are, and once more with the checksum put right where the head would end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  read_and_write(bytes);
  constexpr std::size_t kTokensAt = 40;
  constexpr std::size_t kFixedBytes = 56;
  std::uint64_t tokens = 0;
  if (size < kFixedBytes) return 0;
  std::memcpy(&tokens, bytes.data() + kTokensAt, sizeof tokens);
  if (tokens > (size - kFixedBytes) / 4) return 0;
  const std::size_t end = kFixedBytes + 4 * tokens;
  if (size - end < sizeof(std::uint64_t)) return 0;
  const std::uint64_t sum = moepack::checksum(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
  read_and_write(bytes);
  return 0;
}
