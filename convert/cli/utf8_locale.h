// A locale whose characters are UTF-8, for what reads it from the C library.
#pragma once

#include <clocale>

namespace moepack::cli {

// The locale itself: C.UTF-8, or that of the environment where there is none. One owner.
class Utf8Locale {
 public:
  Utf8Locale();
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale();

  // While it lives, the thread that made it has the locale.
  class Use {
   public:
    explicit Use(const Utf8Locale& locale);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();

   private:
    locale_t before_;
  };

 private:
  locale_t locale_;
};

}  // namespace moepack::cli
