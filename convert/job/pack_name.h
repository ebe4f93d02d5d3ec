// How the packs that commands make are called.
#pragma once

#include <optional>
#include <string>

namespace moepack {

// The directory that the name of a new pack stands for: packed_experts and packed_experts_NAME as
// they are, any other NAME as packed_experts_NAME. nullopt unless NAME is letters, digits, _ and -,
// which every command takes and no file system or shell reads as something else.
std::optional<std::string> new_pack_directory(const std::string& name);

}  // namespace moepack
