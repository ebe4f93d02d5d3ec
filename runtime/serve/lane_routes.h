// The hot experts of a GPU over HTTP, by the paths of llama.cpp's hot cache: GET and POST
// /moe-hot-cache, GET and POST /moe-layer-perf.
#pragma once

#include "runtime/serve/route.h"

namespace moepack {

void add_lane_routes(RouteTable& table);

}  // namespace moepack
