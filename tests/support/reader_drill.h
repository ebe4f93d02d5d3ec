// The drill that every reader of outside bytes passes: each truncated length must fail with a
// one-line message and without touching anything, and so must one extra byte where the format is
// exact. Run it under the sanitizers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "formats/base/status.h"

namespace moepack::test {

struct DrillOptions {
  bool refuses_extra_byte = true;  // one byte more is an error too
  std::size_t first = 0;           // shortest length tried
  std::size_t step = 1;            // try every step-th length (the last 64 always)
};

inline void drill_truncation(std::string_view valid,
                             const std::function<Status(std::string_view)>& parse,
                             const DrillOptions& options = {}) {
  const Status whole = parse(valid);
  ASSERT_TRUE(whole.is_ok()) << whole.message();
  for (std::size_t n = options.first; n < valid.size(); ++n) {
    if (n % options.step != 0 && n + 64 < valid.size()) continue;
    // A copy of exactly n bytes, so that the sanitizers see any read beyond it.
    const std::string cut(valid.substr(0, n));
    const Status status = parse(cut);
    ASSERT_FALSE(status.is_ok()) << "accepted after " << n << " of " << valid.size() << " bytes";
    ASSERT_FALSE(status.message().empty());
    ASSERT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  if (options.refuses_extra_byte) {
    EXPECT_FALSE(parse(std::string(valid) + "x").is_ok()) << "one extra byte was accepted";
  }
}

}  // namespace moepack::test
