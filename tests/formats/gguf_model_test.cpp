// Split files, and tensor data in either byte order.
#include "formats/gguf/gguf_model.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::gguf_model_test {
namespace {

using test::expect_error;
using test::GgufWriter;
using test::write_file;

constexpr std::uint32_t kF32 = 0;

class GgufModelTest : public testing::Test {
 protected:
  std::filesystem::path part(int number, int count = 3) const {
    return dir_ /
           ("m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf");
  }
  // Three parts: metadata alone, two tensors, one tensor.
  void write_parts() const {
    GgufWriter first;
    first.text("general.architecture", "llama").u32("general.alignment", 64).split(0, 3, 3);
    write_file(part(1), first.bytes());
    GgufWriter second;  // without the alignment of the first
    second.split(1, 3, 3).tensor("z", {1}, kF32, "zzzz").tensor("b", {2}, kF32, "bbbbbbbb");
    write_file(part(2), second.bytes());
    write_file(part(3), GgufWriter().split(2, 3, 3).tensor("a", {1}, kF32, "aaaa").bytes());
  }
  void refused(int given, std::initializer_list<std::string_view> parts,
               StatusCode code = StatusCode::kCorrupt) const {
    expect_error(GgufModel::open(part(given)).status(), code, parts);
  }

  test::TempDir dir_;
};

TEST_F(GgufModelTest, OpensFromAnyPart) {
  write_parts();
  std::uint64_t fingerprint = 0;
  for (int given : {1, 2, 3}) {
    ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(part(given)));
    EXPECT_EQ(model.parts().size(), 3U);
    EXPECT_EQ(model.metadata().string("general.architecture").value(), "llama");
    ASSERT_EQ(model.tensors().size(), 3U);
    EXPECT_EQ(model.tensors()[0].info->name, "a");
    EXPECT_EQ(model.tensors()[2].info->name, "z");
    for (const GgufTensor& tensor : model.tensors()) {
      EXPECT_EQ(model.find(tensor.info->name), &tensor);
      std::string bytes(tensor.info->size, '\0');
      ASSERT_OK(tensor.read(0, std::as_writable_bytes(std::span(bytes))));
      EXPECT_EQ(bytes, std::string(bytes.size(), tensor.info->name[0]));
    }
    EXPECT_EQ(model.find("c"), nullptr);
    if (given == 1) fingerprint = model.fingerprint();
    EXPECT_EQ(model.fingerprint(), fingerprint);
  }
}

TEST_F(GgufModelTest, MissingPartsAreNamed) {
  for (int missing : {1, 2, 3}) {
    write_parts();
    std::filesystem::remove(part(missing));
    refused(missing % 3 + 1, {part(missing).string(), "missing", "of 3"}, StatusCode::kNotFound);
  }
}

TEST_F(GgufModelTest, NamesMustFollowThePattern) {
  write_parts();
  std::filesystem::rename(part(2), dir_ / "second.gguf");
  expect_error(GgufModel::open(dir_ / "second.gguf").status(), StatusCode::kCorrupt,
               {"second.gguf", "part 2 of 3", "-00002-of-00003.gguf"});
  std::filesystem::rename(dir_ / "second.gguf", dir_ / "m-00003-of-00003.gguf");
  refused(3, {"part 2 of 3", "-00002-of-00003.gguf"});
}

TEST_F(GgufModelTest, ForeignPartsAreRefused) {
  const auto foreign = [&](const GgufWriter& other, std::initializer_list<std::string_view> parts) {
    write_parts();
    write_file(part(2), other.bytes());
    refused(1, parts);
    refused(3, parts);
  };
  // Another place, another number of parts, another model, no part at all.
  foreign(GgufWriter().split(0, 3, 3), {"m-00002-of", "part 1 of 3", "part 2 of 3"});
  foreign(GgufWriter().split(1, 2, 3), {"m-00002-of", "part 2 of 2", "part 2 of 3"});
  foreign(GgufWriter().split(1, 3, 4), {"m-00002-of", "4 tensors", "3"});
  foreign(GgufWriter().text("general.name", "x"), {"m-00002-of", "whole file"});
  // The right keys and another number of tensors, and a tensor that another part has.
  foreign(GgufWriter().split(1, 3, 3).tensor("b", {1}, kF32, "bbbb"),
          {"split.tensors.count is 3", "hold 2"});
  foreign(GgufWriter().split(1, 3, 3).tensor("a", {1}, kF32, "aaaa").tensor("b", {1}, kF32, "bbbb"),
          {"tensor a", "m-00002-of", "m-00003-of"});
  foreign(GgufWriter().split(3, 3, 3), {"m-00002-of", "split.no is 3"});
}

