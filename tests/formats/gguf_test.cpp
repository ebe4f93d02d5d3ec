#include "formats/gguf/gguf.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/reader_drill.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::gguf_test {
namespace {

using test::expect_error;
using test::GgufWriter;
using test::write_file;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ8_0 = 8;
constexpr std::uint32_t kQ4_K = 12;

class GgufTest : public testing::Test {
 protected:
  Result<GgufFile> open(std::string_view bytes) {
    write_file(path(), bytes);
    return GgufFile::open(path());
  }
  Status status_of(std::string_view bytes) { return open(bytes).status(); }
  // A file with this one tensor or key is refused with a message that has these parts.
  void refused(const GgufWriter& writer, std::initializer_list<std::string_view> parts,
               StatusCode code = StatusCode::kCorrupt) {
    expect_error(status_of(writer.bytes()), code, parts);
  }
  std::filesystem::path path() const { return dir_ / "m.gguf"; }

  test::TempDir dir_;
};

// Every value type, arrays of numbers, bools and strings, and three tensors.
GgufWriter whole(bool big_endian) {
  GgufWriter w(big_endian);
  w.text("general.architecture", "llama");
  w.key("t.u8", 0, w.number<std::uint8_t>(200)).key("t.i8", 1, w.number<std::int8_t>(-3));
  w.u16("t.u16", 60000).key("t.i16", 3, w.number<std::int16_t>(-300));
  w.u32("t.u32", 4000000000U).i32("t.i32", -70000);
  w.key("t.f32", 6, w.number(1.5F)).key("t.bool", 7, std::string(1, '\1'));
  w.key("t.u64", 10, w.number(~std::uint64_t{0}));
  w.key("t.i64", 11, w.number(std::int64_t{-5'000'000'000}));
  w.key("t.f64", 12, w.number(-0.1));
  w.array("a.i32", 5, 3, w.number(1) + w.number(-2) + w.number(3));
  w.array("a.bool", 7, 2, std::string("\1\0", 2));
  w.array("a.strings", 8, 2, w.string("Hello") + w.string(""));
  w.array("a.empty", 8, 0, "");
  w.array("a.f32", 6, 2, w.number(0.5F) + w.number(-2.0F));
  w.tensor("b.weight", {4, 3, 2}, kF32, std::string(96, 'b'));
  w.tensor("a.weight", {32, 2}, kQ8_0, std::string(68, 'a'));
  w.tensor("scalar", {}, kF32, "1234");
  return w;
}

TEST_F(GgufTest, ReadsBothVersionsAndByteOrders) {
  for (const bool big_endian : {false, true}) {
    for (const std::uint32_t version : {2U, 3U}) {
      ASSERT_OK_AND_ASSIGN(const GgufFile file, open(whole(big_endian).bytes(version)));
      EXPECT_EQ(file.version(), version);
      EXPECT_EQ(file.is_big_endian(), big_endian);
      EXPECT_EQ(file.alignment(), 32U);
      ASSERT_EQ(file.tensors().size(), 3U);
      const GgufTensorInfo& b = file.tensors()[0];
      EXPECT_EQ(b.name, "b.weight");
      EXPECT_EQ(b.shape, (std::vector<std::uint64_t>{2, 3, 4}));
      EXPECT_EQ(b.size, 96U);
      EXPECT_EQ(ggml_type_name(file.tensors()[1].type), "Q8_0");
      EXPECT_EQ(file.tensors()[2].shape, std::vector<std::uint64_t>{});
      for (const GgufTensorInfo& tensor : file.tensors()) {
        std::string bytes(tensor.size, '\0');
        ASSERT_OK(file.file().read_at(tensor.offset, std::as_writable_bytes(std::span(bytes))));
        const std::string want =
            tensor.name == "scalar" ? "1234" : std::string(tensor.size, tensor.name[0]);
        EXPECT_EQ(bytes, want) << tensor.name;
      }
    }
  }
}

TEST_F(GgufTest, GettersGiveTheValues) {
  for (const bool big_endian : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const GgufFile file, open(whole(big_endian).bytes()));
    const GgufMetadata& m = file.metadata();
    EXPECT_EQ(m.entries().size(), 17U);
    EXPECT_EQ(m.number("t.u8").value(), 200U);
    EXPECT_EQ(m.number("t.u16").value(), 60000U);
    EXPECT_EQ(m.number("t.u32").value(), 4000000000U);
    EXPECT_EQ(m.number("t.u64").value(), ~std::uint64_t{0});
    EXPECT_EQ(m.signed_number("t.i8").value(), -3);
    EXPECT_EQ(m.signed_number("t.i16").value(), -300);
    EXPECT_EQ(m.signed_number("t.i32").value(), -70000);
    EXPECT_EQ(m.signed_number("t.i64").value(), -5'000'000'000);
    EXPECT_EQ(m.real("t.f32").value(), 1.5);
    EXPECT_EQ(m.real("t.f64").value(), -0.1);
    EXPECT_EQ(m.real("t.i16").value(), -300);
    EXPECT_TRUE(m.boolean("t.bool").value());
    EXPECT_EQ(m.string("general.architecture").value(), "llama");
    EXPECT_EQ(m.numbers("a.i32").value(), (std::vector<std::int64_t>{1, -2, 3}));
    EXPECT_EQ(m.numbers("a.bool").value(), (std::vector<std::int64_t>{1, 0}));
    EXPECT_EQ(m.numbers("t.u16").value(), (std::vector<std::int64_t>{60000}));
    EXPECT_EQ(m.reals("a.f32").value(), (std::vector<double>{0.5, -2.0}));
    EXPECT_EQ(m.strings("a.strings").value(), (std::vector<std::string>{"Hello", ""}));
    EXPECT_EQ(m.strings("a.empty").value(), (std::vector<std::string>{}));
    EXPECT_EQ(m.text(*m.find("a.i32"), 80).value(), "[1, -2, 3] (3 i32)");
    EXPECT_EQ(m.text(*m.find("t.bool"), 80).value(), "true");
    EXPECT_EQ(m.find("absent"), nullptr);
  }
}

TEST_F(GgufTest, GettersRefuseOtherTypes) {
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open(whole(false).bytes()));
  const GgufMetadata& m = file.metadata();
  expect_error(m.number("absent").status(), StatusCode::kNotFound, {"m.gguf", "absent"});
  expect_error(m.number("t.i8").status(), StatusCode::kCorrupt, {"m.gguf", "t.i8", "i8 -3"});
  expect_error(m.number("t.u16", 100).status(), StatusCode::kCorrupt, {"t.u16", "to 100"});
  expect_error(m.number("t.f32").status(), StatusCode::kCorrupt, {"t.f32", "f32 1.5"});
  expect_error(m.number("a.i32").status(), StatusCode::kCorrupt, {"a.i32", "array of 3 i32"});
  expect_error(m.signed_number("t.u64").status(), StatusCode::kCorrupt, {"t.u64"});
  expect_error(m.real("t.bool").status(), StatusCode::kCorrupt, {"t.bool"});
  expect_error(m.boolean("t.u8").status(), StatusCode::kCorrupt, {"t.u8", "a bool"});
  expect_error(m.string("t.u8").status(), StatusCode::kCorrupt, {"t.u8", "a string"});
  expect_error(m.string("a.strings").status(), StatusCode::kCorrupt, {"a.strings"});
  expect_error(m.numbers("a.strings").status(), StatusCode::kCorrupt, {"a.strings"});
  expect_error(m.numbers("a.f32").status(), StatusCode::kCorrupt, {"a.f32"});
  expect_error(m.strings("a.i32").status(), StatusCode::kCorrupt, {"a.i32", "strings"});
}

// Cut anywhere, in the head or in the data.
TEST_F(GgufTest, EveryTruncationIsAnError) {
  for (const bool big_endian : {false, true}) {
    std::string bytes = whole(big_endian).bytes();
    bytes.resize(bytes.size() - 28);  // the padding behind the last tensor, which may be missing
    test::drill_truncation(bytes, [&](std::string_view cut) { return status_of(cut); },
                           {.refuses_extra_byte = false, .first = 0, .step = 1});
  }
}

TEST_F(GgufTest, AcceptsWhatGgmlAccepts) {
  EXPECT_OK(open(GgufWriter().bytes()));  // no tensors, no keys, no padding
  EXPECT_OK(open(whole(false).bytes() + "behind the last tensor"));
  GgufWriter wide;
  wide.u32("general.alignment", 4096).align_to(4096);
  wide.tensor("a", {1}, kF32, "1234").tensor("b", {1}, kF32, "5678");
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open(wide.bytes()));
  EXPECT_EQ(file.tensors()[0].offset, 4096U);
  EXPECT_EQ(file.tensors()[1].offset, 8192U);
  GgufWriter longest;
  longest.tensor(std::string(63, 'n'), {1, 1, 1, 1}, kF32, "1234");
  EXPECT_OK(open(longest.bytes()));
}

TEST_F(GgufTest, RefusesOtherFilesAndVersions) {
  const std::string valid = whole(false).bytes();
  expect_error(status_of("GGML" + valid.substr(4)), StatusCode::kCorrupt, {"m.gguf", "offset 0"});
  for (const std::uint32_t version : {0U, 1U, 4U, 0x01000000U, 0x04000000U, ~0U}) {
    std::string bytes = valid;
    std::memcpy(bytes.data() + 4, &version, 4);
    expect_error(status_of(bytes), StatusCode::kUnsupported, {"m.gguf", "offset 4", "version"});
  }
}

TEST_F(GgufTest, CountsAreThoseThatTheFileCanHold) {
  const std::string valid = whole(false).bytes();
  for (const std::size_t at : {8U, 16U}) {
    for (const std::uint64_t count :
         {std::uint64_t{1000}, std::uint64_t{1} << 31, std::uint64_t{1} << 60,
          std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      std::string bytes = valid;
      std::memcpy(bytes.data() + at, &count, 8);
      expect_error(status_of(bytes), StatusCode::kCorrupt,
                   {"m.gguf", "offset " + std::to_string(at), at == 8 ? "tensors" : "keys"});
    }
  }
  // As long as they fit, the limits of this reader; a sparse file has room for any number.
  for (const std::size_t at : {8U, 16U}) {
    std::string bytes = GgufWriter().bytes();
    const std::uint64_t count = at == 8 ? kMaxGgufTensors + 1 : kMaxGgufKeys + 1;
    std::memcpy(bytes.data() + at, &count, 8);
    write_file(path(), bytes);
    std::filesystem::resize_file(path(), std::uint64_t{1} << 30);
    expect_error(GgufFile::open(path()).status(), StatusCode::kCorrupt, {"at most"});
  }
}

TEST_F(GgufTest, KeysAreNamedOnceAndOfKnownTypes) {
  refused(GgufWriter().u32("", 1), {"m.gguf", "offset 24", "empty"});
  refused(GgufWriter().u32("k", 1).u16("z", 2).text("k", "x"),
          {"m.gguf", "offset", "key k", "twice"});
  refused(GgufWriter().u32(std::string(65536, 'k'), 1), {"m.gguf", "offset 24", "65535"});
  EXPECT_OK(open(GgufWriter().u32(std::string(65535, 'k'), 1).bytes()));
  for (const std::uint32_t type : {13U, 255U, 0x80000000U, ~0U}) {
    refused(GgufWriter().key("k", type, "12345678"), {"m.gguf", "offset 33", "key k", "type"});
    refused(GgufWriter().array("k", type, 1, "12345678"), {"m.gguf", "offset 37", "key k", "type"});
  }
}

TEST_F(GgufTest, ValuesAreChecked) {
  const GgufWriter w;
  refused(GgufWriter().array("k", 9, 1, w.number(4U) + w.number(std::uint64_t{0})),
          {"m.gguf", "offset 37", "key k", "array of arrays"});
  refused(GgufWriter().key("k", 7, "\2"), {"m.gguf", "offset 37", "key k", "bool"});
  refused(GgufWriter().array("k", 7, 5000, std::string(4999, '\1') + '\3'),
          {"m.gguf", "offset " + std::to_string(49 + 4999), "bool of value 3"});
  for (const std::uint64_t length : {std::uint64_t{6}, (std::uint64_t{1} << 30) + 1,
                                     std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    refused(GgufWriter().key("k", 8, w.number(length) + "short"), {"m.gguf", "key k"});
    refused(GgufWriter().array("k", 8, 1, w.number(length) + "short"), {"m.gguf", "key k"});
  }
  for (const std::uint64_t count :
       {std::uint64_t{3}, std::uint64_t{1} << 30, (std::uint64_t{1} << 30) + 1,
        std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    for (const std::uint32_t type : {2U, 8U, 12U}) {
      refused(GgufWriter().array("k", type, count, "12345"), {"m.gguf", "key k", "elements"});
    }
  }
}

// The limits that hold even where the file is long enough: a sparse one of four gibibytes.
TEST_F(GgufTest, LengthsHaveLimits) {
  const GgufWriter w;
  constexpr std::uint64_t kTooLong = (std::uint64_t{1} << 30) + 1;
  const auto refused_sparse = [&](const GgufWriter& writer, std::string_view part) {
    write_file(path(), writer.bytes());
    std::filesystem::resize_file(path(), std::uint64_t{1} << 32);
    expect_error(GgufFile::open(path()).status(), StatusCode::kCorrupt, {"m.gguf", "key k", part});
  };
  refused_sparse(GgufWriter().key("k", 8, w.number(kTooLong)), "at most 1073741824");
  refused_sparse(GgufWriter().array("k", 8, 1, w.number(kTooLong)), "at most 1073741824");
  refused_sparse(GgufWriter().array("k", 0, kTooLong, ""), "1073741825 u8 elements");
}

TEST_F(GgufTest, AlignmentIsAPowerOfTwoOfTypeU32) {
  for (const std::uint32_t value : {0U, 1U, 4U, 24U, 33U, ~0U}) {
    refused(GgufWriter().u32("general.alignment", value),
            {"m.gguf", "offset", "general.alignment", std::to_string(value)});
  }
  refused(GgufWriter().u16("general.alignment", 32), {"general.alignment", "u16"});
  refused(GgufWriter().text("general.alignment", "32"), {"general.alignment", "string"});
  EXPECT_OK(open(GgufWriter().u32("general.alignment", 0x80000000U).bytes()));
}

TEST_F(GgufTest, TensorsHaveNamesAndShapes) {
  constexpr std::uint64_t kBig = std::uint64_t{1} << 62;
  const auto with = [](const std::vector<std::uint64_t>& ne, std::uint32_t type = kF32) {
    return GgufWriter().tensor("t", ne, type, "1234");
  };
  refused(GgufWriter().tensor("", {1}, kF32, "1234"), {"m.gguf", "offset 24", "empty"});
  refused(GgufWriter().tensor(std::string(64, 'n'), {1}, kF32, "1234"), {"m.gguf", "63"});
  refused(GgufWriter().tensor("t", {1}, kF32, "1234").tensor("t", {1}, kF32, "1234"),
          {"m.gguf", "tensor t", "offset", "twice"});
  refused(with({1, 1, 1, 1, 1}), {"m.gguf", "tensor t", "offset 33", "5 dimensions"});
  refused(with({0}), {"m.gguf", "tensor t", "offset 37", "zero"});
  refused(with({1, 1, 0}), {"m.gguf", "tensor t", "offset 53", "zero"});
  refused(with({std::uint64_t{1} << 63}), {"m.gguf", "tensor t", "offset 37", "negative"});
  refused(with({kBig, 4}), {"m.gguf", "tensor t", "offset 33", "overflow"});
  refused(with({kBig, kBig, kBig, kBig}), {"m.gguf", "tensor t", "overflow"});
  refused(with({kBig, 1}), {"m.gguf", "tensor t", "offset", "overflow"});  // times four bytes
  refused(with({16}, kQ8_0), {"m.gguf", "tensor t", "offset 45", "Q8_0", "32"});
  refused(with({128, 2}, kQ4_K), {"m.gguf", "tensor t", "Q4_K", "256"});
  refused(with({}, kQ8_0), {"m.gguf", "tensor t", "Q8_0"});
}

TEST_F(GgufTest, TypesAreGgmls) {
  const auto with = [](std::uint32_t type) { return GgufWriter().tensor("t", {256}, type, "x"); };
  for (const std::uint32_t removed : {4U, 5U, 31U, 33U, 36U, 38U}) {
    refused(with(removed), {"tensor t", "offset 45", "removed"}, StatusCode::kUnsupported);
  }
  for (const std::uint32_t other : {43U, 100U, 64U, 0x80000000U, ~0U, ~0U - 63}) {
    refused(with(other), {"tensor t", std::to_string(other)}, StatusCode::kUnsupported);
  }
  refused(with(144), {"tensor t", "ik_llama.cpp", "IQ4_KS"}, StatusCode::kUnsupported);
}

TEST_F(GgufTest, DataFollowsInOrder) {
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{31},
                                     std::uint64_t{64}, ~std::uint64_t{31}, ~std::uint64_t{0}}) {
    refused(GgufWriter().tensor("a", {1}, kF32, "1234").tensor("b", {1}, kF32, "5678", offset),
            {"m.gguf", "tensor b", "offset", std::to_string(offset), "must be 32"});
  }
  refused(GgufWriter().tensor("a", {1}, kF32, "1234", 32), {"tensor a", "must be 0"});
  refused(GgufWriter().tensor("a", {9}, kF32, std::string(32, 'x')),
          {"m.gguf", "tensor a", "offset 24", "36 bytes", "beyond the end"});
  // The end of the file as ggml sees it: the last padding may be missing.
  const std::string valid = GgufWriter().tensor("a", {1}, kF32, "1234").bytes();
  EXPECT_OK(open(valid.substr(0, valid.size() - 28)));
  EXPECT_FALSE(open(valid.substr(0, valid.size() - 29)).is_ok());
  // An alignment so large that the data section begins behind the file.
  GgufWriter far;
  far.u32("general.alignment", 0x80000000U).tensor("a", {1}, kF32, "1234");
  refused(far, {"tensor a", "beyond the end"});
}

}  // namespace
}  // namespace moepack::gguf_test
