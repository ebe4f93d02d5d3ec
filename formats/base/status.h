// Errors as values. Every library function that can fail on outside data returns Status or
// Result<T>; nothing below convert/cli prints, exits or throws on data.
//
// A message is one line: `FILE: tensor NAME, offset N: what is wrong; what to do`. Build it with
// the helpers below so that names taken from files cannot break the line.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace moepack {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller or the command line asked for something impossible
  kNotFound,         // a file, tensor or key is missing
  kCorrupt,          // bytes contradict their own description or each other
  kUnsupported,      // valid, but not something this version reads
  kIo,               // the operating system refused
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // One line without a trailing newline; empty when ok.
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!std::get<Status>(state_).is_ok());
  }

  bool is_ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return is_ok() ? Status::ok() : std::get<Status>(state_); }

  T& value() & {
    assert(is_ok());
    return std::get<T>(state_);
  }
  const T& value() const& {
    assert(is_ok());
    return std::get<T>(state_);
  }
  T&& value() && {
    assert(is_ok());
    return std::get<T>(std::move(state_));
  }

 private:
  std::variant<T, Status> state_;
};

// Where outside bytes went wrong. Empty parts are left out of the message.
struct Where {
  std::string_view file;
  std::string_view tensor = {};
  std::optional<std::uint64_t> offset = std::nullopt;  // bytes from the start of the file
};

// `what` states the fact, `remedy` what the user can do about it (may be empty).
Status make_error(StatusCode code, const Where& where, std::string_view what,
                  std::string_view remedy = {});

inline Status corrupt(const Where& where, std::string_view what, std::string_view remedy = {}) {
  return make_error(StatusCode::kCorrupt, where, what, remedy);
}
inline Status unsupported(const Where& where, std::string_view what, std::string_view remedy = {}) {
  return make_error(StatusCode::kUnsupported, where, what, remedy);
}
inline Status not_found(const Where& where, std::string_view what, std::string_view remedy = {}) {
  return make_error(StatusCode::kNotFound, where, what, remedy);
}
inline Status invalid_argument(std::string_view what, std::string_view remedy = {}) {
  return make_error(StatusCode::kInvalidArgument, Where{}, what, remedy);
}

// Makes text from outside safe to print on one line: control characters and invalid bytes become
// \xNN, and anything beyond `max_chars` is cut with an ellipsis.
std::string printable(std::string_view text, std::size_t max_chars = 256);

}  // namespace moepack

#define MOE_CONCAT_INNER(a, b) a##b
#define MOE_CONCAT(a, b) MOE_CONCAT_INNER(a, b)

// Returns the error of `expr` (a Status) from the enclosing function.
#define MOE_RETURN_IF_ERROR(expr)                 \
  do {                                            \
    ::moepack::Status moe_status_ = (expr);       \
    if (!moe_status_.is_ok()) return moe_status_; \
  } while (false)

// Evaluates `expr` (a Result<T>); on error returns its Status, else assigns the value to `lhs`.
#define MOE_ASSIGN_OR_RETURN(lhs, expr) \
  MOE_ASSIGN_OR_RETURN_IMPL(MOE_CONCAT(moe_result_, __LINE__), lhs, expr)
#define MOE_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.is_ok()) return result.status();       \
  lhs = std::move(result).value()
