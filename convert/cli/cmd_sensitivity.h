// `moepack sensitivity`: which experts deserve the bits.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_sensitivity(CLI::App& app, Action& action);

}  // namespace moepack::cli
