// EXPECT_OK / ASSERT_OK on Status and Result, and the one-line rule of error messages.
#pragma once

#include <gtest/gtest.h>

#include "formats/base/status.h"

namespace moepack::test {

inline const Status& status_of(const Status& status) { return status; }
template <typename T>
Status status_of(const Result<T>& result) {
  return result.status();
}

// Expects an error whose message users may see: it is not empty, has one line, and mentions each of
// `parts`.
inline void expect_error(const Status& status, StatusCode code,
                         std::initializer_list<std::string_view> parts) {
  EXPECT_FALSE(status.is_ok());
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  for (std::string_view part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "\"" << part << "\" is missing in: " << status.message();
  }
}

}  // namespace moepack::test

#define EXPECT_OK(expr)                                                            \
  do {                                                                             \
    const ::moepack::Status moe_expect_status_ = ::moepack::test::status_of(expr); \
    EXPECT_TRUE(moe_expect_status_.is_ok()) << moe_expect_status_.message();       \
  } while (false)
#define ASSERT_OK(expr)                                                            \
  do {                                                                             \
    const ::moepack::Status moe_assert_status_ = ::moepack::test::status_of(expr); \
    ASSERT_TRUE(moe_assert_status_.is_ok()) << moe_assert_status_.message();       \
  } while (false)
// Unwraps a Result<T> into `lhs` or fails the test.
#define ASSERT_OK_AND_ASSIGN(lhs, expr)                             \
  auto MOE_CONCAT(moe_test_result_, __LINE__) = (expr);             \
  ASSERT_TRUE(MOE_CONCAT(moe_test_result_, __LINE__).is_ok())       \
      << MOE_CONCAT(moe_test_result_, __LINE__).status().message(); \
  lhs = std::move(MOE_CONCAT(moe_test_result_, __LINE__)).value()
