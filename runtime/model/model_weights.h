// The resident part of a model in memory: every tensor that is not a routed expert, bound by name
// and checked against the configuration.
#pragma once

#include <variant>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/model_dir.h"
#include "formats/weights/qformat.h"

namespace moepack {

// H hidden size, nq/nkv heads, hd head_dim. Norm vectors hold the factor itself: w or 1 + w,
// whichever the source meant.
struct FullAttentionWeights {
  FullAttentionSpec spec;
  QMatrixView q;              // [nq * hd, H]; with a gate [nq * 2 * hd, H]: per head hd rows of
                              // query, then hd rows of gate
  QMatrixView k;              // [nkv * hd, H]
  QMatrixView v;              // [nkv * hd, H]
  QMatrixView o;              // [H, nq * hd]
  std::vector<float> q_norm;  // [hd] or [nq * hd], as spec.norm says
  std::vector<float> k_norm;  // [hd] or [nkv * hd]
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

struct MoeWeights {
  RouterSpec routing;
  QMatrixView router;  // [E, H]
  bool has_shared = false;
  QMatrixView shared_gate;         // [shared width, H]
  QMatrixView shared_up;           // [shared width, H]
  QMatrixView shared_down;         // [H, shared width]
  QMatrixView shared_expert_gate;  // [1, H]
};

struct LayerWeights {
  std::vector<float> input_norm;  // [H]
  std::vector<float> post_norm;   // [H]
  std::variant<FullAttentionWeights, DeltaNetWeights, LatentAttentionWeights> mixer;
  MoeWeights moe;
};

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
