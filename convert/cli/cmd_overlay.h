// `moepack overlay`: tensors of a GGUF file over a model directory.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_overlay(CLI::App& app, Action& action);

}  // namespace moepack::cli
