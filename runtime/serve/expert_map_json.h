// The map of experts as the page reads it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/chat/conversation.h"
#include "runtime/service/answer_service.h"

namespace moepack {

// {"layers", "experts": numbers;
//  "warmth": base64 of layers * experts bytes, 0 cold to 255 warm, layer after layer;
//  "resident": base64 of a bit an expert, the lowest bit of a byte first, the last byte filled with
//  0; "hits", "misses", "bytes_read", "read_seconds": counted since the start; "tokens_per_second":
//  of all decoded tokens since the start, 0 before the first}
// What `map` lacks of its layers * experts values counts as cold and on disk.
OrderedJson expert_map_json(const ExpertMap& map, const ServiceStats& stats);

// RFC 4648, section 4, with padding.
std::string base64_text(std::span<const std::uint8_t> bytes);

}  // namespace moepack
