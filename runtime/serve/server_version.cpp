#include "runtime/serve/server_version.h"

namespace moepack {

const char* server_version() { return MOEPACK_SERVER_VERSION; }

}  // namespace moepack
