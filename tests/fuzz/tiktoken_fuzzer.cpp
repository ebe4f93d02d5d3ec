// The input is what stands in a tiktoken.model behind the tokens of single bytes, and behind a zero
// byte a tokenizer_config.json. What is made of the two is a tokenizer.json that can be read, with
// every token and no other merges than those of tokens.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "convert/source/tiktoken_tokenizer.h"
#include "formats/config/tokenizer_json.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::test::check_message;
using moepack::test::require;

std::string single_bytes() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    text += " " + std::to_string(byte) + "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kIds = 1000;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_message(moepack::parse_tiktoken(input, "fuzz").status());
  const std::size_t zero = input.find('\0');
  const std::string text = single_bytes() + std::string(input.substr(0, zero));
  const auto tokens = moepack::parse_tiktoken(text, "fuzz");
  check_message(tokens.status());
  if (!tokens.is_ok()) return 0;
  require(tokens.value().size() >= 256);
  const std::string_view config = zero == std::string_view::npos
                                      ? R"({"tokenizer_class": "TikTokenTokenizer"})"
                                      : input.substr(zero + 1);
  const auto made = moepack::tiktoken_tokenizer_text(tokens.value(), config, "fuzz", kIds);
  check_message(made.status());
  if (!made.is_ok()) return 0;
  const auto spec = moepack::parse_tokenizer_json(made.value(), "fuzz");
  require(spec.is_ok());
  require(spec.value().vocab.size() == tokens.value().size());
  require(spec.value().equal_ranks && spec.value().ignore_merges);
  require(spec.value().added_tokens.size() <= 256);
  return 0;
}
