// Edits every number of a valid JSON text, one at a time: a reader must refuse the edit or be
// unmoved by it.
#pragma once

#include <cctype>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace moepack::test {

struct NumberToken {
  std::size_t begin;
  std::size_t size;
};

// Where the numbers outside strings stand.
inline std::vector<NumberToken> number_tokens(std::string_view json) {
  std::vector<NumberToken> tokens;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (in_string) {
      if (json[i] == '\\') {
        ++i;
      } else if (json[i] == '"') {
        in_string = false;
      }
    } else if (json[i] == '"') {
      in_string = true;
    } else if (std::isdigit(static_cast<unsigned char>(json[i])) != 0) {
      std::size_t end = i;
      while (end < json.size() && std::isdigit(static_cast<unsigned char>(json[end])) != 0) ++end;
      tokens.push_back({i, end - i});
      i = end - 1;
    }
  }
  return tokens;
}

inline void for_each_number_edit(
    std::string_view json,
    const std::function<void(const std::string& edited, std::size_t at)>& check) {
  for (const NumberToken& token : number_tokens(json)) {
    const std::string old(json.substr(token.begin, token.size));
    const unsigned long long value = std::stoull(old);
    for (const std::string& replacement :
         {std::to_string(value + 1), std::to_string(value - 1), std::to_string(value * 2),
          std::to_string(value / 2), std::to_string(value + 64), std::to_string(value + 4096),
          std::string("0"), std::string("1"), std::string("-1"), old + ".5", old + "e0",
          std::string("18446744073709551615"), std::string("99999999999999999999999"),
          std::string("9223372036854775807"), std::string("null"), "\"" + old + "\""}) {
      if (replacement == old) continue;
      std::string edited(json.substr(0, token.begin));
      edited += replacement;
      edited += json.substr(token.begin + token.size);
      check(edited, token.begin);
    }
  }
}

}  // namespace moepack::test
