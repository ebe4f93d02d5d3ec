// Hessians in flash-moe's layout, written here from its description.
#include "formats/calibration/hessian_directory.h"

#include <cmath>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::hessian_directory_test {
namespace {

namespace fs = std::filesystem;

constexpr HessianDimensions kDims{.num_layers = 3, .num_experts = 200, .hidden_size = 3};
const std::vector<float> kValid{4, 1, 0, 1, 2, -0.5F, 0, -0.5F, 0.25F};

void write_file(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string npy(const std::string& shape, const std::vector<float>& values) {
  std::string literal = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  literal.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + literal + "\n" +
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

class HessianDirectoryTest : public testing::Test {
 protected:
  HessianDirectoryTest() {
    write_file(dir_ / "layer_00/counts.json", R"({"5": 64, "123": 1000000})");
    write_file(dir_ / "layer_00/expert_005.npy", npy("(3, 3)", kValid));
    write_file(dir_ / "layer_00/expert_123.npy", npy("(3, 3)", std::vector<float>(9, 1.0F)));
    write_file(dir_ / "layer_02/counts.json", "{}");
  }
  Result<HessianDirectory> open(const HessianDimensions& dims = kDims) {
    return HessianDirectory::open(dir_.path(), dims);
  }
  // The error of reading expert 5 of layer 0.
  Status read_five() {
    auto opened = open();
    if (!opened.is_ok()) return opened.status();
    return opened.value().read(0, 5).status();
  }

  test::TempDir dir_;
};

TEST_F(HessianDirectoryTest, ReadsWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(const HessianDirectory hessians, open());
  EXPECT_TRUE(hessians.has(0, 5));
  EXPECT_EQ(hessians.samples(0, 5), 64U);
  EXPECT_EQ(hessians.samples(0, 123), 1'000'000U);
  for (const auto& [layer, expert] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 4}, {1, 5}, {2, 5}, {3, 5}, {0, 999}}) {
    EXPECT_FALSE(hessians.has(layer, expert)) << layer << " " << expert;
    EXPECT_EQ(hessians.samples(layer, expert), 0U);
    EXPECT_EQ(hessians.read(layer, expert).status().code(), StatusCode::kNotFound);
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> values, hessians.read(0, 5));
  EXPECT_EQ(values, kValid);
}

TEST_F(HessianDirectoryTest, FilesAndCountsAgree) {
  fs::remove(dir_ / "layer_00/expert_123.npy");
  test::expect_error(open().status(), StatusCode::kNotFound, {"expert_123.npy", "1000000"});
  write_file(dir_ / "layer_00/expert_123.npy", npy("(3, 3)", kValid));
  EXPECT_OK(open());
  write_file(dir_ / "layer_00/expert_007.npy", npy("(3, 3)", kValid));
  test::expect_error(open().status(), StatusCode::kCorrupt, {"expert_007.npy", "counts.json"});
  fs::remove(dir_ / "layer_00/expert_007.npy");
  fs::remove(dir_ / "layer_02/counts.json");
  EXPECT_FALSE(open().is_ok());
  fs::remove_all(dir_ / "layer_02");
  EXPECT_OK(open());
  write_file(dir_ / "layer_03/counts.json", "{}");
  test::expect_error(open().status(), StatusCode::kCorrupt, {"layer_03", "3 layers"});
  const test::TempDir empty;
  test::expect_error(HessianDirectory::open(empty.path(), kDims).status(), StatusCode::kNotFound,
                     {"layer_00"});
}

TEST_F(HessianDirectoryTest, MatricesThatAreNoHessian) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    std::size_t at;
    float value;
    const char* what;
  };
  for (const Case& c : std::vector<Case>{{0, nan, "[0, 0] is not finite"},
                                         {4, -1e-30F, "[1, 1] is negative"},
                                         {8, infinity, "[2, 2] is not finite"},
                                         {1, nan, "[0, 1] is not finite"},
                                         {6, infinity, "[2, 0] is not finite"},
                                         {3, 1.004F, "[1, 0] differs"},
                                         {2, 0.0011F, "[2, 0] differs"}}) {
    std::vector<float> values = kValid;
    values[c.at] = c.value;
    write_file(dir_ / "layer_00/expert_005.npy", npy("(3, 3)", values));
    test::expect_error(read_five(), StatusCode::kCorrupt, {"expert_005.npy", c.what});
  }
  // Rounding of sums in another order is no damage.
  std::vector<float> rounded = kValid;
  rounded[3] = 1.0001F;
  write_file(dir_ / "layer_00/expert_005.npy", npy("(3, 3)", rounded));
  EXPECT_OK(read_five());
}

// Larger than a tile: an element far from the diagonal counts too.
TEST_F(HessianDirectoryTest, EveryElementIsChecked) {
  constexpr std::uint64_t kSize = 150;
  std::vector<float> values(kSize * kSize, 0.0F);
  for (std::uint64_t i = 0; i < kSize; ++i) values[i * kSize + i] = 1;
  EXPECT_OK(check_hessian(values, kSize, "h"));
  for (std::size_t at = 0; at < values.size(); ++at) {
    const float old = values[at];
    values[at] = -0.5F;
    EXPECT_FALSE(check_hessian(values, kSize, "h").is_ok()) << at;
    values[at] = old;
  }
}

TEST_F(HessianDirectoryTest, AnotherModel) {
  for (const char* shape : {"(9,)", "(1, 9)", "(3, 3, 1)"}) {
    write_file(dir_ / "layer_00/expert_005.npy", npy(shape, kValid));
    test::expect_error(read_five(), StatusCode::kCorrupt, {"expert_005.npy", "[3, 3]"});
  }
  HessianDimensions dims = kDims;
  dims.num_experts = 100;
  test::expect_error(open(dims).status(), StatusCode::kCorrupt, {"counts.json", "\"123\""});
  dims = kDims;
  dims.num_layers = 2;
  test::expect_error(open(dims).status(), StatusCode::kCorrupt, {"layer_02"});
}

TEST_F(HessianDirectoryTest, CutShortAnywhere) {
  test::drill_truncation(npy("(3, 3)", kValid), [this](std::string_view bytes) {
    write_file(dir_ / "layer_00/expert_005.npy", std::string(bytes));
    return read_five();
  });
}

TEST(HessianCounts, OneObjectOfCounts) {
  const auto parse = [](std::string_view text) {
    return parse_hessian_counts(text, 200, "c.json");
  };
  ASSERT_OK_AND_ASSIGN(const HessianCounts counts, parse("{\"0\": 1, \"199\":70}"));
  EXPECT_EQ(counts, (HessianCounts{{0, 1}, {199, 70}}));
  for (const char* text : {"",
                           "1",
                           "null",
                           "[]",
                           "[1]",
                           R"({"200": 5})",
                           R"({"-1": 5})",
                           R"({"01": 5})",
                           R"({"": 5})",
                           R"({"1": 0})",
                           R"({"1": -5})",
                           R"({"1": 5.0})",
                           R"({"1": "5"})",
                           R"({"1": null})",
                           R"({"1": [5]})",
                           R"({"1": {"2": 3}})",
                           R"({"1": 5, "1": 5})",
                           R"({"1": true})",
                           R"({"1": 5} {})",
                           R"({"1": 18446744073709551616})"}) {
    test::expect_error(parse(text).status(), StatusCode::kCorrupt, {"c.json"});
  }
  test::drill_truncation("{\"0\": 1, \"199\":70}",
                         [&parse](std::string_view text) { return parse(text).status(); });
}

}  // namespace
}  // namespace moepack::hessian_directory_test
