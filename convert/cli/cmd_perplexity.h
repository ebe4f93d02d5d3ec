// `moepack perplexity`: how well a model predicts a text, and how far it is from another model.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_perplexity(CLI::App& app, Action& action);

}  // namespace moepack::cli
