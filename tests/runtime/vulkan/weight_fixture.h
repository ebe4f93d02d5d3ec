// What tests of programs that read weights share: matrices of every format on the device, at
// addresses as odd as records have them.
#pragma once

#include <cmath>
#include <random>
#include <string>

#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/weight_kernels.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"
#include "tests/support/test_matrix.h"

namespace moepack {

class WeightTest : public VulkanTest {
 protected:
  // A matrix whose components lie one after another, behind `shift` bytes.
  struct Stored {
    DeviceBuffer buffer;
    Components<std::uint64_t> address = {};
    WeightRows rows;
  };

  // A multiple of what the format's bytes must be a multiple of.
  static std::uint64_t least_shift(const WeightFormat& format) {
    if (format.id == QFormatId::kMxfp4) return 1;
    return format.id == QFormatId::kF32 || is_affine(format) ? 4 : 2;
  }

  static void append(const QMatrixView& view, std::vector<std::byte>& bytes,
                     Components<std::uint64_t>& offset) {
    const MatrixBytes sizes = matrix_bytes(view.format, view.rows, view.cols).value();
    for (const Component c : stored_components(view.format)) {
      offset[c] = bytes.size();
      bytes.insert(bytes.end(), view.data[c], view.data[c] + sizes[c]);
    }
  }

  static Stored store(const QMatrixView& view, std::uint64_t shift) {
    std::vector<std::byte> bytes(shift);
    Stored stored;
    append(view, bytes, stored.address);
    bytes.resize((bytes.size() + 3) / 4 * 4);
    stored.buffer = put(bytes);
    stored.rows = {.format = view.format,
                   .cols = view.cols,
                   .alignment = row_alignment(view.format, view.cols, shift)};
    for (std::uint64_t& at : stored.address) at += stored.buffer.address();
    return stored;
  }

  static const DeviceBuffer& tables() {
    static DeviceBuffer* buffer = nullptr;
    return *buffer;
  }

  static std::vector<float> random_floats(std::size_t count, float size, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-size, size);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random);
    return values;
  }
};

}  // namespace moepack
