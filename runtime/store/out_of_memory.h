// Memory that cannot be had as a Status, for what allocates through containers.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

// kIo: "out of memory: WHAT (N bytes); what to do". Where there is no memory for this sentence
// either, its first three words alone.
inline Status out_of_memory(std::string_view what,
                            std::optional<std::uint64_t> bytes = std::nullopt) noexcept {
  try {
    std::string text = "out of memory: " + std::string(what);
    if (bytes.has_value()) text += " (" + std::to_string(*bytes) + " bytes)";
    return make_error(StatusCode::kIo, Where{}, text,
                      "lower --cache-mb, --chunk or -c, or end other programs");
  } catch (const std::exception&) {
    return {StatusCode::kIo, "out of memory"};  // fits into the string itself
  }
}

// What `body` gives, a Status or a Result; out_of_memory(what, bytes) where it finds no memory.
template <typename Body>
auto or_out_of_memory(std::string_view what, std::optional<std::uint64_t> bytes, const Body& body)
    -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory(what, bytes);
  } catch (const std::length_error&) {  // more than any memory
    return out_of_memory(what, bytes);
  }
}

}  // namespace moepack
