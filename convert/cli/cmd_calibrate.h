// `moepack calibrate`: what the experts of a model are given by a text, for the quantizer.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_calibrate(CLI::App& app, Action& action);

}  // namespace moepack::cli
