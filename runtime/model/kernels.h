// The compute kernels of one CPU backend, as a table of pure functions: no allocation, no I/O, no
// failure, no globals. Shapes are row-major; `stride` counts floats between consecutive rows.
//
// What follows is of matmul, with inputs in float32; products in integers (CodeKernels) have one
// definition to the bit in all tables (code_kernels.h).
//
// The reference table is scalar C++ and defines the results: each output element is summed in an
// order that depends on the shape alone, never on the number of tokens in the call, on the row
// range or on threads, so reference output is bitwise independent of all three. In a SIMD table
// results never depend on the row range or on threads either, and in plain formats (F32, F16, BF16)
// not on the number of tokens. Affine products and those of ggml's blocks have two regimes, up to
// six tokens (formed from the codes, sum of scale * (sum of code * x) + bias * (sum of x)) and more
// (from decoded weights), and agree to rounding between the two, bitwise within each. Between
// tables results agree to rounding: every element is within
//   (cols / 8 + 32) * 2^-24 * sum_c (|scale * code| + |bias|) * |x[c]|
// of the exact product, plus cols * (2^-149 + 2^-126 * largest |scale|) where numbers become
// subnormal. In blocks, codes count from the smallest value of their type and bias is what is added
// to scale * code (Q4_0: -8 * scale, Q4_K: the minimum); largest |scale| is 16 times the largest
// |scale * code| + |bias| there. Blocks without a kernel of their own are decoded by the scalar
// decoder for any number of tokens.
//
// Inputs stay float32, with one exception: up to six tokens and Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to
// Q5_K, IQ4_NL, IQ4_XS or MXFP4, avx512vnni and amx round each input to a multiple of a power of
// two that fits the largest of its block of inputs (32 of them, 256 for Q2_K and Q3_K; blocks begin
// at column 0). That adds 2.01 * 2^-24 * sum_c (|scale * code| + |bias|) * m[c] to the bound, m[c]
// being the largest |x| in the block of c: 24 bits of the largest input, where float32 has 24 of
// each. A token with an input that is not finite, or with a block of inputs whose largest is below
// 2^-60 but not zero, is not rounded: it takes avx512's way and has avx512's bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "formats/weights/qformat.h"
#include "runtime/model/attention_kernels.h"
#include "runtime/model/code_kernels.h"
#include "runtime/model/delta_block.h"

namespace moepack {

struct Kernels {
  std::string_view name;  // "reference", or a CpuLevel's
  // The first table whose results have the same bits: what files keep of who computed them. avx2 of
  // avxvnni and avx512vnni of amx, which are those but for products in integers, and these have the
  // same bits everywhere; of others the name.
  std::string_view bits;

  // Whether matmul takes matrices of `format`. Of any other its results mean nothing, so loading
  // asks first (runtime/model/kernel_support.h).
  bool (*supports)(const WeightFormat& format);

  // y[t][r] = sum_c w[r][c] * x[t][c] for t < tokens and r in [row_begin, row_end).
  // x: [tokens, w.cols], x_stride >= w.cols; y: [tokens, w.rows], y_stride >= w.rows (indexed by
  // the absolute row). scratch: at least matmul_scratch_floats(w.cols) floats, of this call alone,
  // less what Compute restores panels in. The rows of w follow each other.
  void (*matmul)(const QMatrixView& w, const float* x, std::size_t x_stride, std::size_t tokens,
                 std::uint64_t row_begin, std::uint64_t row_end, float* y, std::size_t y_stride,
                 std::span<float> scratch);

  // sum_i a[i] * b[i]. Its order of summation depends on n alone.
  float (*dot)(const float* a, const float* b, std::size_t n);
  // y[i] += a * x[i].
  void (*axpy)(float a, const float* x, float* y, std::size_t n);
  // out[i] = silu(gate[i]) * up[i], silu(x) = x * sigmoid(x). out may alias gate or up. Within
  // 3 * 2^-23 of the exact value, relatively; where exp(-gate) overflows, 0 (off by < 3e-37 *
  // |up|).
  void (*swiglu)(const float* gate, const float* up, float* out, std::size_t n);
  // The same for gpt-oss: g = min(gate[i], limit), u = clamp(up[i], -limit, limit);
  // out[i] = silu(1.702 g) / 1.702 * (u + 1). Within 6 * 2^-23 of the exact value, relatively.
  void (*clamped_swiglu)(const float* gate, const float* up, float limit, float* out,
                         std::size_t n);
  // out[i] = gelu(gate[i]) * up[i] with gelu's tanh form (arXiv 1606.08415 section 2):
  // gelu(x) = x * sigmoid(y), y = kGeluSlope (x + kGeluCube x^3). Aliases and limits as of swiglu,
  // within (3 * 2^-23 + 2^-21 |y|) of the exact value, relatively.
  void (*geglu)(const float* gate, const float* up, float* out, std::size_t n);

