#include "formats/checkpoint/safetensors.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "tests/support/reader_drill.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::safetensors_test {
namespace {

using test::expect_error;
using test::safetensors_bytes;
using test::safetensors_of;
using test::write_file;
using test::WriterOptions;
using test::WriterTensor;

// Reads `bytes` as a file of its own.
class SafetensorsTest : public testing::Test {
 protected:
  Result<SafetensorsFile> open(std::string_view bytes) {
    write_file(path(), bytes);
    return SafetensorsFile::open(path());
  }
  Status open_status(std::string_view bytes) { return open(bytes).status(); }
  std::filesystem::path path() const { return dir_ / "m.safetensors"; }

  test::TempDir dir_;
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::vector<WriterTensor> three_tensors() {
  return {{"b", DType::kBf16, {2, 3}, "ABCDEFGHIJKL"},
          {"a", DType::kU8, {5}, "vwxyz"},
          {"scalar", DType::kF32, {}, "1234"},
          {"empty", DType::kF32, {0, 7}, ""}};
}

std::string text_at(const SafetensorsFile& file, std::string_view name) {
  const TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) return "(absent)";
  std::string bytes(tensor->size, '\0');
  EXPECT_OK(file.file().read_at(tensor->offset, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

TEST_F(SafetensorsTest, ListsTensorsByNameAndFindsTheirBytes) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, open(safetensors_bytes(three_tensors())));
  ASSERT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_EQ(file.tensors()[1].dtype, DType::kBf16);
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(text_at(file, "b"), "ABCDEFGHIJKL");
  EXPECT_EQ(text_at(file, "a"), "vwxyz");
  EXPECT_EQ(text_at(file, "scalar"), "1234");
  EXPECT_EQ(text_at(file, "empty"), "");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
}

TEST_F(SafetensorsTest, ReadsWhatWritersInTheWildWrite) {
  for (const auto metadata : {WriterOptions::Metadata::kNone, WriterOptions::Metadata::kNull,
                              WriterOptions::Metadata::kPt}) {
    for (const bool sorted : {false, true}) {
      for (const std::optional<std::uint64_t> start : {std::optional<std::uint64_t>(), {0}, {1}}) {
        const std::string bytes = safetensors_bytes(
            three_tensors(), {.metadata = metadata, .sorted = sorted, .data_start_mod8 = start});
        ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, open(bytes));
        EXPECT_EQ(text_at(file, "b"), "ABCDEFGHIJKL");
        EXPECT_EQ(text_at(file, "a"), "vwxyz");
      }
    }
  }
}

TEST_F(SafetensorsTest, KeepsOddOffsets) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      open(safetensors_bytes({{"w", DType::kF32, {1}, "1234"}}, {.data_start_mod8 = 1})));
  EXPECT_EQ(file.find("w")->offset % 8, 1U);
  EXPECT_EQ(text_at(file, "w"), "1234");
}

TEST_F(SafetensorsTest, AcceptsWhatTheReferenceAccepts) {
  EXPECT_OK(open(safetensors_of("{}")));
  EXPECT_OK(open(safetensors_of(" \t\r\n{ } \t\r\n")));
  EXPECT_OK(open(safetensors_of("{\"__metadata__\":null}")));
  // Fields unknown to the format, nested ones too, and any order of fields.
  EXPECT_OK(
      open(safetensors_of("{\"a\":{\"x\":[1,{\"dtype\":[null]}],\"data_offsets\":[0,1],"
                          "\"y\":{\"shape\":-1},\"z\":1.5,\"shape\":[1],\"dtype\":\"I8\"}}",
                          "x")));
  // Two 4-bit elements in a byte; three 6-bit ones do not fill bytes but four do.
  EXPECT_OK(open(safetensors_of("{" + entry("a", "F4", "[2,1]", "[0,1]") + "}", "x")));
  EXPECT_OK(open(safetensors_of("{" + entry("a", "F6_E2M3", "[4]", "[0,3]") + "}", "xyz")));
  // Empty tensors share their offset with the neighbours on either side.
  EXPECT_OK(open(safetensors_of("{" + entry("b", "U8", "[1]", "[0,1]") + "," +
                                    entry("a", "U8", "[0]", "[0,0]") + "," +
                                    entry("c", "U8", "[3,0]", "[1,1]") + "}",
                                "x")));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnError) {
  const std::string whole = safetensors_bytes(three_tensors(), {.data_start_mod8 = std::nullopt});
  test::drill_truncation(whole, [&](std::string_view bytes) { return open_status(bytes); });
}

