// `moepack verify`: is a model directory sound, and is it what its source says?
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_verify(CLI::App& app, Action& action);

}  // namespace moepack::cli
