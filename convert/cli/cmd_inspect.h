// `moepack inspect`: what is in a checkpoint, a model directory or a pack.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_inspect(CLI::App& app, Action& action);

}  // namespace moepack::cli
