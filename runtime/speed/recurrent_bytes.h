// What the states of GatedDeltaNet cost a generated token.
#pragma once

#include "formats/config/model_config.h"
#include "runtime/model/delta_block.h"

namespace moepack {

// Bytes of GatedDeltaNet states that a generated token reads and writes. The window of the
// convolution is read and written. S too, token by token; in blocks it is read, and written with a
// block's last token, and what the tokens before have left of the block is read: of half the others
// in the mean.
double recurrent_token_bytes(const ModelConfig& c, DeltaForm form);

}  // namespace moepack
