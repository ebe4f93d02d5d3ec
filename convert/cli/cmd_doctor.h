// `moepack doctor`: what this machine is good for, measured, in plain words.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_doctor(CLI::App& app, Action& action);

}  // namespace moepack::cli
