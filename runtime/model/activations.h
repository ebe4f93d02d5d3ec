// The scratch of a forward pass: every buffer that computing at most so many tokens at once uses,
// in one piece of memory. The function that lays the buffers out also tells their bytes, so that
// the memory plan cannot count less than what is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/attention_tiles.h"
#include "runtime/model/input_scratch.h"
#include "runtime/model/router.h"

namespace moepack {

// Tokens whose logits are computed together: their rows of the vocabulary stay in memory.
constexpr std::size_t kLogitRows = 16;

// Rows up to which the next layer's router is asked which experts it will probably use
// (expert_lookahead.h).
constexpr std::size_t kLookaheadRows = 8;

// Rows of kv_b_proj that latent attention decodes at a time.
constexpr std::size_t kLatentRows = 8;

struct ActivationLimits {
  std::uint64_t tokens = 0;   // computed at once
  std::uint64_t threads = 1;  // of the pool
  std::uint64_t context = 0;  // most tokens of a sequence
  // Rows of logits computed together. 0: the caller keeps the residual stream and the logits
  // elsewhere, and this scratch has neither.
  std::uint64_t logit_rows = kLogitRows;
  ActivationType activations = ActivationType::kFloat32;
};

// Tokens [first, first + count) of the gathered inputs belong to one expert.
struct ExpertGroup {
  std::uint32_t expert = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

// H hidden size, V vocabulary, E experts, K experts a token, M expert width, S width of the shared
// expert or of dense layers, the larger; nq, nkv heads of hd
// (where layers differ, of those with the largest product); nv V heads of dv, C channels of the
// convolution; T limits.tokens. Each buffer is aligned to 64 bytes. One forward at a time uses
// them.
class Activations {
 public:
  // Zeroed where kernels could otherwise read what nobody wrote (matmul_scratch). kIo when memory
  // is short, kInvalidArgument when the limits ask for more than a machine can have.
  static Result<Activations> create(const ModelConfig& config, const ActivationLimits& limits);

  std::span<float> hidden;  // [T, H]: the residual stream
  std::span<float> normed;  // [T, H]: input of mixer and experts
  // [T, H]: the mixer's output; then the inputs of the router and of the shared expert, where they
  // are not `normed`; then sums over a token's experts.
  std::span<float> mixed;
  std::span<float> logits;  // [logit_rows, V]

  std::span<float> query_gate;  // [T, nq, 2, hd]; without gates [T, nq, hd] of it
  std::span<float> keys;        // [T, nkv * hd]: new keys before they are stored
  std::span<float> values;      // [T, nkv * hd]
  std::span<float> attended;    // [T, nq * hd]
  // [threads, context]: scores of a query, where they are formed over all positions at once; or
  // the results of blocks and each thread's rows, as AttentionWorkspace says. One of the two.
  std::span<float> scores;
  std::span<AttentionTile> attention_tiles;  // [T, nkv]
  std::span<float> rotation;                 // [threads, rotary_dim]: cosines, sines of a token

  // Latent attention, of whose rows query_gate [T, nq * hd], keys [T, R + rotary_dim] and attended
  // [T, nq * value_dim] hold the others; R kv_rank.
  std::span<float> latent_queries;  // [T, nq, R + rotary_dim]: then what they attend to
  std::span<float> query_down;      // [T, query_rank]
  std::span<float> latent_up;       // [threads, kLatentRows, R]: rows of kv_b_proj

  std::span<float> delta_raw;    // [T, C]: inputs of the convolution
  std::span<float> delta_qkv;    // [T, C]: after convolution and silu
  std::span<float> delta_z;      // [T, nv * dv]
  std::span<float> delta_b;      // [T, nv]
  std::span<float> delta_a;      // [T, nv]
  std::span<float> delta_mixed;  // [T, nv * dv]
  std::span<float> delta_block;  // [threads, delta_block_floats(dk, dv)]

  std::span<float> router_logits;   // [T, E]
  std::span<Assignment> sorted;     // [T * K]: by expert, then token
  std::span<std::size_t> place_of;  // [T, K] -> index into sorted
  std::span<ExpertGroup> groups;    // [min(E, T * K)]
  std::span<float> gathered;        // [T * K, H]: inputs in the order of sorted
  std::span<float> gate;            // [T * K, M]
  std::span<float> up;              // [T * K, M]
  std::span<float> results;         // [T * K, H]
  std::span<float> shared_gate;     // [T, S]
  std::span<float> shared_up;       // [T, S]
  std::span<float> shared_out;      // [T, H]
  std::span<float> shared_weight;   // [T]

  // Quantized inputs; empty with activations of float32. W is the widest input of a product.
  // B(cols): a token's blocks, token_stride() of as many columns and the digits of the activations.
  std::span<InputBlock> input_blocks;          // [T, B(W)]: of one stage
  std::span<InputBlock> own_input_blocks;      // [threads, own_blocks()]: of few tokens
  std::span<const InputBlock*> input_rows;     // [T]
  std::span<const InputBlock*> gathered_rows;  // [T * K]: blocks of u in the order of sorted
  std::span<InputBlock> expert_blocks;         // [T * K, B(M)]: inputs of the down projection
  std::span<const InputBlock*> expert_rows;    // [T * K]
  std::span<InputBlock> shared_blocks;         // [T, B(S)]
  std::span<const InputBlock*> shared_rows;    // [T]
  std::span<InputBlock> branch_blocks;         // [T, B(H)]: inputs of a shared expert's own
  std::span<const InputBlock*> branch_rows;    // [T]
  std::span<InputBlock> latent_blocks;         // [threads, T, B(R)]: what a head attends to
  std::span<const InputBlock*> latent_rows;    // [threads, T]

  std::span<float> ahead_normed;  // [min(T, kLookaheadRows), H]: of the router that looks ahead
  std::span<float> ahead_logits;  // [min(T, kLookaheadRows), E]

  std::span<float> matmul_scratch;  // [threads, matmul_scratch_floats of the widest matrix]

  std::size_t context() const { return context_; }
  // input_blocks, input_rows and own_input_blocks.
  InputScratch input_scratch() const {
    return {input_blocks, input_rows, digits_, own_input_blocks};
  }
  // branch_blocks and branch_rows.
  InputScratch branch_scratch() const { return {branch_blocks, branch_rows, digits_}; }

 private:
  Activations() = default;
  friend struct ActivationLayout;
  AlignedBuffer memory_;
  std::size_t context_ = 0;  // floats of `scores` for each thread
  std::size_t digits_ = 0;   // of quantized inputs
};

// Bytes that a forward within these limits takes: those of Activations::create and of the short
// lists that routing and the grouping of experts make on the way. At most kTooManyBytes.
std::uint64_t activation_bytes(const ModelConfig& config, const ActivationLimits& limits);

}  // namespace moepack
