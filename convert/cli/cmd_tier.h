// `moepack tier`: an expert pack in which every expert has the bits it deserves.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_tier(CLI::App& app, Action& action);

}  // namespace moepack::cli
