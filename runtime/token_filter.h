// What may come next in a text, for the sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moepack {

// Follows one text. Used by one thread at a time.
class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  // Whether anything is forbidden now; if not, the other questions need not be asked.
  virtual bool is_active() const = 0;
  // So many tokens may still come, the end token included; said before each of them where the text
  // has a limit. A filter may then forbid what could not be completed in time.
  virtual void set_remaining(std::uint64_t /*tokens*/) {}
  // Whether `id` may come next. Ids that end the text count as ids.
  virtual bool allows(std::int32_t id) = 0;
  // Sets the logits of all ids that may not come next to -infinity. At least one is left.
  virtual void mask(std::span<float> logits) = 0;
  // `id` has come.
  virtual void accept(std::int32_t id) = 0;
};

}  // namespace moepack