  // One token of the gated delta rule for one V head (Gated Delta Networks, arXiv 2412.06464, as
  // transformers' torch_recurrent_gated_delta_rule computes it):
  //   S *= decay;  u = S^T k;  S += k (beta (v - u))^T;  out = S^T q
  // state: [key_dim, value_dim], updated in place; q, k: [key_dim] already normalised (q scaled);
  // v, out: [value_dim]. decay = exp(g), 0 <= decay <= 1 (exp underflows). state and out overlap
  // nothing else.
  void (*gated_delta_step)(float* state, const float* q, const float* k, const float* v,
                           float decay, float beta, std::size_t key_dim, std::size_t value_dim,
                           float* out);

  CodeKernels codes;  // products in integers
  // The same in blocks of tokens; nullptr: the table computes token by token (the reference does).
  const DeltaBlockKernels* delta_block = nullptr;
  DeltaForm delta_form() const {
    return delta_block == nullptr ? DeltaForm::kTokens : DeltaForm::kBlocks;
  }
  // Attention over blocks of encoded keys and values; null in the reference table, with which it is
  // computed over all positions at once, by dot and axpy, from float32.
  const AttentionKernels* attention = nullptr;
};

// The factor within the sigmoid of gpt-oss.
constexpr float kGptOssAlpha = 1.702F;
// Of gelu's tanh form, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): 0.5 (1 + tanh(z)) is
// sigmoid(2 z).
constexpr float kGeluSlope = 1.5957691216057308F;
constexpr float kGeluCube = 0.044715F;

// Rows that the kernels take together.
constexpr std::size_t kMatmulRows = 8;

// Floats of scratch that matmul needs for matrices of `cols` inputs, in every table; grows with
// `cols`, so that the widest matrix's scratch serves all.
std::size_t matmul_scratch_floats(std::uint64_t cols);

const Kernels& reference_kernels();

// Instruction sets a CPU backend can use, of each architecture best last.
// kAvxVnni: AVX2 with products of bytes (AVX-VNNI), of processors without AVX-512 and of some with.
// kAvx512: with products of bytes (VNNI) where the processor has them.
// kAvx512Vnni: with VNNI and permutations of bytes (VBMI).
// kAmx: the same, and products of many tokens with quantized inputs in tiles (AMX).
// kNeon: Advanced SIMD of AArch64 with products of bytes (SDOT, FEAT_DotProd).
enum class CpuLevel : std::uint8_t { kScalar, kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kAmx, kNeon };
// All of them, in the enum's order.
inline constexpr std::array kCpuLevels{CpuLevel::kScalar, CpuLevel::kAvx2,       CpuLevel::kAvxVnni,
                                       CpuLevel::kAvx512, CpuLevel::kAvx512Vnni, CpuLevel::kAmx,
                                       CpuLevel::kNeon};
static_assert(static_cast<std::size_t>(kCpuLevels.back()) + 1 == kCpuLevels.size());
std::string_view cpu_level_name(CpuLevel level);  // "scalar", "avx2", …
std::string cpu_level_names();                    // of all, "scalar, avx2, …"
// The best that this processor and operating system support. The first call asks for leave to use
// tiles where the processor has them (request_tiles in runtime/cpu/cpu_detect.h says what follows);
// has_cpu_level and cpu_kernels make that call.
CpuLevel detect_cpu_level();
// Whether this machine runs `level`.
bool has_cpu_level(CpuLevel level);
// The SIMD table of `level`; kUnsupported when this machine cannot run it. kScalar: the reference
// functions under the name "scalar".
Result<const Kernels*> cpu_kernels(CpuLevel level);
// "auto" or a level's name; kInvalidArgument otherwise.
Result<CpuLevel> parse_cpu_level(std::string_view name);

}  // namespace moepack
