// The model that the fixtures of the flash-moe engines describe (tests/cli/flashmoe_fixtures.py):
// its manifests lie in tests/fuzz/corpus/flashmoe.
#pragma once

#include "formats/config/model_config.h"
#include "formats/flashmoe/flashmoe_pack.h"

namespace moepack::test {

inline ModelConfig flashmoe_config() {
  ModelConfig c;
  c.model_type = "qwen3_5_moe_text";
  c.vocab_size = 320;
  c.hidden_size = 512;
  c.num_layers = 2;
  const ExpertsSpec experts{.has_shared_expert = true};
  c.layers = {{.mixer = GatedDeltaNetSpec{}, .feed_forward = experts},
              {.mixer = FullAttentionSpec{.has_gate = true}, .feed_forward = experts}};
  c.num_experts = 3;
  c.experts_per_token = 2;
  c.expert_width = 256;
  c.shared_expert_width = 128;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 64;
  c.linear_key_heads = 1;
  c.linear_value_heads = 2;
  c.linear_key_dim = 64;
  c.linear_value_dim = 64;
  c.linear_conv_taps = 4;
  return c;
}

inline PackDimensions flashmoe_dimensions() { return pack_dimensions(flashmoe_config()); }

}  // namespace moepack::test
