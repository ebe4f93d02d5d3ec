// Shapes of full attention, and caches as the device keeps them, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "formats/base/dtype.h"
#include "runtime/model/kv_encoding.h"

namespace moepack {

struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t rotary_dim = 0;
  bool has_gate = false;
  bool is_whole_width = false;
  float clip = std::numeric_limits<float>::infinity();
  std::uint32_t window = 0;  // keys that a token sees; 0: all
  bool has_sinks = false;
  float score_scale = 0;  // of queries; 0: head_dim^-1/2
  bool has_value_norm = false;
  bool values_are_keys = false;
  std::uint32_t still_pairs = 0;  // the last pairs, which positions do not turn

  std::uint32_t q_step() const { return (has_gate ? 2 : 1) * head_dim; }
  std::uint32_t q_width() const { return heads * q_step(); }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

constexpr KvEncoding kDeviceEncodings[] = {KvEncoding::kFloat32, KvEncoding::kBfloat16,
                                           KvEncoding::kFloat16};

inline std::vector<std::byte> encode_kv(KvEncoding encoding, const std::vector<float>& values) {
  const std::uint64_t size = kv_value_bytes(encoding);
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* at = bytes.data() + i * size;
    const std::uint16_t code =
        encoding == KvEncoding::kBfloat16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
    if (encoding == KvEncoding::kFloat32) {
      std::memcpy(at, &values[i], size);
    } else {
      std::memcpy(at, &code, size);
    }
  }
  return bytes;
}

inline std::vector<float> decode_kv(KvEncoding encoding, const std::vector<std::byte>& bytes) {
  const std::uint64_t size = kv_value_bytes(encoding);
  std::vector<float> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t code = 0;
    if (encoding == KvEncoding::kFloat32) {
      std::memcpy(&values[i], bytes.data() + i * size, size);
      continue;
    }
    std::memcpy(&code, bytes.data() + i * size, size);
    values[i] = encoding == KvEncoding::kBfloat16 ? bf16_to_f32(code) : f16_to_f32(code);
  }
  return values;
}

}  // namespace moepack
