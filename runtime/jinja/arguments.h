// Arguments matched with the parameters of a built-in function, as Python matches them.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

class Bound {
 public:
  // The first `required` of `names` must be given; an error for too many, unknown or doubled ones.
  // `what` names the function in the message.
  Bound(std::string_view what, const Arguments& arguments,
        std::initializer_list<std::string_view> names, std::size_t required = 0);

  // Null where it was not given.
  const Value* operator[](std::size_t i) const { return values_[i]; }
  // Null where it was not given or is none.
  const Value* given(std::size_t i) const {
    return values_[i] == nullptr || values_[i]->is_none() ? nullptr : values_[i];
  }
  bool flag(Run& run, std::size_t i, bool absent = false) const {
    return values_[i] == nullptr ? absent : truth(run, *values_[i]);
  }
  // An integer; an error for another type.
  Integer integer(std::size_t i, Integer absent) const;
  // A str; an error for another type.
  TextPtr text(std::size_t i, std::string_view absent = {}) const;

 private:
  std::vector<const Value*> values_;
};

// For functions that take positional arguments only.
void expect_count(std::string_view what, const Arguments& arguments, std::size_t least,
                  std::size_t most);

// What Python takes as an index or a count; clamped to what a std::int64_t holds.
std::int64_t need_index(const Value& value);
const TextPtr& need_text(const Value& value);

}  // namespace moepack::jinja
