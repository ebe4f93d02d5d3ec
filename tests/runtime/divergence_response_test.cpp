// What errors behind a layer do to the predictions: properties that hold for every model.
#include "runtime/corpus/divergence_response.h"

#include <gtest/gtest.h>
#include <cmath>

#include "runtime/corpus/calibrate.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::divergence_response_test {
namespace {

std::vector<DivergenceResponse> measure(const std::filesystem::path& model, std::uint32_t threads,
                                        std::size_t tokens) {
  const auto dir = open_model_dir(model, "");
  EXPECT_TRUE(dir.is_ok());
  CorpusOptions options;
  options.kernels = backend_kernels(Backend::kReference, CpuLevel::kScalar).value();
  options.threads = threads;
  options.context = 64;
  std::vector<std::int32_t> ids(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    ids[i] = static_cast<std::int32_t>((i * 977 + 31) % dir.value().config.vocab_size);
  }
  const auto windows = choose_windows(ids.size(), 64, 0);
  auto response = measure_divergence_response(dir.value(), options, ids, windows, {});
  EXPECT_TRUE(response.is_ok()) << response.status().message();
  return std::move(response).value();
}

TEST(DivergenceResponse, DoesNotDependOnThreads) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  const auto model = test::convert_for_test(dir / "checkpoint", dir);
  const auto one = measure(model, 1, 100);
  const auto three = measure(model, 3, 100);
  ASSERT_EQ(one.size(), three.size());
  for (std::size_t l = 0; l < one.size(); ++l) {
    EXPECT_EQ(one[l].per_energy, three[l].per_energy) << l;
    EXPECT_EQ(one[l].per_amplitude, three[l].per_amplitude) << l;
    EXPECT_GT(one[l].per_energy + one[l].per_amplitude, 0) << l;
  }
}

// Behind the last layer there is no router: a small error counts by its square. Before it there
// are, and small errors count for more.
TEST(DivergenceResponse, OnlyRoutersAnswerInProportion) {
  const test::TempDir dir;
  const auto model = test::convert_for_test(test::demo_mlx_model(), dir);
  const auto response = measure(model, 2, 512);
  ASSERT_EQ(response.size(), 4U);
  // Errors of the size of an expert's share are about 0.003 of the output's energy.
  EXPECT_LT(response.back().per_amplitude, 0.02 * response.back().per_energy);
  EXPECT_GT(response.front().per_amplitude, 0);
}

TEST(DivergenceResponse, IsWrittenWithTheCalibration) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  CalibrateOptions options;
  options.model = test::convert_for_test(dir / "checkpoint", dir);
  options.output = dir / "calibration";
  options.backend = Backend::kReference;
  options.probe_tokens = 40;
  std::vector<std::int32_t> ids(90, 5);
  const auto report = calibrate(options, ids, {});
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  const auto read = read_calibration_manifest(options.output);
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().response.size(), read.value().num_layers);
}

}  // namespace
}  // namespace moepack::divergence_response_test
