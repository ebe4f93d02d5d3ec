// Measurements and allocations of bits. First byte, modulo 2: 0 a table of sensitivities, 1 an
// allocation. What is accepted survives being written and read again; a finished table is planned
// with.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "convert/quantize/bit_plan.h"
#include "convert/quantize/expert_bits.h"
#include "convert/quantize/sensitivity_table.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::test::require;

void check_bits(const moepack::ExpertBits& bits) {
  require(bits.layers.size() == bits.num_layers);
  const std::string once = moepack::expert_bits_text(bits);
  const auto again = moepack::parse_expert_bits(once, "fuzz");
  require(again.is_ok() && moepack::expert_bits_text(again.value()) == once);
}

// Small ones only: the plan's work grows with experts and widths.
void check_plan(const moepack::SensitivityTable& table) {
  const std::uint64_t experts = std::uint64_t{table.num_layers} * table.num_experts;
  if (!table.is_finished() || experts > 64 || table.bits.size() > 3) return;
  for (const std::uint32_t width : {table.bits.front(), table.bits.back()}) {
    const auto bytes = moepack::stored_bytes(table, {width, table.bits.front(), width});
    if (!bytes.is_ok() || bytes.value() > UINT64_MAX / experts) continue;
    const auto plan = moepack::plan_bits(table, bytes.value() * experts);
    require(plan.is_ok());
    require(plan.value().bits.forecast.pack_bytes <= bytes.value() * experts);
    check_bits(plan.value().bits);
  }
}

void check_table(const moepack::SensitivityTable& table) {
  require(table.layers.size() <= table.num_layers);
  const std::string once = moepack::sensitivity_text(table);
  const auto again = moepack::parse_sensitivity(once, "fuzz");
  require(again.is_ok() && moepack::sensitivity_text(again.value()) == once);
  check_plan(table);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto table = moepack::parse_sensitivity(rest, "fuzz");
    if (table.is_ok()) check_table(table.value());
  } else {
    const auto bits = moepack::parse_expert_bits(rest, "fuzz");
    if (bits.is_ok()) check_bits(bits.value());
  }
  return 0;
}
