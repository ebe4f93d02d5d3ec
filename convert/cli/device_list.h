// The GPUs of the machine, for people.
#pragma once

namespace moepack::cli {

// Prints a line for each on stdout: number, name, kind, memory, driver, and what it lacks. The exit
// code: an error where there is no Vulkan.
int list_devices();

}  // namespace moepack::cli
