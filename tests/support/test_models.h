// Where tests find models. The demo checkpoint is in the repository. The larger models are looked
// for in the folder that the environment variable MOEPACK_TEST_MODELS names, and tests that want
// them are SKIPPED without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace moepack::test {

inline std::filesystem::path demo_mlx_model() {
  return std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/demo-moe-mlx-4bit";
}

// Of gemma4 with experts, with transformers' logits and hidden states (its README).
inline std::filesystem::path gemma4_model() {
  return std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/gemma4";
}

inline std::optional<std::filesystem::path> test_model(const std::string& name) {
  if (name == "demo-moe-mlx-4bit") return demo_mlx_model();
  if (name == "gemma4") return gemma4_model();
  const char* root = std::getenv("MOEPACK_TEST_MODELS");
  if (root == nullptr || *root == '\0') return std::nullopt;
  std::filesystem::path path = std::filesystem::path(root) / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

// The raw little-endian elements of a golden file.
template <typename T>
std::vector<T> read_golden(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  EXPECT_TRUE(in.good()) << path;
  if (!in.good()) return {};
  std::vector<T> values(static_cast<std::size_t>(in.tellg()) / sizeof(T));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

}  // namespace moepack::test

// Use it at the head of a test, which it skips loudly when the model is not there.
#define MOE_REQUIRE_MODEL(variable, name)                                    \
  const auto variable##_found = ::moepack::test::test_model(name);           \
  if (!variable##_found.has_value()) {                                       \
    GTEST_SKIP() << "SKIPPED: needs " << (name)                              \
                 << "; set MOEPACK_TEST_MODELS to the folder that holds it"; \
  }                                                                          \
  const std::filesystem::path variable = *variable##_found
