#include "bench/random_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "formats/base/bytes.h"

namespace moepack::bench {
namespace {

// xoshiro256** (Blackman and Vigna), seeded by splitmix64 as its authors advise.
std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

class Xoshiro {
 public:
  explicit Xoshiro(std::uint64_t seed) {
    for (std::uint64_t& word : s_) word = splitmix(seed);
  }
  std::uint64_t next() {
    const std::uint64_t result = std::rotl(s_[1] * 5, 7) * 9;
    const std::uint64_t t = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = std::rotl(s_[3], 45);
    return result;
  }

 private:
  std::array<std::uint64_t, 4> s_{};
};

// The quantile of the logistic distribution with standard deviation 1.
double logistic(double p) { return std::log(p / (1 - p)) * std::sqrt(3.0) / M_PI; }

// 64 logistic values span 5.2 standard deviations on average: the steps that cover them.
double step_of(ValueKind kind) {
  const bool is_8bit = kind == ValueKind::kScale8 || kind == ValueKind::kBias8;
  return 5.2 / (is_8bit ? 255 : 15);
}

// The code of the quantile `p`; codes are centred in [0, levels - 1].
std::uint8_t code_of(double p, double levels) {
  const double code = (levels - 1) / 2 + logistic(p) * (levels - 1) / 5.2;
  return static_cast<std::uint8_t>(std::clamp(std::floor(code + 0.5), 0.0, levels - 1));
}

constexpr std::uint64_t kSign = 0x8000;

// Three random numbers of 16 bits: the low 12 choose an entry, the highest is the sign.
template <typename Entry>
void fill_from(const Entry* table, bool has_sign, Xoshiro& random, std::span<std::byte> out) {
  const std::uint64_t sign = has_sign ? kSign : 0;
  std::array<Entry, 4> four;
  for (std::size_t at = 0; at < out.size(); at += sizeof(four)) {
    const std::uint64_t bits = random.next();
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint64_t number = bits >> (16 * i);
      four[i] = static_cast<Entry>(table[number & 0xfff] ^ (number & sign));
    }
    if (at + sizeof(four) <= out.size()) {
      std::memcpy(out.data() + at, four.data(), sizeof(four));
    } else {
      std::memcpy(out.data() + at, four.data(), out.size() - at);
    }
  }
}

void fill_uniform(const TensorSpec& tensor, Xoshiro& random, std::span<std::byte> out) {
  const std::size_t width = dtype_bits(tensor.dtype) / 8;
  for (std::size_t at = 0; at + width <= out.size(); at += width) {
    const float unit = static_cast<float>(random.next() >> 40) * 0x1p-23F - 1;  // [-1, 1)
    const float value = tensor.center + tensor.spread * unit;
    if (tensor.dtype == DType::kF32) {
      store_le(out.data() + at, value);
    } else {
      store_le(out.data() + at, f32_to_bf16(value));
    }
  }
}

}  // namespace

std::uint64_t TensorSpec::elements() const {
  std::uint64_t product = 1;
  for (std::uint64_t dimension : shape) product *= dimension;
  return product;
}

RandomValues::Tables RandomValues::make_tables(ValueKind kind, float spread) {
  const bool is_weight = kind == ValueKind::kWeight;
  Tables tables(is_weight ? kGains : 1);
  for (std::size_t g = 0; g < tables.size(); ++g) {
    // Gains between 0.66 and 1.52 whose squares have the mean 1.05.
    const double gain = std::exp(0.12 * (static_cast<double>(g) - 3.5));
    for (std::size_t i = 0; i < kEntries; ++i) {
      const double p = (static_cast<double>(i) + 0.5) / kEntries;
      double value = 0;
      if (is_weight) {
        value = spread * gain * logistic(0.5 + p / 2);  // the sign comes from the random bits
      } else {
        value = spread * step_of(kind) * std::exp(0.2 * logistic(p));
        if (kind == ValueKind::kBias4) value *= -7.5;
        if (kind == ValueKind::kBias8) value *= -127.5;
      }
      tables[g][i] = f32_to_bf16(static_cast<float>(value));
    }
  }
  return tables;
}

RandomValues::RandomValues(std::uint64_t seed, std::span<const TensorSpec> tensors) : seed_(seed) {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.kind == ValueKind::kUniform || tensor.kind == ValueKind::kCode4 ||
        tensor.kind == ValueKind::kCode8) {
      continue;
    }
    auto& slot = tables_[{tensor.kind, tensor.spread}];
    if (slot == nullptr) {
      slot = std::make_unique<Tables>(make_tables(tensor.kind, tensor.spread));
    }
  }
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::size_t second = i / 64;
    const double low = (static_cast<double>(i % 64) + 0.5) / 64;
    const double high = (static_cast<double>(second) + 0.5) / 64;
    codes4_[i] = static_cast<std::uint8_t>(code_of(low, 16) | code_of(high, 16) << 4);
    codes8_[i] = code_of((static_cast<double>(i) + 0.5) / kEntries, 256);
  }
}

std::uint64_t RandomValues::stream_seed(const TensorSpec& tensor, std::uint64_t block) const {
  std::uint64_t state = seed_;
  std::uint64_t mixed = splitmix(state) ^ tensor.key;
  state = splitmix(mixed) ^ block;
  return splitmix(state);
}

void RandomValues::fill_weights(const TensorSpec& tensor, std::uint64_t block,
                                std::span<std::byte> out) const {
  const Tables& tables = *tables_.at({tensor.kind, tensor.spread});
  Xoshiro random(stream_seed(tensor, block));
  const std::uint64_t row_bytes = 2 * tensor.shape.back();
  std::uint64_t at = block * kBlockBytes;  // in the tensor
  while (!out.empty()) {
    std::uint64_t row_state = tensor.key + at / row_bytes;
    const std::size_t gain = splitmix(row_state) % kGains;
    const std::uint64_t count = std::min<std::uint64_t>(out.size(), row_bytes - at % row_bytes);
    fill_from(tables[gain].data(), true, random, out.first(count));
    out = out.subspan(count);
    at += count;
  }
}

void RandomValues::fill(const TensorSpec& tensor, std::uint64_t block,
                        std::span<std::byte> out) const {
  if (tensor.kind == ValueKind::kWeight) return fill_weights(tensor, block, out);
  Xoshiro random(stream_seed(tensor, block));
  switch (tensor.kind) {
    case ValueKind::kUniform:
      return fill_uniform(tensor, random, out);
    case ValueKind::kCode4:
      return fill_from(codes4_.data(), false, random, out);
    case ValueKind::kCode8:
      return fill_from(codes8_.data(), false, random, out);
    default:
      // As MLX chooses them: a scale may be negative, its bias is then positive.
      return fill_from(tables_.at({tensor.kind, tensor.spread})->front().data(), true, random, out);
  }
}

}  // namespace moepack::bench