// The header cut while its length is kept true, so that the JSON itself ends early.
TEST_F(SafetensorsTest, EveryTruncationOfTheHeaderTextIsAnError) {
  const std::string whole = safetensors_bytes(three_tensors(), {.data_start_mod8 = std::nullopt});
  const auto length = load_le<std::uint64_t>(whole.data());
  const std::string data = whole.substr(8 + length);
  test::drill_truncation(whole.substr(8, length), [&](std::string_view header) {
    return open_status(safetensors_of(header, data));
  });
}

TEST_F(SafetensorsTest, Check1FileHoldsTheLength) {
  expect_error(open_status(""), StatusCode::kCorrupt, {"m.safetensors", "0 bytes long"});
  expect_error(open_status("1234567"), StatusCode::kCorrupt, {"m.safetensors", "7 bytes long"});
}

TEST_F(SafetensorsTest, Check2HeaderIsNotTooLong) {
  // A sparse file, so that only this check stands in the way.
  std::string length(8, '\0');
  store_le(length.data(), kMaxSafetensorsHeader + 1);
  write_file(path(), length);
  std::filesystem::resize_file(path(), kMaxSafetensorsHeader + 4096);
  expect_error(SafetensorsFile::open(path()).status(), StatusCode::kCorrupt,
               {"m.safetensors", "offset 0", "100000001 bytes long", "100000000"});
}

TEST_F(SafetensorsTest, Check3HeaderFitsTheFile) {
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{99'999'999}, ~std::uint64_t{0},
                                     ~std::uint64_t{0} - 7, std::uint64_t{1} << 63}) {
    std::string file(10, '{');
    store_le(file.data(), length);
    expect_error(open_status(file), StatusCode::kCorrupt, {"m.safetensors", "offset 0"});
  }
}

TEST_F(SafetensorsTest, Check4HeaderIsUtf8) {
  for (const char* bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    const std::string header = "{" + entry(bad, "U8", "[1]", "[0,1]") + "}";
    expect_error(open_status(safetensors_of(header, "x")), StatusCode::kCorrupt,
                 {"m.safetensors", "offset", "UTF-8"});
  }
  EXPECT_OK(open(safetensors_of("{" + entry("\xe2\x82\xac", "U8", "[1]", "[0,1]") + "}", "x")));
  EXPECT_FALSE(open(safetensors_of("\xef\xbb\xbf{}")).is_ok()) << "byte order mark";
}

TEST_F(SafetensorsTest, Check5HeaderHasTheRightForm) {
  const auto refused = [&](const std::string& header, std::string_view part) {
    expect_error(open_status(safetensors_of(header, "x")), StatusCode::kCorrupt,
                 {"m.safetensors", "offset", part});
  };
  refused("", "not a JSON object");
  refused("    ", "not a JSON object");
  refused("[]", "not a JSON object");
  refused("{", "not valid JSON");
  refused("{}x", "not valid JSON");
  refused(std::string("{}\0{}", 5), "not valid JSON");
  refused("{\"a\":1}", "is a number, not an object");
  refused("{\"a\":null}", "is null, not an object");
  refused("{\"a\":[\"U8\",[1],[0,1]]}", "is a list, not an object");
  refused("{\"__metadata__\":1}", "not an object");
  refused("{\"__metadata__\":[]}", "not an object");
  refused("{\"__metadata__\":{\"a\":1}}", "only strings");
  refused("{\"__metadata__\":{\"a\":null}}", "only strings");
  refused("{\"__metadata__\":{\"a\":{}}}", "only strings");
  refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "tensor a");
  refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "dtype is missing");
  refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "shape is missing");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "data_offsets is missing");
  refused("{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", "dtype is a number");
  refused("{" + entry("a", "U8", "1", "[0,1]") + "}", "shape is a number");
  refused("{" + entry("a", "U8", "{}", "[0,1]") + "}", "shape is an object");
  refused("{" + entry("a", "U8", "[[1]]", "[0,1]") + "}", "shape holds a list");
  refused("{" + entry("a", "U8", "[\"1\"]", "[0,1]") + "}", "shape holds a string");
  refused("{" + entry("a", "U8", "[true]", "[0,1]") + "}", "shape holds a boolean");
  refused("{" + entry("a", "U8", "[1]", "[]") + "}", "fewer than two");
  refused("{" + entry("a", "U8", "[1]", "[0]") + "}", "fewer than two");
  refused("{" + entry("a", "U8", "[1]", "[0,1,1]") + "}", "more than two");
  refused("{" + entry("a", "U8", "[1]", "null") + "}", "data_offsets is null");
}

