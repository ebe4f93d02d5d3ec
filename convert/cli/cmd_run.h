// `moepack run`: text from a model.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_run(CLI::App& app, Action& action);

}  // namespace moepack::cli
