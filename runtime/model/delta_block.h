// The gated delta rule in blocks of tokens (Gated Delta Networks, arXiv 2412.06464; the algorithm
// of chunks and its WY form: arXiv 2406.06484), and the kernels that compute it.
//
// For one V head with state S [dk, dv], token t has S_t = a_t S_{t-1} + k_t u_t^T with the
// corrected value u_t = beta_t (v_t - a_t S_{t-1}^T k_t). Written from the state S_0 before the
// block's first token, with w_ij = a_{j+1} … a_i (the decay from after token j to after token i,
// w_i0 for S_0):
//   u_i = beta_i (v_i - w_i0 S_0^T k_i - sum over j < i of w_ij (k_i k_j) u_j)
//   o_i = w_i0 S_0^T q_i + sum over j <= i of w_ij (q_i k_j) u_j
// and behind the block S = w_C0 S_0 + sum over j of w_Cj k_j u_j^T. So S is read once for all
// tokens of a block that are computed together, and written once a block.
//
// Blocks lie at fixed positions: token p of a sequence is row p % kDeltaBlock of its block. Each
// row is formed from S_0 and the rows before it alone, and each element is summed in one order
// (over key dimensions or rows, ascending; sums over the dimensions of a key as Kernels::dot's
// first chain of lanes). So the bits do not depend on how many tokens are computed together.
//
// The products w_ij are running products of the decays a (0 <= a <= 1): they cannot overflow, and
// their relative error is (i - j) roundings, where differences of cumulated logarithms have one
// that grows with the sum.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moepack {

// Tokens of a block. Saved sequences depend on it (docs/sequence-format.md).
constexpr std::size_t kDeltaBlock = 16;

// How the state of a sequence keeps S: after its last token; or before that token's block, with
// what the tokens seen in the block have left.
enum class DeltaForm : std::uint8_t { kTokens, kBlocks };

// Floats that a thread needs to compute a block: queries and products of key_dim and value_dim, and
// coefficients. A multiple of 16.
constexpr std::size_t delta_block_floats(std::size_t key_dim, std::size_t value_dim) {
  return kDeltaBlock * (key_dim + value_dim + 2 * kDeltaBlock) + 2 * kDeltaBlock;
}

// One token of a depthwise causal convolution with silu behind it, of `width` channels:
//   out[c] = silu(sum over j < taps of w[j][c] * x[j][c]), j ascending
// Row j < kept_taps of x is row j at `kept`, the others lie one after another at `fresh`; rows of x
// and w are `stride` floats apart.
struct DeltaConvolution {
  const float* kept = nullptr;
  std::size_t kept_taps = 0;
  const float* fresh = nullptr;
  const float* w = nullptr;
  std::size_t stride = 0;
  std::size_t taps = 0;
  std::size_t width = 0;
  float* out = nullptr;
};

// Products of S with the keys and queries of `tokens` tokens:
//   of_k[t] = S^T k[t], of_q[t] = S^T q[t]
struct DeltaProducts {
  const float* state = nullptr;  // [key_dim, value_dim]
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
  std::size_t tokens = 0;
  const float* k = nullptr;  // [tokens, key_dim]
  const float* q = nullptr;  // [tokens, key_dim]
  float* of_k = nullptr;     // [tokens, value_dim]
  float* of_q = nullptr;     // rows of value_dim, q_stride floats apart
  std::size_t q_stride = 0;
};

// Row i of a block:
//   values[i] = beta (values[i] - decay of_k - sum over j < i of from_k[j] values[j])
//   out = decay out + sum over j <= i of from_q[j] values[j]
struct DeltaRow {
  float* values = nullptr;  // [kDeltaBlock, value_dim]; row i holds v before and u after
  std::size_t row = 0;      // i
  std::size_t value_dim = 0;
  float decay = 0.0F;
  float beta = 0.0F;
  const float* from_k = nullptr;  // [i]
  const float* from_q = nullptr;  // [i + 1]
  const float* of_k = nullptr;    // [value_dim]
  float* out = nullptr;           // [value_dim]; S^T q before, o after
};

// The state behind a full block: S = decay S + sum over j of k[j] u[j]^T, u already decayed.
struct DeltaAdvance {
  float* state = nullptr;  // [key_dim, value_dim]
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
  float decay = 0.0F;
  const float* k = nullptr;  // [kDeltaBlock, key_dim]
  const float* u = nullptr;  // [kDeltaBlock, value_dim]
};

// Pure functions, as those of Kernels. Outputs overlap inputs only where that is said. Between
// tables results agree to rounding.
struct DeltaBlockKernels {
  void (*convolve)(const DeltaConvolution& c);
  // x[i] *= factor.
  void (*scale)(float factor, float* x, std::size_t n);
  // of_k[j] = keys[j] k, of_q[j] = keys[j] q for j < rows <= kDeltaBlock; keys: [rows, n].
  // of_k, of_q: [kDeltaBlock]; what lies behind `rows` may be overwritten.
  void (*row_products)(const float* keys, std::size_t rows, const float* k, const float* q,
                       std::size_t n, float* of_k, float* of_q);
  void (*state_products)(const DeltaProducts& p);
  void (*mix_row)(const DeltaRow& r);
  void (*advance)(const DeltaAdvance& a);
  // out[i] = x[i] * scale * factor[i] * silu(gate[i]). out may be x.
  void (*gate)(const float* x, float scale, const float* factor, const float* gate, std::size_t n,
               float* out);
};

}  // namespace moepack