TEST_F(SafetensorsTest, Check5NumbersAreWholeAndFit64Bits) {
  for (const char* number :
       {"1e0", "1.0", "-1", "-0", "18446744073709551616", "1e400", "01", "+1", "0x1", "NaN"}) {
    const std::string n = number;
    EXPECT_FALSE(
        open(safetensors_of("{" + entry("a", "U8", "[" + n + "]", "[0,1]") + "}", "x")).is_ok())
        << n;
    EXPECT_FALSE(
        open(safetensors_of("{" + entry("a", "U8", "[1]", "[0," + n + "]") + "}", "x")).is_ok())
        << n;
  }
}

TEST_F(SafetensorsTest, Check5DtypeIsKnown) {
  for (const char* dtype : {"BF17", "bf16", "", "F8_E4M3FN"}) {
    expect_error(open_status(safetensors_of("{" + entry("a", dtype, "[1]", "[0,1]") + "}", "x")),
                 StatusCode::kUnsupported, {"m.safetensors", "tensor a", dtype});
  }
}

TEST_F(SafetensorsTest, Check6OffsetsAreContiguous) {
  const auto refused = [&](const std::string& a, const std::string& b, std::string_view tensor,
                           std::string_view part) {
    const std::string header =
        "{" + entry("a", "U8", "[2]", a) + "," + entry("b", "U8", "[2]", b) + "}";
    expect_error(open_status(safetensors_of(header, "1234")), StatusCode::kCorrupt,
                 {"m.safetensors", tensor, "offset", part});
  };
  refused("[0,2]", "[1,3]", "tensor b", "inside the tensor before");
  refused("[0,2]", "[0,2]", "tensor b", "inside the tensor before");
  refused("[0,2]", "[3,5]", "tensor b", "hole");
  refused("[1,3]", "[3,5]", "tensor a", "hole");
  refused("[0,2]", "[4,2]", "tensor b", "before their begin");
  refused("[0,18446744073709551615]", "[18446744073709551615,1]", "tensor", "");
  EXPECT_OK(open(safetensors_of(
      "{" + entry("a", "U8", "[2]", "[2,4]") + "," + entry("b", "U8", "[2]", "[0,2]") + "}",
      "1234")));
}

TEST_F(SafetensorsTest, Check7SizesDoNotOverflow) {
  // A zero factor may not hide an overflow to its left.
  for (const char* shape : {"[9223372036854775808,2,0]", "[18446744073709551615,2]",
                            "[4294967296,4294967296]", "[2305843009213693952]"}) {
    expect_error(open_status(safetensors_of("{" + entry("a", "I64", shape, "[0,0]") + "}")),
                 StatusCode::kCorrupt, {"m.safetensors", "tensor a", "offset", "overflows"});
  }
  EXPECT_OK(
      open(safetensors_of("{" + entry("a", "U8", "[0,9223372036854775808,2]", "[0,0]") + "}")));
}

TEST_F(SafetensorsTest, Check8TensorsFillWholeBytes) {
  expect_error(open_status(safetensors_of("{" + entry("a", "F4", "[3]", "[0,1]") + "}", "x")),
               StatusCode::kCorrupt, {"m.safetensors", "tensor a", "whole bytes"});
  expect_error(open_status(safetensors_of("{" + entry("a", "F6_E3M2", "[3]", "[0,2]") + "}", "xy")),
               StatusCode::kCorrupt, {"m.safetensors", "tensor a", "whole bytes"});
}

