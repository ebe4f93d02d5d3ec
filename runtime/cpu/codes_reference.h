// The scalar definition of products in integers (runtime/model/code_kernels.h).
#pragma once

#include "runtime/model/code_kernels.h"

namespace moepack {

const CodeKernels& reference_code_kernels();

}  // namespace moepack
