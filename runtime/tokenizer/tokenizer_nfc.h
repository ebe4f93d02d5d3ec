// Unicode normalization form C as the reference tokenizer applies it (UAX #15 with the data of
// Unicode 9.0; see tokenizer_unicode.h).
#pragma once

#include <string>
#include <string_view>

namespace moepack {

// `text` is valid UTF-8. Returns it unchanged where it is already in form C and short-cuts can see
// that; otherwise writes the normalized text to `storage` and returns a view of that. Time grows as
// n log n at worst, for any order of combining marks. Pure; any number of threads.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

// True where normalization never reaches across the front of this character: it neither combines
// with what precedes it nor moves before it. The check is fast, and false proves nothing.
bool starts_nfc_segment(char32_t character);

}  // namespace moepack
