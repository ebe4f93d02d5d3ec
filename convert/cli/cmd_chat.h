// `moepack chat`: a conversation with a model at the terminal.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_chat(CLI::App& app, Action& action);

}  // namespace moepack::cli
