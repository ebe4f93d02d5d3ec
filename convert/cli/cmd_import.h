// `moepack import`: packs and weights of the flash-moe engines get manifests of ours.
#pragma once

#include "convert/cli/command.h"

namespace moepack::cli {

void register_import(CLI::App& app, Action& action);

}  // namespace moepack::cli
