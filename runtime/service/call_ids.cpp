#include "runtime/service/call_ids.h"

#include <cstddef>
#include <string_view>

namespace moepack {

std::string CallIds::next() {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::size_t kLength = 16;
  const std::lock_guard lock(mutex_);
  std::string id = "call_";
  for (std::size_t i = 0; i < kLength; ++i) id += kLetters[random_() % kLetters.size()];
  return id;
}

}  // namespace moepack
