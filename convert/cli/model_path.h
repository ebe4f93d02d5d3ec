// Looks at what a user may have named in place of a model directory.
#pragma once

#include <string>

#include "formats/base/status.h"

namespace moepack::cli {

// An error, with the command that helps, where `path` is a file or nothing: a GGUF file wants to be
// converted first, the name of a repository (ORG/NAME) to be downloaded. Whatever is a directory
// passes: whoever opens it knows what is missing in it.
Status check_model_path(const std::string& path);

}  // namespace moepack::cli
