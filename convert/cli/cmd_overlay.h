// moepack overlay.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_overlay(CLI::App& app, Action& action);

}  // namespace moepack::cli
