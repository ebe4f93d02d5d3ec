// What a template may spend. Templates come with checkpoints and are as trustworthy as those.
#pragma once

#include <cstdint>

namespace moepack::jinja {

struct Limits {
  std::uint64_t source_bytes = 256 << 10;
  std::uint64_t nesting = 120;            // of expressions and statements in the source
  std::uint64_t steps = 10'000'000;       // expressions, items, and 64 bytes of text each
  std::uint64_t depth = 600;              // of evaluations within evaluations
  std::uint64_t memory_bytes = 96 << 20;  // of all values at a time
  std::uint64_t levels = 200;             // of values within values
  std::uint64_t text_bytes = 32 << 20;    // of one text, and of the output
  std::uint64_t list_items = 1 << 18;     // made by one operation
  std::uint64_t range_items = 100'000;    // jinja2's own limit in its sandbox
};

}  // namespace moepack::jinja
