// Members of a JSON object in a request, read with their types and limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/chat/conversation.h"
#include "runtime/serve/api_error.h"

namespace moepack {

// The first thing that is wrong in a request; what follows it is read as if it were absent.
using RequestProblem = std::optional<ApiError>;

// Reads one object. An explicit null counts as an absent member; members that nobody asks for are
// ignored. A member of a wrong type or out of its limits is a problem that names it by its path,
// e.g. "tools[0].name". Object, path and problem outlive it.
class RequestFields {
 public:
  // `path` of the object: empty for the whole body.
  RequestFields(const OrderedJson& object, std::string path, RequestProblem& problem);

  const OrderedJson* find(std::string_view key) const;    // nullptr: absent or null
  const OrderedJson* object(std::string_view key) const;  // nullptr also for another type
  const OrderedJson* array(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  // low <= number <= high.
  std::optional<double> number(std::string_view key, double low, double high) const;
  std::optional<std::uint64_t> count(std::string_view key) const;  // a whole number >= 0
  std::optional<std::int64_t> integer(std::string_view key) const;
  // The member as text, or empty where it is no text; never a problem.
  std::string_view text_or_empty(std::string_view key) const;

  std::string path_of(std::string_view key) const;
  void refuse(std::string_view key, std::string message) const;

 private:
  const OrderedJson& object_;
  std::string path_;
  RequestProblem& problem_;
};

// "messages[3]"
std::string path_of_element(std::string_view path, std::size_t index);
void set_problem(RequestProblem& problem, std::string message, std::string path);

}  // namespace moepack
