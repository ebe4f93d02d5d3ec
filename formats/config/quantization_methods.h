// The blocks of quantization methods that name themselves, read by config_quantization.cpp.
#pragma once

#include <string>

#include "formats/config/config_reader.h"
#include "formats/config/model_config.h"

namespace moepack {

// `block` says that it is of `method`. kUnsupported: a method, or a variant of it, whose tensors
// cannot be read, by its key and value; kCorrupt: values of a wrong kind.
Result<SourceQuantization> read_quantization_method(const ConfigReader& block,
                                                    const std::string& method);

}  // namespace moepack
