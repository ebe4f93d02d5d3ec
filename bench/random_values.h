// Random tensor data that looks like trained weights to a quantizer, made faster than a disk takes
// it: the values of a distribution stand rounded in a table, and random bits choose among them.
//
// Plain weights are logistic (excess kurtosis 1.2: heavier tails than a Gaussian) with a gain of
// their own per row; affine codes and scales have the distributions that rounding such weights in
// groups of 64 gives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/dtype.h"

namespace moepack::bench {

enum class ValueKind : std::uint8_t {
  kWeight,   // BF16, mean 0, standard deviation `spread`
  kUniform,  // BF16 or F32 in [center - spread, center + spread)
  kCode4,    // affine codes, two a byte
  kCode8,    // affine codes, one a byte
  kScale4,   // BF16 scales of 4-bit groups whose weights have the standard deviation `spread`
  kBias4,    // their biases
  kScale8,
  kBias8,
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<std::uint64_t> shape;
  ValueKind kind = ValueKind::kWeight;
  float center = 0;
  float spread = 0;
  // A hash on which the values depend beside the seed. Scales and biases of a module share it.
  std::uint64_t key = 0;

  std::uint64_t elements() const;
  std::uint64_t bytes() const { return elements() * dtype_bits(dtype) / 8; }
};

// Bytes of one block of a tensor; the last one is shorter. Blocks are independent of each other, so
// the data does not depend on who fills which.
constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;

// Immutable after construction; fill may be called from any number of threads.
class RandomValues {
 public:
  // Prepares the tables that `tensors` need.
  RandomValues(std::uint64_t seed, std::span<const TensorSpec> tensors);

  // Fills `out` with block `block` of `tensor`.
  void fill(const TensorSpec& tensor, std::uint64_t block, std::span<std::byte> out) const;

 private:
  static constexpr std::size_t kEntries = 4096;
  static constexpr std::size_t kGains = 8;
  using Table16 = std::array<std::uint16_t, kEntries>;
  using Table8 = std::array<std::uint8_t, kEntries>;
  // One table per row gain for weights, else one.
  using Tables = std::vector<Table16>;

  static Tables make_tables(ValueKind kind, float spread);
  void fill_weights(const TensorSpec& tensor, std::uint64_t block, std::span<std::byte> out) const;
  std::uint64_t stream_seed(const TensorSpec& tensor, std::uint64_t block) const;

  std::uint64_t seed_;
  std::map<std::pair<ValueKind, float>, std::unique_ptr<Tables>> tables_;
  Table8 codes4_;
  Table8 codes8_;
};

}  // namespace moepack::bench
