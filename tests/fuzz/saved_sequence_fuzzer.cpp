#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "formats/base/checksum.h"
#include "runtime/model/cpu_forward.h"
#include "runtime/model/saved_sequence.h"
#include "tests/fuzz/require.h"

namespace {

// A layer of each kind, of a few numbers.
moepack::ModelConfig tiny_config() {
  moepack::ModelConfig config;
  config.num_layers = 2;
  config.layers = {moepack::LayerSpec{.mixer = moepack::GatedDeltaNetSpec{}},
                   moepack::LayerSpec{.mixer = moepack::FullAttentionSpec{}}};
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 2;
  config.linear_key_heads = 1;
  config.linear_value_heads = 1;
  config.linear_key_dim = 2;
  config.linear_value_dim = 3;
  config.linear_conv_taps = 2;
  return config;
}

// What can be read is written again as the same bytes.
void read_and_write(const std::vector<std::byte>& bytes, const moepack::StateForm& form) {
  const moepack::StateIdentity identity{
      .model = 42, .context = 300, .kv_encoding = form.kv.encoding};
  auto made = moepack::make_cpu_state(tiny_config(), identity.context, form);
  moepack::test::require(made.is_ok());
  const std::unique_ptr<moepack::SequenceState> state = std::move(made).value();
  const auto position = moepack::load_sequence(identity, bytes, {.file = "fuzz"}, *state);
  moepack::test::check_message(position.status());
  if (!position.is_ok()) return;
  moepack::test::require(position.value() <= identity.context);
  const auto again = moepack::save_sequence(identity, position.value(), *state);
  moepack::test::require(again.is_ok() && again.value() == bytes);
}

void read_in_all_forms(const std::vector<std::byte>& bytes) {
  using moepack::KvEncoding;
  read_and_write(bytes, {.kv = {}, .delta = moepack::DeltaForm::kTokens});
  for (const KvEncoding encoding :
       {KvEncoding::kFloat32, KvEncoding::kBfloat16, KvEncoding::kFp8, KvEncoding::kFloat16}) {
    read_and_write(bytes, {.kv = {encoding, moepack::KvLayout::kBlocks},
                           .delta = moepack::DeltaForm::kBlocks});
  }
}

}  // namespace

// Reads the bytes as they are, and once more with the checksum put right.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  read_in_all_forms(bytes);
  std::uint64_t sum = 0;
  if (size < sizeof sum) return 0;
  sum = moepack::checksum(std::span(bytes).first(size - sizeof sum));
  std::memcpy(bytes.data() + size - sizeof sum, &sum, sizeof sum);
  read_in_all_forms(bytes);
  return 0;
}
