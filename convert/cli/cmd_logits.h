// `moepack logits`: the raw output of a model for given tokens.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_logits(CLI::App& app, Action& action);

}  // namespace moepack::cli