TEST_F(SafetensorsTest, Check9OffsetsAgreeWithTheShape) {
  for (const char* shape : {"[1]", "[3]", "[]", "[0]"}) {
    expect_error(open_status(safetensors_of("{" + entry("a", "U16", shape, "[0,4]") + "}", "1234")),
                 StatusCode::kCorrupt, {"m.safetensors", "tensor a", "data_offsets span 4"});
  }
}

TEST_F(SafetensorsTest, Check10TheLastTensorEndsWithTheFile) {
  const std::string header = "{" + entry("first", "U8", "[2]", "[0,2]") + "," +
                             entry("second", "U8", "[2]", "[2,4]") + "}";
  const std::string start = std::to_string(8 + header.size() + 2);
  expect_error(open_status(safetensors_of(header, "123")), StatusCode::kCorrupt,
               {"m.safetensors", "tensor second", "offset " + start, "1 bytes beyond the end"});
  const std::string end = std::to_string(8 + header.size() + 4);
  expect_error(open_status(safetensors_of(header, "12345")), StatusCode::kCorrupt,
               {"m.safetensors", "offset " + end, "1 bytes after the last tensor"});
  expect_error(open_status(safetensors_of("{}", "1")), StatusCode::kCorrupt, {"after the last"});
}

TEST_F(SafetensorsTest, RefusesDuplicateKeysEverywhere) {
  // The reference would keep the second one; here both even describe the same bytes.
  const std::string twice = entry("a", "U8", "[1]", "[0,1]");
  expect_error(open_status(safetensors_of("{" + twice + "," + twice + "}", "x")),
               StatusCode::kCorrupt, {"m.safetensors", "offset", "\"a\" stands twice"});
  expect_error(
      open_status(safetensors_of(
          "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x")),
      StatusCode::kCorrupt, {"\"dtype\" stands twice"});
  // Escapes spell the same name.
  expect_error(open_status(safetensors_of("{" + entry("a", "U8", "[0]", "[0,0]") + "," +
                                          entry("\\u0061", "U8", "[0]", "[0,0]") + "}")),
               StatusCode::kCorrupt, {"\"a\" stands twice"});
}

TEST_F(SafetensorsTest, NamesMayHoldAnyCharacter) {
  const std::string header = "{" + entry("a\\u0000b\\n\\u0007", "U8", "[1]", "[0,1]") + "}";
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, open(safetensors_of(header, "x")));
  const std::string name("a\0b\n\a", 5);
  EXPECT_NE(file.find(name), nullptr);
  // In a message the name stays on its line.
  expect_error(open_status(safetensors_of(header, "")), StatusCode::kCorrupt,
               {"tensor a\\x00b\\x0a\\x07"});
  // A lone surrogate is no character, and a raw control character is not JSON.
  EXPECT_FALSE(
      open(safetensors_of("{" + entry("\\ud800", "U8", "[1]", "[0,1]") + "}", "x")).is_ok());
  EXPECT_FALSE(open(safetensors_of("{" + entry("\n", "U8", "[1]", "[0,1]") + "}", "x")).is_ok());
}

TEST_F(SafetensorsTest, HugeNamesAreCutInMessages) {
  const std::string header = "{" + entry(std::string(1 << 20, 'n'), "U8", "[1]", "[0,1]") + "}";
  const Status status = open_status(safetensors_of(header, ""));
  EXPECT_FALSE(status.is_ok());
  EXPECT_LT(status.message().size(), 1000U);
}

TEST_F(SafetensorsTest, RefusesDepthBombs) {
  for (const std::string& opening : {std::string("["), std::string("{\"a\":")}) {
    std::string bomb = "{\"t\":{\"ignored\":";
    for (int i = 0; i < 100000; ++i) bomb += opening;
    expect_error(open_status(safetensors_of(bomb)), StatusCode::kCorrupt,
                 {"m.safetensors", "offset", "nested deeper"});
  }
  EXPECT_FALSE(open(safetensors_of(std::string(1 << 20, '['))).is_ok());
}

