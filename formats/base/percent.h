// Percent signs of URLs (RFC 3986, section 2.1).
#pragma once

#include <string>
#include <string_view>

namespace moepack {

// "%2F" becomes "/"; a sign without two digits of base 16 behind it stays.
std::string percent_decoded(std::string_view text);

}  // namespace moepack
