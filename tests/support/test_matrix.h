// Random matrices of every weight format for kernel tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"
#include "formats/weights/qcodec.h"
#include "formats/weights/qformat.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/half_fields.h"

namespace moepack::test {

// All weight formats with all their parameters.
inline std::vector<WeightFormat> all_weight_formats() {
  std::vector<WeightFormat> formats;
  for (const QFormatInfo& info : qformats()) {
    if (info.kind != QKind::kAffine) {
      formats.push_back({.id = info.id});
      continue;
    }
    for (std::uint32_t group : {32U, 64U, 128U}) {
      for (DType scale : {DType::kBf16, DType::kF16}) {
        formats.push_back({.id = info.id, .group_size = group, .scale_type = scale});
      }
    }
  }
  return formats;
}

// Those that GPUs have programs for: all.
inline std::vector<WeightFormat> gpu_weight_formats() { return all_weight_formats(); }

enum class Values {
  kUsual,      // weights about 0.1, negative scales included, every fifth row zero
  kSubnormal,  // scales (plain: weights) below the smallest normal number of their type
  kHuge,       // as large as products and sums allow
};

// One component of a matrix. It lies directly before a guard page, or `shift` bytes into an
// allocation of its own, which gives odd addresses; there the sanitizer watches the end.
class Bytes {
 public:
  Bytes(std::span<const std::byte> bytes, std::size_t shift) : shift_(shift) {
    if (shift == 0) {
      guarded_ = GuardedBytes(bytes.size());
      if (!bytes.empty()) std::memcpy(guarded_.data(), bytes.data(), bytes.size());
    } else {
      plain_.resize(shift);
      plain_.insert(plain_.end(), bytes.begin(), bytes.end());
      plain_.shrink_to_fit();
    }
  }
  const std::byte* data() const { return shift_ == 0 ? guarded_.data() : plain_.data() + shift_; }

 private:
  std::size_t shift_;
  GuardedBytes guarded_;
  std::vector<std::byte> plain_;
};

class TestMatrix {
 public:
  TestMatrix(const WeightFormat& format, std::uint64_t rows, std::uint64_t cols, Values values,
             std::size_t shift, std::uint32_t seed)
      : view_{.format = format, .rows = rows, .cols = cols} {
    std::mt19937 random(seed);
    const std::vector<std::byte> weight = random_weight(format, rows, cols, values, random);
    const auto groups = static_cast<std::size_t>(is_affine(format) ? cols / format.group_size : 0);
    components_.emplace_back(weight, shift);
    components_.emplace_back(random_scales(format, rows, groups, values, random), shift);
    components_.emplace_back(random_scales(format, rows, groups, values, random), shift);
    view_.data.codes() = components_[0].data();
    view_.data[Component::kScales] = components_[1].data();
    view_.data[Component::kBiases] = components_[2].data();
  }

  const QMatrixView& view() const { return view_; }

 private:
  static std::vector<std::byte> random_weight(const WeightFormat& format, std::uint64_t rows,
                                              std::uint64_t cols, Values values,
                                              std::mt19937& random) {
    switch (qformat_info(format.id).kind) {
      case QKind::kAffine:
        return random_codes(matrix_bytes(format, rows, cols).value().codes(), random);
      case QKind::kBlock:
        return random_blocks(format, rows, cols, values, random);
      default:
        return random_plain(format, rows, cols, values, random);
    }
  }

  // Random bytes, except for the 16-bit floats that scale a block.
  static std::vector<std::byte> random_blocks(const WeightFormat& format, std::uint64_t rows,
                                              std::uint64_t cols, Values values,
                                              std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const QFormatInfo& info = qformat_info(format.id);
    std::vector<std::byte> bytes =
        random_codes(matrix_bytes(format, rows, cols).value().codes(), random);
    const std::uint64_t row_blocks = cols / info.block_values;
    for (std::uint64_t block = 0; block < rows * row_blocks; ++block) {
      const float scale =
          block / row_blocks % 5 == 4 ? 0.0F : 0.1F * magnitude(DType::kF16, values);
      set_block_scales(format.id, bytes.data() + block * info.block_bytes, scale, uniform, random);
    }
    return bytes;
  }

