// `moepack export`: a model directory as the flash-moe engines or llama.cpp want it.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_export(CLI::App& app, Action& action);

}  // namespace moepack::cli
