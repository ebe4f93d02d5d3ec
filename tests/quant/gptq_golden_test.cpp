// GPTQ against the codes that a float64 numpy program chose for the same problems
// (tests/golden/gptq): the sweep alone, with given scales, biases and damping.
#include "quant/gptq.h"
#include "quant/grid.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/file.h"
#include "tests/support/random_matrix.h"
#include "tests/support/status_matchers.h"

namespace moepack::gptq_golden_test {
namespace {

struct GoldenCase {
  std::size_t rows, cols, group;
  std::uint32_t bits;
  float damping;
  double objective, objective_of_rounding;
  Eigen::MatrixXd weights, hessian;
  AffineMatrix expected;
};

Eigen::MatrixXd read_f64(const std::string& path, std::size_t rows, std::size_t cols) {
  const Result<std::string> text = read_text_file(path, std::uint64_t{1} << 24);
  EXPECT_TRUE(text.is_ok()) << path;
  EXPECT_EQ(text.value().size(), rows * cols * 8) << path;
  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> m(rows, cols);
  std::memcpy(m.data(), text.value().data(), text.value().size());
  return m;
}

GoldenCase read_case(const std::string& name) {
  const std::string dir = std::string(MOEPACK_SOURCE_DIR) + "/tests/golden/gptq/" + name + "/";
  const auto json = nlohmann::json::parse(read_text_file(dir + "case.json", 65536).value());
  const auto rows = json.at("rows").get<std::size_t>();
  const auto cols = json.at("cols").get<std::size_t>();
  const auto group = json.at("group").get<std::size_t>();
  const auto bits = json.at("bits").get<std::uint32_t>();
  GoldenCase c{rows,
               cols,
               group,
               bits,
               json.at("damp").get<float>(),
               json.at("objective").get<double>(),
               json.at("objective_rtn").get<double>(),
               read_f64(dir + "W.f64", rows, cols),
               read_f64(dir + "H.f64", cols, cols),
               AffineMatrix(rows, cols, bits, group)};
  const auto top = static_cast<Eigen::Index>(rows);
  c.expected.scale.topRows(top) = read_f64(dir + "scale.f64", rows, cols / group).cast<float>();
  c.expected.bias.topRows(top) = read_f64(dir + "bias.f64", rows, cols / group).cast<float>();
  const std::string codes = read_text_file(dir + "codes.u8", std::uint64_t{1} << 24).value();
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < cols; ++k) {
      c.expected.codes(static_cast<Eigen::Index>(r), static_cast<Eigen::Index>(k)) =
          static_cast<std::uint8_t>(codes[r * cols + k]);
    }
  }
  return c;
}

Matrix padded_weights(const GoldenCase& c) {
  Matrix w = Matrix::Zero(c.expected.scale.rows(), c.weights.cols());
  w.topRows(c.weights.rows()) = c.weights.cast<float>();
  return w;
}

double exact_objective(const GoldenCase& c, const AffineMatrix& q) {
  Matrix off;
  stored_minus(q, padded_weights(c), off);
  const Eigen::MatrixXd e = off.topRows(c.weights.rows()).cast<double>();
  return (e * c.hessian).cwiseProduct(e).sum();
}

class GptqGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(GptqGolden, CodesAndObjectiveAreThoseOfTheFloat64Program) {
  const GoldenCase c = read_case(GetParam());
  AffineMatrix q(c.rows, c.cols, c.bits, c.group);
  q.scale = c.expected.scale;
  q.bias = c.expected.bias;
  const auto factor = factor_hessian(c.hessian.cast<float>(), c.damping);
  ASSERT_TRUE(factor.has_value());
  EXPECT_EQ(factor->damping, c.damping);
  gptq_codes(padded_weights(c), *factor, q);
  const auto top = static_cast<Eigen::Index>(c.rows);
  const auto same = (q.codes.topRows(top).array() == c.expected.codes.topRows(top).array()).count();
  const double share = static_cast<double>(same) / static_cast<double>(c.rows * c.cols);
  const double found = exact_objective(c, q);
  RecordProperty("same_codes", std::to_string(share));
  RecordProperty("objective_ratio", std::to_string(found / c.objective));
  EXPECT_GE(share, 0.995);
  EXPECT_NEAR(found / c.objective, 1, 0.005);
  std::printf("case %s: %.3f %% of the codes equal, objective %.5f of the expected\n", GetParam(),
              100 * share, found / c.objective);
}

TEST_P(GptqGolden, RoundingGivesTheObjectiveOfRounding) {
  const GoldenCase c = read_case(GetParam());
  AffineMatrix q(c.rows, c.cols, c.bits, c.group);
  const Matrix w = padded_weights(c);
  choose_grid(GridMethod::kMinMax, w, {}, q);
  EXPECT_EQ(q.scale, c.expected.scale);
  EXPECT_EQ(q.bias, c.expected.bias);
  EXPECT_NEAR(exact_objective(c, q) / c.objective_of_rounding, 1, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Cases, GptqGolden, ::testing::Values("a", "b", "c", "d"));

}  // namespace
}  // namespace moepack::gptq_golden_test