  // Those of our own blocks, and codes of eight bits that are numbers. False for other formats.
  static bool set_own_scales(QFormatId id, std::byte* block, float scale,
                             std::uniform_real_distribution<float>& uniform, std::mt19937& random) {
    const auto make_number = [](std::byte& code) {
      if ((code & std::byte{0x7f}) == std::byte{0x7f}) code = std::byte{0x38};
    };
    const int exponent = scale > 0 ? std::clamp(std::ilogb(scale), -126, 60) : -127;
    if (id == QFormatId::kMxfp8) {
      block[0] = static_cast<std::byte>(127 + exponent);
      for (std::size_t i = 0; i < 32; ++i) make_number(block[1 + i]);
    } else if (id == QFormatId::kF8E4M3) {
      store_le(block, scale * uniform(random));
      for (std::size_t i = 0; i < 128; ++i) make_number(block[4 + i]);
    } else if (id == QFormatId::kNvfp4Scaled) {
      // Every other one divides.
      const float factor = std::max(scale, 1e-20F) * (1 + std::abs(uniform(random)));
      store_le(block, random() % 2 == 0 ? factor / 256 : -256 / factor);
      for (std::size_t i = 0; i < 8; ++i) make_number(block[4 + i]);
    } else {
      return false;
    }
    return true;
  }

  // Replaces what scales a block by random numbers up to `scale`.
  static void set_block_scales(QFormatId id, std::byte* block, float scale,
                               std::uniform_real_distribution<float>& uniform,
                               std::mt19937& random) {
    const auto half = [&] { return f32_to_f16(scale * uniform(random)); };
    if (set_own_scales(id, block, scale, uniform, random)) return;
    if (id == QFormatId::kMxfp4) {  // a power of two; there is no zero
      const int exponent = scale > 0 ? std::ilogb(scale) : -127;
      block[0] = static_cast<std::byte>(std::clamp(127 + exponent, 0, 254));
    } else if (id == QFormatId::kNvfp4) {  // unsigned, from 2^-9 to 448
      const int exponent = scale > 0 ? std::clamp(std::ilogb(scale) + 7, 0, 14) : -1;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto mantissa = static_cast<int>(random() % 8);
        block[i] = static_cast<std::byte>(exponent < 0 ? 0 : exponent * 8 + mantissa);
      }
    } else if (id == QFormatId::kIq1M) {  // a quarter in the top four bits of each of four words
      const std::uint16_t d = half();
      for (std::size_t i = 0; i < 4; ++i) {
        const auto low = std::to_integer<std::uint32_t>(block[49 + 2 * i]) & 15U;
        block[49 + 2 * i] = static_cast<std::byte>(low | ((d >> (4 * i)) & 15U) << 4);
      }
    } else {
      for (std::size_t offset : half_fields(id)) store_le(block + offset, half());
    }
  }

  static std::vector<std::byte> random_codes(std::uint64_t size, std::mt19937& random) {
    std::vector<std::byte> bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xffU);
    return bytes;
  }

  static float magnitude(DType type, Values values) {
    if (values == Values::kUsual) return 0.1F;
    if (values == Values::kSubnormal) return type == DType::kF16 ? 0x1p-17F : 0x1p-129F;
    return type == DType::kF16 ? 3e4F : 1e18F;
  }

  static void append(std::vector<std::byte>& bytes, DType type, float value) {
    std::byte raw[4];
    std::size_t size = 2;
    if (type == DType::kF32) {
      store_le(raw, value);
      size = 4;
    } else if (type == DType::kF16) {
      store_le(raw, f32_to_f16(value));
    } else {
      store_le(raw, f32_to_bf16(value));
    }
    bytes.insert(bytes.end(), raw, raw + size);
  }

  static std::vector<std::byte> random_floats(DType type, std::uint64_t rows, std::uint64_t cols,
                                              Values values, std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<std::byte> bytes;
    for (std::uint64_t r = 0; r < rows; ++r) {
      const float scale = r % 5 == 4 ? 0.0F : magnitude(type, values);
      for (std::uint64_t c = 0; c < cols; ++c) append(bytes, type, scale * uniform(random));
    }
    return bytes;
  }
  static std::vector<std::byte> random_plain(const WeightFormat& format, std::uint64_t rows,
                                             std::uint64_t cols, Values values,
                                             std::mt19937& random) {
    return random_floats(qformat_info(format.id).storage, rows, cols, values, random);
  }
  static std::vector<std::byte> random_scales(const WeightFormat& format, std::uint64_t rows,
                                              std::uint64_t groups, Values values,
                                              std::mt19937& random) {
    return random_floats(format.scale_type, rows, groups, values, random);
  }

  QMatrixView view_;
  std::vector<Bytes> components_;
};

// The smallest number of inputs that is at least `cols` and that the format can hold; for formats
// whose rows may have any multiple of 128, `cols` is one.
inline std::uint64_t fitting_cols(const WeightFormat& format, std::uint64_t cols) {
  const std::uint32_t block = qformat_info(format.id).block_values;
  return block == 0 ? cols : align_up(cols, block);
}

}  // namespace moepack::test
