#include "runtime/serve/expert_map_json.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "formats/base/elapsed.h"

namespace moepack {

std::string base64_text(std::span<const std::uint8_t> bytes) {
  constexpr char kBase64Letters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < count ? bytes[at + i] : 0U);
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? kBase64Letters[bits >> (18 - 6 * i) & 63U] : '=';
    }
  }
  return text;
}

OrderedJson expert_map_json(const ExpertMap& map, const ServiceStats& stats) {
  const std::size_t count = std::size_t{map.layers} * map.experts;
  std::vector<std::uint8_t> warmth = map.warmth;
  warmth.resize(count);
  std::vector<std::uint8_t> resident((count + 7) / 8);
  for (std::size_t at = 0; at < std::min(count, map.is_resident.size()); ++at) {
    if (map.is_resident[at]) resident[at / 8] |= static_cast<std::uint8_t>(1U << at % 8);
  }
  OrderedJson json;
  json["layers"] = map.layers;
  json["experts"] = map.experts;
  json["warmth"] = base64_text(warmth);
  json["resident"] = base64_text(resident);
  json["hits"] = stats.expert_hits;
  json["misses"] = stats.expert_misses;
  json["bytes_read"] = stats.expert_bytes_read;
  json["read_seconds"] = stats.read_seconds;
  json["tokens_per_second"] = per_second(stats.decode_tokens, stats.decode_seconds);
  return json;
}

}  // namespace moepack
