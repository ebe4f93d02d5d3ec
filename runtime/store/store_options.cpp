#include "runtime/store/store_options.h"

#include <array>
#include <string>
#include <utility>

namespace moepack {
namespace {

constexpr std::array<std::pair<IoMode, std::string_view>, 4> kModes{
    {{IoMode::kAuto, "auto"},
     {IoMode::kBuffered, "buffered"},
     {IoMode::kDirect, "direct"},
     {IoMode::kMmap, "mmap"}}};
constexpr std::array<std::pair<IoEngine, std::string_view>, 3> kEngines{
    {{IoEngine::kAuto, "auto"}, {IoEngine::kThreads, "threads"}, {IoEngine::kUring, "uring"}}};

template <typename Names, typename Value>
std::string_view name_of(const Names& names, Value value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "unknown";
}

}  // namespace

std::string_view io_mode_name(IoMode mode) { return name_of(kModes, mode); }
std::string_view io_engine_name(IoEngine engine) { return name_of(kEngines, engine); }

Result<IoMode> parse_io_mode(std::string_view name) {
  for (const auto& [mode, known] : kModes) {
    if (known == name) return mode;
  }
  return invalid_argument("--io " + printable(name) + " is no way to read",
                          "known are auto, buffered, direct and mmap");
}

Result<IoEngine> parse_io_engine(std::string_view name) {
  for (const auto& [engine, known] : kEngines) {
    if (known == name) return engine;
  }
  return invalid_argument("--io-engine " + printable(name) + " is none",
                          "known are auto, threads and uring");
}

}  // namespace moepack
