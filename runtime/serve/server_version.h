// What the server calls itself.
#pragma once

namespace moepack {

const char* server_version();  // of the project: "0.1.0"

}  // namespace moepack
