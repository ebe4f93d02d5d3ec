// The input is a tokenizer.json and, behind a zero byte, text: parsing must end in a Status, and
// whatever text the tokenizer takes must come back from its ids in one piece or in many alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const auto tokenizer = moepack::Tokenizer::parse(input.substr(0, zero), "fuzz");
  if (!tokenizer.is_ok()) {
    if (tokenizer.status().message().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string_view text = zero == std::string_view::npos ? input : input.substr(zero + 1);
  const auto ids = tokenizer.value().encode(text);
  if (!ids.is_ok()) return 0;
  moepack::StreamDecoder stream(tokenizer.value());
  std::string pieces;
  for (const std::int32_t id : ids.value()) {
    if (id < 0 || id >= tokenizer.value().size()) std::abort();
    pieces += stream.push(id);
  }
  pieces += stream.finish();
  // A stream goes on from a prompt and keeps a space at its begin.
  const std::string whole = tokenizer.value().decode(ids.value());
  if (pieces != whole && pieces != " " + whole) std::abort();
  return 0;
}
