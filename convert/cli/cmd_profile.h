// `moepack profile`: how often each expert of a model is used; lists of the hot ones.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_profile(CLI::App& app, Action& action);

}  // namespace moepack::cli
