// The attention kernels of a CPU backend: a few queries against one block of keys and values, and
// the merging of blocks. Pure functions, as those of kernels.h.
//
// Attention is computed over blocks of kKvBlock positions that lie at fixed places of the sequence
// (block i: positions [i * kKvBlock, (i + 1) * kKvBlock)), by online softmax (FlashAttention, arXiv
// 2205.14135): each block gives the largest score, the sum of exp(score - largest) and the values
// weighted with these, and blocks are merged in the order of positions. Every result of a query is
// a fixed sequence of fused operations that depends on its position alone, in every table the same,
// so that tables agree to the bit, whatever is computed beside a query.
//
// The definition, for a query q (already multiplied by 1 / sqrt(head size)) and the first n keys of
// a block; those before the first that it sees get the score -infinity, and so the weight 0:
//   score[j] = (sum_d q[d] * k[j][d]) * ks[j]      one chain of fma over d, from 0 upwards
//   most     = max_j score[j];  p[j] = exponential(score[j] - most)
//   sum      = 16 partial sums of p, j to partial j % 16, added as a binary tree
//   value[d] = sum_j (p[j] * vs[j]) * v[j][d]      one chain of fma over j, from 0 upwards
// ks and vs are 1 and their products left out but for kFp8, where k and v are 2^-8 times the value
// of the code, and ks and vs are 2^8 times the scale of the position.
// Keys and values of a head may differ in size: head size is that of the key.
// Within rounding of the exact result: (head size + n + 8) * 2^-24 relative to the sums of
// magnitudes; `exponential` is within 1.5 units in the last place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"
#include "runtime/model/kv_encoding.h"

namespace moepack {

// Positions of a block; blocks of this size decide how results are rounded.
constexpr std::size_t kKvBlock = 128;
// Positions (of keys) or dimensions (of values) that lie side by side in memory.
constexpr std::size_t kKvGroup = 32;
// Most queries of one call.
constexpr std::size_t kAttentionRows = 8;
// Floats in front of the values of a result: the largest score, the sum, and padding.
constexpr std::size_t kAttentionHead = 16;

// Floats of one result: kAttentionHead, then values, padded to whole groups.
constexpr std::size_t attention_result_floats(std::size_t value_dim) {
  return kAttentionHead + align_up(value_dim, kKvGroup);
}

// Keys and values of one head in one block. What is not stored yet may be anything.
struct KvBlock {
  KvEncoding encoding = KvEncoding::kFloat32;
  std::size_t positions = 0;            // room: a multiple of kKvGroup, at most kKvBlock
  const std::byte* keys = nullptr;      // [positions / kKvGroup, head_dim, kKvGroup]
  const std::byte* values = nullptr;    // [groups of value_dim, positions, kKvGroup], zero-padded
  const float* key_scales = nullptr;    // [positions], of kFp8 alone
  const float* value_scales = nullptr;  // [positions]
};

// Queries that meet one block.
struct AttentionCall {
  KvBlock block;
  std::size_t head_dim = 0;  // of queries and keys
  std::size_t value_dim = 0;
  std::size_t rows = 0;                   // 1 … kAttentionRows
  const float* const* queries = nullptr;  // [kAttentionRows] of [head_dim]; behind `rows` any
                                          // that can be read
  const std::uint32_t* seen = nullptr;    // [rows]: keys of the block up to the last that each
                                          // sees; a row that sees none gets no result
  // [rows]: of these, keys that each does not see, from the first on; fewer than it sees of them.
  // Null: none.
  const std::uint32_t* hidden = nullptr;
  float* results = nullptr;  // [rows, attention_result_floats(value_dim)]
  float* weights = nullptr;  // scratch: [kAttentionRows, kKvBlock]
};

struct AttentionKernels {
  void (*attend)(const AttentionCall& call);
  // to = to and from together; `from` comes later in the sequence. Both are results that saw a key.
  void (*merge)(const float* from, std::size_t value_dim, float* to);
  // out[i] = value[i] / sum * sigmoid(gate[i]) for i < value_dim; without the last factor when gate
  // is null.
  void (*finish)(const float* result, const float* gate, std::size_t value_dim, float* out);
  // Rotates the pairs (i, i + half) for i < half in place: arXiv 2104.09864.
  void (*rotate)(float* head, const float* cosine, const float* sine, std::size_t half);
};

// The scalar twin, which defines the results.
const AttentionKernels& scalar_attention();

}  // namespace moepack
