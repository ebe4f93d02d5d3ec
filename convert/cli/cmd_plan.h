// `moepack plan`: what running a model would take and how fast it would be, before anything is
// downloaded, converted or loaded.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_plan(CLI::App& app, Action& action);

}  // namespace moepack::cli
