// `moepack index`: where every expert lies in a checkpoint.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_index(CLI::App& app, Action& action);

}  // namespace moepack::cli
