#include "formats/base/status.h"

#include <array>

namespace moepack {

std::string printable(std::string_view text, std::size_t max_chars) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (char c : text) {
    if (out.size() >= max_chars) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

Status make_error(StatusCode code, const Where& where, std::string_view what,
                  std::string_view remedy) {
  // Longer than any sentence and than most lists; a shape from a file may have 100,000 dimensions.
  constexpr std::size_t kMaxWhat = 2048;
  std::string message;
  if (!where.file.empty()) message += printable(where.file, 4096) + ": ";
  if (!where.tensor.empty()) message += "tensor " + printable(where.tensor);
  if (where.offset.has_value()) {
    if (!where.tensor.empty()) message += ", ";
    message += "offset " + std::to_string(*where.offset);
  }
  if (!where.tensor.empty() || where.offset.has_value()) message += ": ";
  message += what.substr(0, kMaxWhat);
  if (what.size() > kMaxWhat) message += "...";
  if (!remedy.empty()) {
    message += "; ";
    message += remedy;
  }
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return {code, std::move(message)};
}

}  // namespace moepack
