// What the machine calls its processor.
#pragma once

#include <string>

namespace moepack {

// "model name" of /proc/cpuinfo; empty where the system does not tell.
std::string processor_name();

}  // namespace moepack
