#include "runtime/speed/processor_name.h"

#include <fstream>

namespace moepack {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(':');
    const std::size_t from = line.find_first_not_of(" \t", colon + 1);
    if (colon == std::string::npos || from == std::string::npos) return "";
    return line.substr(from);
  }
  return "";
}

}  // namespace moepack
