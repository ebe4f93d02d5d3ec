// Reads the fields of a request. Fields that nobody asks for are ignored, and null is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/chat/conversation.h"
#include "runtime/serve/api_error.h"

namespace moepack {

// The first error of a request; later ones are forgotten.
class RequestFault {
 public:
  void set(ApiError error) {
    if (!error_.has_value()) error_ = std::move(error);
  }
  bool is_set() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  std::optional<ApiError> error_;
};

// The fields of one object. What has the wrong type or is out of range is set as a fault that names
// it, and read as absent. `object` and `fault` outlive the reader.
class BodyFields {
 public:
  // `place` comes before the names of fields in errors, e.g. "messages[2]."; empty at the top.
  BodyFields(const OrderedJson& object, std::string place, RequestFault& fault);

  const OrderedJson* find(std::string_view name) const;  // of any type; nullptr: absent
  std::optional<bool> flag(std::string_view name) const;
  // Within [low, high]; numbers that are not finite cannot be written in JSON.
  std::optional<double> number(std::string_view name, double low, double high) const;
  std::optional<std::int64_t> whole(std::string_view name, std::int64_t low,
                                    std::int64_t high) const;
  std::optional<std::string> text(std::string_view name) const;
  const OrderedJson* object(std::string_view name) const;
  const OrderedJson* array(std::string_view name) const;

  void fail(std::string_view name, std::string message) const;
  std::string place_of(std::string_view name) const { return place_ + std::string(name); }
  RequestFault& fault() const { return fault_; }

 private:
  const OrderedJson& object_;
  std::string place_;
  RequestFault& fault_;
};

// "messages[2]"
std::string element_place(std::string_view array, std::size_t index);

}  // namespace moepack
