// kv_b_proj of latent attention as GGUF files hold it: two tensors in place of one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "convert/source/source_encoding.h"
#include "convert/source/source_tensor.h"
#include "formats/base/status.h"

namespace moepack {

// Which rows of each head a tensor has; those of keys are stored transposed.
enum class HeadRows : std::uint8_t { kKeys, kValues };
// Told by the end of llama.cpp's name, attn_k_b.weight or attn_v_b.weight; nullopt for others.
std::optional<HeadRows> split_head_rows(std::string_view name);

struct SplitHeads {
  std::uint64_t heads, key_rows, value_rows, cols;
};
// The rows of each head's key, then those of its value, of `keys` [heads, cols, key_rows] and
// `values` [heads, value_rows, cols]: in the format of both where they have the same plain one,
// else decoded to f32. kCorrupt for other shapes, kNotFound without `values`.
Result<ModuleForm> split_heads_form(const SourceTensor& keys, const SourceTensor& values,
                                    const SplitHeads& sizes);

}  // namespace moepack
