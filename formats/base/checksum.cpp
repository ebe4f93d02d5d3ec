#include "formats/base/checksum.h"

#include <new>

#include <xxhash.h>

namespace moepack {

struct ChecksumStream::State {
  XXH3_state_t* xxh;
};

std::uint64_t checksum(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

std::string checksum_text(std::uint64_t sum) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = kHex[(sum >> (4 * i)) & 15];
  return text;
}

std::optional<std::uint64_t> parse_checksum(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  std::uint64_t sum = 0;
  for (char c : text) {
    std::uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint64_t>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    sum = sum << 4 | digit;
  }
  return sum;
}

ChecksumStream::ChecksumStream() : state_(new State{XXH3_createState()}) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_->xxh);
}

ChecksumStream::~ChecksumStream() { XXH3_freeState(state_->xxh); }

void ChecksumStream::add(std::span<const std::byte> data) {
  XXH3_64bits_update(state_->xxh, data.data(), data.size());
}

std::uint64_t ChecksumStream::finish() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace moepack
