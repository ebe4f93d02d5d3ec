// What a generated token reads of a model, told by its manifests.
#pragma once

#include <cstdint>

#include "formats/model_dir.h"
#include "runtime/model/delta_block.h"

namespace moepack {

struct TokenWork {
  std::uint32_t layers = 0;
  std::uint32_t experts_per_token = 0;  // in a layer
  double record_bytes = 0;              // of an expert's record in the mean
  double resident_bytes = 0;            // all residents, but of the embedding a row
  double head_bytes = 0;                // of these, the matrix that gives the logits
  double state_bytes = 0;  // GatedDeltaNet states, read and written (recurrent_bytes.h)

  // Of all experts that the token uses.
  double expert_bytes() const {
    return static_cast<double>(layers) * experts_per_token * record_bytes;
  }
};

// Overlays stand in for what they replace. Keys and values are left out: they grow with the text.
// The errors of architecture_of(). Pure.
Result<TokenWork> token_work(const ModelDir& dir, DeltaForm form);

}  // namespace moepack
