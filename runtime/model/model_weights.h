// The resident part of a model in memory: every tensor that is not a routed expert, bound by name
// and checked against the configuration.
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/model_dir.h"
#include "formats/weights/qformat.h"
#include "runtime/model/router.h"

namespace moepack {

// H hidden size, nq/nkv heads, hd head_dim. Norm vectors hold the factor itself: w or 1 + w,
// whichever the source meant.
struct FullAttentionWeights {
  FullAttentionSpec spec;
  QMatrixView q;              // [nq * hd, H]; with a gate [nq * 2 * hd, H]: per head hd rows of
                              // query, then hd rows of gate
  QMatrixView k;              // [nkv * hd, H]
  QMatrixView v;              // [nkv * hd, H]; none where values are keys
  QMatrixView o;              // [H, nq * hd]
  std::vector<float> q_norm;  // [hd] or [nq * hd], as spec.norm says
  std::vector<float> k_norm;  // [hd] or [nkv * hd]
  std::vector<float> q_bias;  // [nq * hd]; like the others empty where the layer has none
  std::vector<float> k_bias;  // [nkv * hd]
  std::vector<float> v_bias;  // [nkv * hd]
  std::vector<float> o_bias;  // [H]
  std::vector<float> sinks;   // [nq]
};

// R kv_rank, Q query_rank, dr rotary_dim, dv value_dim; a head of hd = (hd - dr) + dr values, those
// of the second part rotated.
struct LatentAttentionWeights {
  LatentAttentionSpec spec;
  QMatrixView q_down;              // [Q, H]; none without a query rank
  std::vector<float> q_down_norm;  // [Q]; likewise
  QMatrixView q;                   // [nq * hd, Q], or of H columns without a query rank
  QMatrixView kv_down;             // [R + dr, H]: the compressed row, then the key that is rotated
  std::vector<float> kv_norm;      // [R]
  QMatrixView kv_up;  // [nq * (hd - dr + dv), R]: per head the rows of its key, then of its value
  QMatrixView o;      // [H, nq * dv]
};

// nk/nv key and value heads of dk/dv, C = 2 nk dk + nv dv channels.
struct DeltaNetWeights {
  QMatrixView in_qkv;             // [C, H]: q of all heads, then k, then v
  QMatrixView in_z;               // [nv * dv, H]
  QMatrixView in_b;               // [nv, H]
  QMatrixView in_a;               // [nv, H]
  QMatrixView out;                // [H, nv * dv]
  std::vector<float> conv;        // [taps, C], oldest tap first
  std::vector<float> decay_rate;  // [nv]: -exp(A_log)
  std::vector<float> dt_bias;     // [nv]
  std::vector<float> norm;        // [dv]
  bool tiled_v_heads = false;     // V head h uses K head h % nk instead of h / (nv / nk)
};

// The feed-forward network of a layer. That of a layer without routed experts stands as a shared
// expert without a gate.
struct MoeWeights {
  bool has_experts = true;
  Routing routing;
  QMatrixView router;              // [E, H]
  std::vector<float> router_bias;  // [E]; empty: none
  std::vector<float> router_norm;  // [H], before the router; empty: that of the experts
  bool has_shared = false;
  bool has_shared_gate = true;     // false: the shared expert is added as it is
  QMatrixView shared_gate;         // [S, H]: the shared expert's width or the dense network's
  QMatrixView shared_up;           // [S, H]
  QMatrixView shared_down;         // [H, S]
  QMatrixView shared_expert_gate;  // [1, H]
  ExpertActivation activation = ExpertActivation::kSwiGlu;
  float activation_limit = 0;
  // Norms of branches, [H]; empty: the shared expert reads what the routed ones do, and both are
  // added as they are.
  std::vector<float> shared_input_norm;
  std::vector<float> shared_output_norm;
  std::vector<float> routed_output_norm;
  std::vector<float> output_norm;   // [H], of the network's result; empty: none
  std::vector<float> output_scale;  // [1], of the layer's; empty: 1
  // Of the routed experts, empty where they have none.
  std::vector<float> gate_bias;  // [E, M]
  std::vector<float> up_bias;    // [E, M]
  std::vector<float> down_bias;  // [E, H]

