// Whether a backend's kernels can compute a model: asked when it is opened, because kernels have no
// way to report an error.
#pragma once

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/model/kernels.h"

namespace moepack {

// kUnsupported, with the first matrix of the residents, the overlays or the pack whose format
// `kernels` does not know.
Status check_kernel_support(const Kernels& kernels, const ModelDir& model);

}  // namespace moepack