// Memory is bounded for the parts together, not for each.
TEST_F(GgufModelTest, PartsShareTheLimits) {
  GgufWriter many;
  many.split(0, 2, 0);
  for (std::uint64_t i = 0; i < kMaxGgufKeys - 5; ++i) many.u16("k" + std::to_string(i), 1);
  write_file(part(1, 2), many.bytes());
  write_file(part(2, 2), GgufWriter().split(1, 2, 0).bytes());
  expect_error(GgufModel::open(part(1, 2)).status(), StatusCode::kCorrupt,
               {"-of-00002.gguf", "65537 keys"});
  EXPECT_OK(GgufFile::open(part(1, 2)));
}

TEST_F(GgufModelTest, SplitKeysAreWholeNumbers) {
  const auto with = [&](const GgufWriter& writer) {
    write_file(part(1), writer.bytes());
    return GgufModel::open(part(1)).status();
  };
  expect_error(with(GgufWriter().text("split.count", "3")), StatusCode::kCorrupt, {"split.count"});
  expect_error(with(GgufWriter().i32("split.count", -1)), StatusCode::kCorrupt, {"split.count"});
  expect_error(with(GgufWriter().u32("split.count", 65536)), StatusCode::kCorrupt, {"split.count"});
  expect_error(with(GgufWriter().u16("split.count", 3)), StatusCode::kNotFound, {"tensors.count"});
  expect_error(with(GgufWriter().u16("split.count", 3).i32("split.tensors.count", 0)),
               StatusCode::kNotFound, {"split.no"});
  expect_error(with(GgufWriter().split(0, 3, -1)), StatusCode::kCorrupt, {"split.tensors.count"});
  // One part of one is a whole file whatever its name; its count of tensors must be right.
  EXPECT_OK(with(GgufWriter().split(0, 1, 0)));
  EXPECT_OK(with(GgufWriter().u16("split.count", 0)));
  expect_error(with(GgufWriter().split(0, 1, 2)), StatusCode::kCorrupt, {"split.tensors.count"});
}

TEST_F(GgufModelTest, RangesStayInTheTensor) {
  write_file(dir_ / "m.gguf", GgufWriter().tensor("t", {3}, kF32, "abcdefghijkl").bytes());
  ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(dir_ / "m.gguf"));
  std::string bytes(5, '\0');
  const auto out = std::as_writable_bytes(std::span(bytes));
  ASSERT_OK(model.find("t")->read(7, out));
  EXPECT_EQ(bytes, "hijkl");
  for (const std::uint64_t begin : {std::uint64_t{8}, std::uint64_t{13}, ~std::uint64_t{1}}) {
    expect_error(model.find("t")->read(begin, out), StatusCode::kInvalidArgument,
                 {"m.gguf", "tensor t"});
  }
}

std::string swapped(std::string_view field) { return {field.rbegin(), field.rend()}; }

