#include "convert/cli/utf8_locale.h"

namespace moepack::cli {
namespace {

constexpr locale_t kNoLocale = nullptr;

locale_t utf8_locale() {
  for (const char* const name : {"C.UTF-8", ""}) {
    const locale_t found = newlocale(LC_CTYPE_MASK, name, kNoLocale);
    if (found != kNoLocale) return found;
  }
  return kNoLocale;
}

}  // namespace

Utf8Locale::Utf8Locale() : locale_(utf8_locale()) {}

Utf8Locale::~Utf8Locale() {
  if (locale_ != kNoLocale) freelocale(locale_);
}

// Without a locale uselocale() changes nothing.
Utf8Locale::Use::Use(const Utf8Locale& locale) : before_(uselocale(locale.locale_)) {}

Utf8Locale::Use::~Use() { uselocale(before_); }

}  // namespace moepack::cli