  // Whether a token's results are summed as they are, so that columns do not depend on each other.
  bool is_plain_sum() const {
    return shared_input_norm.empty() && output_norm.empty() && output_scale.empty();
  }
};

struct LayerWeights {
  std::vector<float> input_norm;  // [H]
  std::vector<float> post_norm;   // [H]
  std::vector<float> mixer_norm;  // [H], of the mixer's result; empty: none
  std::variant<FullAttentionWeights, DeltaNetWeights, LatentAttentionWeights> mixer;
  MoeWeights moe;
};

// Calls visit() for every matrix (QMatrixView) and every decoded vector (std::vector<float>) that
// such weights can have, in an order that does not change; those that a model lacks are empty.
template <typename Weights, typename Visit>
requires std::is_same_v<std::remove_const_t<Weights>, FullAttentionWeights>
void visit_tensors(Weights& w, const Visit& visit) {
  for (auto* matrix : {&w.q, &w.k, &w.v, &w.o}) visit(*matrix);
  for (auto* vector :
       {&w.q_norm, &w.k_norm, &w.q_bias, &w.k_bias, &w.v_bias, &w.o_bias, &w.sinks}) {
    visit(*vector);
  }
}
template <typename Weights, typename Visit>
requires std::is_same_v<std::remove_const_t<Weights>, DeltaNetWeights>
void visit_tensors(Weights& w, const Visit& visit) {
  for (auto* matrix : {&w.in_qkv, &w.in_z, &w.in_b, &w.in_a, &w.out}) visit(*matrix);
  for (auto* vector : {&w.conv, &w.decay_rate, &w.dt_bias, &w.norm}) visit(*vector);
}
template <typename Weights, typename Visit>
requires std::is_same_v<std::remove_const_t<Weights>, LatentAttentionWeights>
void visit_tensors(Weights& w, const Visit& visit) {
  for (auto* matrix : {&w.q_down, &w.q, &w.kv_down, &w.kv_up, &w.o}) visit(*matrix);
  for (auto* vector : {&w.q_down_norm, &w.kv_norm}) visit(*vector);
}
template <typename Weights, typename Visit>
requires std::is_same_v<std::remove_const_t<Weights>, MoeWeights>
void visit_tensors(Weights& w, const Visit& visit) {
  for (auto* matrix :
       {&w.router, &w.shared_gate, &w.shared_up, &w.shared_down, &w.shared_expert_gate}) {
    visit(*matrix);
  }
  for (auto* vector :
       {&w.router_bias, &w.routing.correction, &w.gate_bias, &w.up_bias, &w.down_bias,
        &w.router_norm, &w.routing.expert_scales, &w.shared_input_norm, &w.shared_output_norm,
        &w.routed_output_norm, &w.output_norm, &w.output_scale}) {
    visit(*vector);
  }
}
template <typename Weights, typename Visit>
requires std::is_same_v<std::remove_const_t<Weights>, LayerWeights>
void visit_tensors(Weights& w, const Visit& visit) {
  visit(w.input_norm);
  visit(w.post_norm);
  visit(w.mixer_norm);
  std::visit([&](auto& mixer) { visit_tensors(mixer, visit); }, w.mixer);
  visit_tensors(w.moe, visit);
}

// Nothing of it changes once it is loaded, so any number of threads may read it.
struct ModelWeights {
  std::vector<AlignedBuffer> data;  // of all resident files; the views point into it
  QMatrixView embedding;            // [V, H]
  QMatrixView lm_head;              // [V, H]; the embedding itself when tied
  std::vector<float> final_norm;    // [H]
  std::vector<LayerWeights> layers;
};

// Reads the data files of `model` and of its overlays and binds every tensor that the configuration
// asks for. The matrices of a linear-attention layer are brought into the V-head order of its
// out_proj, whose columns cannot be moved in every format; rows can. A missing tensor or a wrong
// shape is named with what was expected. `threads`: as many read at once.
Result<ModelWeights> load_model_weights(const ModelDir& model, std::size_t threads);

}  // namespace moepack
