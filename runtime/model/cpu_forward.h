// The forward backend of the processor: reference or SIMD kernels over host memory.
#pragma once

#include <cstdint>
#include <memory>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/forward_backend.h"
#include "runtime/model/kernels.h"
#include "runtime/model/kv_cache.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/routing_recorder.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// What a backend does beside computing.
struct CpuForwardExtras {
  std::unique_ptr<RoutingRecorder> recorder;  // null: records nothing
  CacheAwareRouting car;
  std::uint32_t lookahead = 0;      // StoreOptions::lookahead
  bool is_lookahead_tried = false;  // StoreOptions::is_lookahead_automatic
};

// Takes `weights`, `store` and `extras`; `kernels` lives as long as the program. Keys and values
// are kept as state_form(kernels, kv_encoding). kIo when there is no memory for the scratch of
// `limits`.
Result<std::unique_ptr<ForwardBackend>> make_cpu_forward(
    const ModelConfig& config, ModelWeights weights, std::unique_ptr<ExpertStore> store,
    const Kernels& kernels, const ActivationLimits& limits, KvEncoding kv_encoding,
    CpuForwardExtras extras = {});

// The state that this backend makes with kernels that compute in `form`, for sequences of at most
// `context` tokens of a model of this shape. kIo when memory is short: what it was for, and how
// many bytes of it.
Result<std::unique_ptr<SequenceState>> make_cpu_state(const ModelConfig& config,
                                                      std::uint64_t context, const StateForm& form);

}  // namespace moepack
