// `moepack serve`: a model behind HTTP.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_serve(CLI::App& app, Action& action);

}  // namespace moepack::cli
