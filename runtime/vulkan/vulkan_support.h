// What the kernels of a GPU compute.
#pragma once

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/model/kv_encoding.h"

namespace moepack {

// kUnsupported, by name, where the model has something that the kernels do not know. Pure.
Status check_vulkan_support(const ModelDir& model, KvEncoding kv_encoding);

}  // namespace moepack
