// `moepack convert`: a checkpoint becomes a model directory.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_convert(CLI::App& app, Action& action);

}  // namespace moepack::cli
