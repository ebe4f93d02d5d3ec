// Whether what a command is about to write has room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

// Ok when `needed` bytes are free at `place`, and when the system does not tell how many are
// (`free` is nullopt; zero means zero). kIo otherwise: "PLACE: WHAT needs N bytes, but only M are
// free there; REMEDY".
Status check_space(const std::filesystem::path& place, std::string_view what, std::uint64_t needed,
                   std::optional<std::uint64_t> free,
                   std::string_view remedy = "free some space or name another place");

}  // namespace moepack
