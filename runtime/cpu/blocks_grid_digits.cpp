#include "runtime/cpu/block_kernels.h"
namespace moepack {
const DigitKernel* grid_digits(QFormatId) { return nullptr; }
}
