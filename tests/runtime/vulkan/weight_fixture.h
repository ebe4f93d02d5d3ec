// What tests of programs that read weights share: matrices of every format on the device, at
// addresses as odd as records have them.
#pragma once

#include <cmath>
#include <random>
#include <string>

#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/weight_kernels.h"
#include "tests/runtime/vulkan/device_bytes.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"
#include "tests/support/test_matrix.h"

namespace moepack {

// A matrix whose components lie one after another on the device.
struct StoredMatrix {
  DeviceBuffer buffer;
  Components<std::uint64_t> offset = {};
  WeightRows rows;

  std::uint64_t address(Component c) const { return buffer.address() + offset[c]; }
};

class WeightTest : public VulkanTest {
 protected:
  static void SetUpTestSuite() {
    VulkanTest::SetUpTestSuite();
    if (has_device()) tables_buffer() = put(weight_tables());
  }
  static void TearDownTestSuite() {
    tables_buffer() = DeviceBuffer();
    VulkanTest::TearDownTestSuite();
  }
  static std::uint64_t tables() { return tables_buffer().address(); }

  // The least multiple at which components of the format lie in a record.
  static std::uint64_t least_shift(const WeightFormat& format) {
    if (format.id == QFormatId::kMxfp4 || format.id == QFormatId::kMxfp8) return 1;
    return format.id == QFormatId::kF32 || is_affine(format) ? 4 : 2;
  }

  // Appends the components of `view` and says where they went.
  static Components<std::uint64_t> append(const QMatrixView& view, std::vector<std::byte>& bytes) {
    Components<std::uint64_t> offset = {};
    for (const Component c : stored_components(view.format)) {
      offset[c] = bytes.size();
      const std::vector<std::byte> component = test::device_bytes(view, c);
      bytes.insert(bytes.end(), component.begin(), component.end());
    }
    return offset;
  }
  // Behind `shift` bytes, and readable up to the next multiple of four.
  static StoredMatrix store(const QMatrixView& view, std::uint64_t shift) {
    StoredMatrix stored;
    std::vector<std::byte> bytes(shift);
    stored.offset = append(view, bytes);
    bytes.resize((bytes.size() + 3) / 4 * 4);
    stored.buffer = put(bytes);
    stored.rows = {.format = view.format,
                   .cols = view.cols,
                   .alignment = row_alignment(view.format, view.cols, shift)};
    return stored;
  }

  static const VulkanKernel& weight_kernel(std::string_view operation, const WeightFormat& format,
                                           std::vector<std::uint32_t> constants) {
    return kernel(shader_name(operation, format), std::move(constants));
  }

  static std::vector<float> random_floats(std::size_t count, float size, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-size, size);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random);
    return values;
  }

  // Shapes that cut the work in different ways, the device's usual one first.
  static std::vector<WeightKernelShape> shapes(const WeightRows& rows) {
    return {usual_shape(rows, device().info()),
            {.threads = 64, .lanes = 2, .rows = 1, .steps = 3},
            {.threads = 32, .lanes = 8, .rows = 3, .steps = 1}};
  }

 private:
  static DeviceBuffer& tables_buffer() {
    static DeviceBuffer of_suite;
    return of_suite;
  }
};

// Of a format: "q4 g64 f16".
inline std::string name_of(const WeightFormat& format) {
  return to_string(format) + (format.scale_type == DType::kF16 ? " f16" : "");
}

}  // namespace moepack