TEST_F(SafetensorsTest, HeaderChecksumCoversLengthAndHeaderOnly) {
  const std::string a = safetensors_of("{" + entry("a", "U8", "[1]", "[0,1]") + "}", "x");
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, open(a));
  EXPECT_EQ(file.header_checksum(), checksum(std::as_bytes(std::span(a)).first(a.size() - 1)));
  EXPECT_EQ(file.file().size(), a.size());
}

TEST_F(SafetensorsTest, MissingFilesAndFoldersAreNamed) {
  expect_error(SafetensorsFile::open(dir_ / "gone.safetensors").status(), StatusCode::kNotFound,
               {"gone.safetensors"});
  expect_error(SafetensorsFile::open(dir_.path()).status(), StatusCode::kInvalidArgument,
               {"not a regular file"});
}

// Sanitizers keep freed memory, so a peak says nothing about the code under them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Resident memory of this process in KiB.
std::uint64_t peak_memory_kib() {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && in >> kib) return kib;
  }
  return 0;
}

// 12 MB of header, as of a model with 100,000 tensors: no tree is built.
TEST_F(SafetensorsTest, MemoryIsASmallMultipleOfTheHeader) {
  std::string header = "{";
  constexpr int kTensors = 100'000;
  for (int i = 0; i < kTensors; ++i) {
    const std::string at = std::to_string(i * 16);
    header += entry("model.layers." + std::to_string(i) + ".mlp.experts.0.down_proj.weight", "BF16",
                    "[2,4]", "[" + at + "," + std::to_string(i * 16 + 16) + "]") +
              (i + 1 < kTensors ? "," : "}");
  }
  const std::uint64_t before = peak_memory_kib();
  const auto tensors =
      parse_safetensors_header(header, 8 + header.size() + kTensors * 16, "big.safetensors");
  const std::uint64_t after = peak_memory_kib();
  ASSERT_OK(tensors);
  EXPECT_EQ(tensors.value().size(), std::size_t{kTensors});
  if (!kSanitized && before != 0) {
    EXPECT_LT((after - before) * 1024, 4 * header.size());
  }
}

struct Expected {
  const char* name;
  DType dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset;
};

void expect_tensors(const SafetensorsFile& file, const std::vector<Expected>& expected) {
  for (const Expected& want : expected) {
    const TensorInfo* got = file.find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->dtype, want.dtype) << want.name;
    EXPECT_EQ(got->shape, want.shape) << want.name;
    EXPECT_EQ(got->offset, want.offset) << want.name;
  }
}

// Shapes and offsets below were computed from the files by a few lines of Python (struct, json).
TEST(SafetensorsModels, DemoMlx) {
  MOE_REQUIRE_MODEL(model, "demo-moe-mlx-4bit");
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::open(model / "model.safetensors"));
  EXPECT_EQ(file.tensors().size(), 182U);
  expect_tensors(file, {{"language_model.lm_head.weight", DType::kU32, {4096, 32}, 22968},
                        {"language_model.model.layers.3.mlp.switch_mlp.up_proj.weight",
                         DType::kU32,
                         {12, 256, 32},
                         6592952},
                        {"language_model.model.layers.0.linear_attn.conv1d.weight",
                         DType::kBf16,
                         {1024, 4, 1},
                         7379904},
                        {"language_model.model.norm.weight", DType::kBf16, {256}, 8180648}});
}

TEST(SafetensorsModels, FamilyText) {
  MOE_REQUIRE_MODEL(model, "families/qwen3_5_moe_text");
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::open(model / "model.safetensors"));
  EXPECT_EQ(file.tensors().size(), 136U);
  expect_tensors(
      file, {{"lm_head.weight", DType::kBf16, {160, 128}, 15104},
             {"model.layers.3.mlp.experts.5.down_proj.weight", DType::kBf16, {128, 64}, 1787888},
             {"model.layers.0.linear_attn.A_log", DType::kBf16, {4}, 97280},
             {"model.norm.weight", DType::kBf16, {128}, 2019440}});
}

}  // namespace
}  // namespace moepack::safetensors_test
