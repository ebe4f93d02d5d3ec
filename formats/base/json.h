// Strict JSON for bytes from outside. Over the library (nlohmann-json) it adds: duplicate keys and
// deep nesting are refused, and every error is a Status with the file and the byte position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/status.h"

namespace moepack {

constexpr int kMaxJsonDepth = 64;

// Receives a document event by event, so that a header of any size needs no tree.
// A Status that is not ok ends the parse and is returned as it is.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual Status on_null() = 0;
  virtual Status on_bool(bool value) = 0;
  // Non-negative integers that fit; larger, fractional or exponent forms are on_number.
  virtual Status on_unsigned(std::uint64_t value) = 0;
  // Integers with a minus that fit; on_number unless it is overridden.
  virtual Status on_negative(std::int64_t value) { return on_number(static_cast<double>(value)); }
  virtual Status on_number(double value) = 0;
  virtual Status on_string(std::string& value) = 0;  // may be moved from
  virtual Status begin_object() = 0;
  virtual Status on_key(std::string& key) = 0;  // may be moved from
  virtual Status end_object() = 0;
  virtual Status begin_array() = 0;
  virtual Status end_array() = 0;

 protected:
  // Bytes consumed so far, for error messages: a little behind the token being reported.
  std::uint64_t position() const { return position_; }

 private:
  friend Status visit_json(std::string_view, const Where&, JsonVisitor&);
  friend class JsonEventAdapter;
  std::uint64_t position_ = 0;
};

// `where.file` names the file; `where.offset` (0 if absent) is where `text` starts in it.
Status visit_json(std::string_view text, const Where& where, JsonVisitor& visitor);

// The whole document as a tree: for configuration-sized files only.
Result<nlohmann::json> parse_json(std::string_view text, const Where& where);

// The same with keys in the order in which they stand, and with negative integers as such: what is
// said again (tools, schemas) is said as it was. For requests: a document of more than
// kMaxOrderedJsonValues is refused, because its tree takes many times its own size.
constexpr std::size_t kMaxOrderedJsonValues = 2'000'000;
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, const Where& where);

}  // namespace moepack
