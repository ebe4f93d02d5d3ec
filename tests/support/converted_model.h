// Checkpoints converted for a test, in a directory that goes away with it.
#pragma once

#include <gtest/gtest.h>
#include <filesystem>
#include <memory>
#include <string>

#include "convert/pack/convert.h"
#include "runtime/engine.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::test {

// Converts `checkpoint` with default options (everything as it is in the source) to a model
// directory inside `dir`, and gives its path; empty after a failure that the test has recorded.
inline std::filesystem::path convert_for_test(const std::filesystem::path& checkpoint,
                                              const TempDir& dir, ConvertOptions options = {}) {
  options.source = checkpoint;
  options.output = dir / "model";
  options.threads = 2;
  const auto report = convert_checkpoint(options, {});
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? options.output : std::filesystem::path();
}

inline EngineOptions reference_options(const std::filesystem::path& model) {
  EngineOptions options;
  options.model = model;
  options.backend = Backend::kReference;
  options.threads = 2;
  options.context = 512;
  return options;
}

inline EngineOptions fast_options(const std::filesystem::path& model) {
  EngineOptions options = reference_options(model);
  options.backend = Backend::kCpu;
  options.cpu_level = detect_cpu_level();
  return options;
}

}  // namespace moepack::test
