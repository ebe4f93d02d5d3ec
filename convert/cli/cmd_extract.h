// `moepack extract`: one tensor of a checkpoint, a model directory or a pack, stored or decoded.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_extract(CLI::App& app, Action& action);

}  // namespace moepack::cli
