// `moepack quantize`: one more expert pack for a model directory.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_quantize(CLI::App& app, Action& action);

}  // namespace moepack::cli