// Fields of two bytes and more are swapped, bytes are not. The positions are those of the reference
// (ggml-common.h), written out here once more.
TEST_F(GgufModelTest, BigEndianBlocksAreTurned) {
  struct Case {
    std::uint32_t type;
    std::string little;
    std::string big;
  };
  const auto bytes_of = [](std::size_t size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + 1);
    return text;
  };
  std::vector<Case> cases;
  const auto add = [&](std::uint32_t type, std::size_t size, std::vector<std::size_t> halves) {
    Case c{type, bytes_of(size), bytes_of(size)};
    for (std::size_t at : halves) std::swap(c.big[at], c.big[at + 1]);
    cases.push_back(c);
  };
  add(2, 18, {0});                                   // Q4_0
  add(3, 20, {0, 2});                                // Q4_1
  add(8, 34, {0});                                   // Q8_0
  add(10, 84, {80, 82});                             // Q2_K
  add(11, 110, {108});                               // Q3_K
  add(12, 144, {0, 2});                              // Q4_K
  add(13, 176, {0, 2});                              // Q5_K
  add(14, 210, {208});                               // Q6_K
  add(19, 50, {0, 34, 36, 38, 40, 42, 44, 46, 48});  // IQ1_S
  add(20, 18, {0});                                  // IQ4_NL
  add(21, 110, {0});                                 // IQ3_S
  add(22, 82, {0});                                  // IQ2_S
  add(23, 136, {0, 2});                              // IQ4_XS
  add(34, 54, {52});                                 // TQ1_0
  add(35, 66, {64});                                 // TQ2_0
  add(39, 17, {});                                   // MXFP4
  add(40, 36, {});                                   // NVFP4
  add(41, 18, {0});                                  // Q1_0
  add(42, 18, {0});                                  // Q2_0
  std::vector<std::size_t> words;
  for (std::size_t at = 0; at < 66; at += 2) words.push_back(at);
  add(17, 74, words);  // IQ2_XS
  add(1, 2, {0});      // F16
  add(30, 2, {0});     // BF16
  add(25, 2, {0});     // I16
  cases.push_back({0, "abcd", swapped("abcd")});
  cases.push_back({26, "abcd", swapped("abcd")});
  cases.push_back({27, "abcdefgh", swapped("abcdefgh")});
  cases.push_back({28, "abcdefgh", swapped("abcdefgh")});
  cases.push_back({24, "a", "a"});
  for (const Case& c : cases) {
    const auto type = find_ggml_type(c.type);
    ASSERT_TRUE(type.has_value()) << c.type;
    GgufWriter writer(true);
    writer.tensor("t", {std::uint64_t{2} * type->block_values}, c.type, c.big + c.big);
    write_file(dir_ / "big.gguf", writer.bytes());
    ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(dir_ / "big.gguf"));
    std::string bytes(2 * c.little.size(), '\0');
    ASSERT_OK(model.find("t")->read(0, std::as_writable_bytes(std::span(bytes))));
    EXPECT_EQ(bytes, c.little + c.little) << ggml_type_name(*type);
    std::string second(c.little.size(), '\0');
    ASSERT_OK(model.find("t")->read(c.little.size(), std::as_writable_bytes(std::span(second))));
    EXPECT_EQ(second, c.little) << ggml_type_name(*type);
    if (c.little.size() == 1) continue;
    expect_error(model.find("t")->read(1, std::as_writable_bytes(std::span(second))),
                 StatusCode::kInvalidArgument, {"big.gguf", "tensor t", "whole blocks"});
  }
}

TEST_F(GgufModelTest, BlocksWithoutABigEndianFormAreRefused) {
  // Q5_0, Q5_1, Q8_1, Q8_K, IQ1_M, IQ2_XXS, IQ3_XXS
  for (const std::uint32_t id : {6U, 7U, 9U, 15U, 29U, 16U, 18U}) {
    const auto type = find_ggml_type(id);
    ASSERT_TRUE(type.has_value());
    GgufWriter writer(true);
    writer.tensor("t", {type->block_values}, id, std::string(type->block_bytes, 'x'));
    write_file(dir_ / "big.gguf", writer.bytes());
    ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(dir_ / "big.gguf"));
    std::string bytes(type->block_bytes, '\0');
    expect_error(model.find("t")->read(0, std::as_writable_bytes(std::span(bytes))),
                 StatusCode::kUnsupported, {"big.gguf", "tensor t", ggml_type_name(*type)});
  }
}

// What llama.cpp wrote: the published recipe in three parts, and a file of K-quants.
TEST(GgufGolden, SplitModelIsTheSameFromAnyPart) {
  MOE_REQUIRE_MODEL(directory, "small-moe-Q3-gguf");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 3U);
  for (const auto& file : files) {
    ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(file));
    EXPECT_EQ(model.parts().size(), 3U);
    const GgufMetadata& m = model.metadata();
    EXPECT_EQ(m.string("general.architecture").value(), "qwen35moe");
    EXPECT_EQ(m.number("split.tensors.count").value(), model.tensors().size());
    EXPECT_EQ(m.strings("tokenizer.ggml.tokens").value().size(), 4096U);
    EXPECT_EQ(m.number("qwen35moe.expert_count").value(), 16U);
    const GgufTensor* gate = model.find("blk.0.ffn_gate_exps.weight");
    ASSERT_NE(gate, nullptr);
    EXPECT_EQ(gate->info->shape, (std::vector<std::uint64_t>{16, 256, 256}));
    EXPECT_EQ(ggml_type_name(gate->info->type), "IQ3_XXS");
    EXPECT_EQ(ggml_type_name(model.find("blk.5.ffn_down_exps.weight")->info->type), "Q5_K");
  }
}

}  // namespace
}  // namespace moepack::gguf_model_test
