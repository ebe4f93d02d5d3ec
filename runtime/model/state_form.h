// In what form a sequence's states are kept: it follows from the kernels that compute and from what
// the user chose for keys and values.
#pragma once

#include "runtime/model/delta_block.h"
#include "runtime/model/kernels.h"
#include "runtime/model/kv_cache.h"

namespace moepack {

struct StateForm {
  KvFormat kv;                           // of full attention
  DeltaForm delta = DeltaForm::kTokens;  // of GatedDeltaNet
};

inline StateForm state_form(const Kernels& kernels, KvEncoding encoding) {
  return {kv_format(kernels, encoding), kernels.delta_form()};
}

}  // namespace moepack
