// Files that the writer makes, read by the reader that was tested with files of a third program.
#include "formats/gguf/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/gguf/gguf_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::gguf_writer_test {
namespace {

using test::expect_error;

GgmlType type_of(QFormatId format) { return *ggml_type_of(format); }

std::vector<std::byte> filled(std::size_t size, std::size_t seed) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 7 + seed);
  return data;
}

class GgufWriterTest : public testing::Test {
 protected:
  bool nothing_there() const { return std::filesystem::is_empty(dir_.path()); }
  std::filesystem::path path() const { return dir_ / "x.gguf"; }
  test::TempDir dir_;
};

TEST_F(GgufWriterTest, EveryValueTypeComesBack) {
  GgufHead head;
  ASSERT_OK(head.add("b", true));
  ASSERT_OK(head.add("u8", std::uint8_t{255}));
  ASSERT_OK(head.add("i8", std::int8_t{-128}));
  ASSERT_OK(head.add("u16", std::uint16_t{65535}));
  ASSERT_OK(head.add("i16", std::int16_t{-32768}));
  ASSERT_OK(head.add("u32", std::uint32_t{4294967295U}));
  ASSERT_OK(head.add("i32", std::int32_t{-5}));
  ASSERT_OK(head.add("u64", std::uint64_t{1} << 63));
  ASSERT_OK(head.add("i64", std::int64_t{-6000000000}));
  ASSERT_OK(head.add("f32", 0.1F));
  ASSERT_OK(head.add("f64", 0.1));
  ASSERT_OK(head.add("text", "a literal"));
  ASSERT_OK(head.add("empty", std::string_view()));
  const std::vector<std::uint32_t> numbers{1, 2, 3};
  const std::vector<std::int32_t> signs{-1, 5};
  const std::vector<float> reals{0.5F, -2.0F};
  const std::vector<std::string> texts{"", "zwei", std::string("a\0b", 3)};
  ASSERT_OK(head.add_list("numbers", std::span(numbers)));
  ASSERT_OK(head.add_list("signs", std::span(signs)));
  ASSERT_OK(head.add_list("reals", std::span(reals)));
  ASSERT_OK(head.add_list("bools", std::vector<bool>{true, false, true}));
  ASSERT_OK(head.add_list("texts", std::span(texts)));
  ASSERT_OK_AND_ASSIGN(GgufOutput output, head.create(path()));
  ASSERT_OK(output.commit());

  ASSERT_OK_AND_ASSIGN(const GgufFile file, GgufFile::open(path()));
  const GgufMetadata& read = file.metadata();
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.file().size(), head.file_size());
  const std::vector<std::pair<const char*, const char*>> types{
      {"b", "bool"},  {"u8", "u8"},       {"i8", "i8"},        {"u16", "u16"},      {"i16", "i16"},
      {"u32", "u32"}, {"i32", "i32"},     {"u64", "u64"},      {"i64", "i64"},      {"f32", "f32"},
      {"f64", "f64"}, {"text", "string"}, {"empty", "string"}, {"numbers", "array"}};
  for (std::size_t i = 0; i < types.size(); ++i) {
    ASSERT_EQ(read.entries()[i].key, types[i].first);  // in the order of adding
    EXPECT_EQ(gguf_value_type_name(read.entries()[i].type), types[i].second);
  }
  EXPECT_TRUE(read.boolean("b").value());
  EXPECT_EQ(read.number("u8").value(), 255U);
  EXPECT_EQ(read.signed_number("i8").value(), -128);
  EXPECT_EQ(read.number("u16").value(), 65535U);
  EXPECT_EQ(read.signed_number("i16").value(), -32768);
  EXPECT_EQ(read.number("u32").value(), 4294967295U);
  EXPECT_EQ(read.signed_number("i32").value(), -5);
  EXPECT_EQ(read.number("u64").value(), std::uint64_t{1} << 63);
  EXPECT_EQ(read.signed_number("i64").value(), -6000000000);
  EXPECT_EQ(read.real("f32").value(), static_cast<double>(0.1F));
  EXPECT_EQ(read.real("f64").value(), 0.1);
  EXPECT_EQ(read.string("text").value(), "a literal");
  EXPECT_EQ(read.string("empty").value(), "");
  EXPECT_EQ(read.numbers("numbers").value(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(read.numbers("signs").value(), (std::vector<std::int64_t>{-1, 5}));
  EXPECT_EQ(read.reals("reals").value(), (std::vector<double>{0.5, -2.0}));
  EXPECT_EQ(read.numbers("bools").value(), (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(read.strings("texts").value(), texts);
}

TEST_F(GgufWriterTest, TensorsStandAlignedInOrder) {
  GgufHead head;
  ASSERT_OK(head.add("k", std::uint32_t{1}));
  // 20, 12 and 36 bytes: none a multiple of the alignment.
  ASSERT_OK(head.add_tensor("z.q4_1", type_of(QFormatId::kQ41), {1, 32}));
  ASSERT_OK(head.add_tensor("a.f32", type_of(QFormatId::kF32), {3}));
  ASSERT_OK(head.add_tensor("m.bf16", type_of(QFormatId::kBf16), {2, 3, 3}));
  ASSERT_OK_AND_ASSIGN(GgufOutput output, head.create(path()));
  std::vector<std::vector<std::byte>> data;
  for (const GgufOutputTensor& tensor : head.tensors()) data.push_back(filled(tensor.size, 3));
  // In any order, in parts.
  for (std::size_t i : {2U, 0U, 1U}) {
    const std::span<const std::byte> all = data[i];
    const std::size_t half = all.size() / 2;
    ASSERT_OK(output.write_at(head.tensors()[i], half, all.subspan(half)));
    ASSERT_OK(output.write_at(head.tensors()[i], 0, all.first(half)));
  }
  ASSERT_OK(output.commit());

  ASSERT_OK_AND_ASSIGN(const GgufModel model, GgufModel::open(path()));
  const std::span<const GgufTensorInfo> tensors = model.parts().front().tensors();
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "z.q4_1");
  EXPECT_EQ(tensors[2].shape, (std::vector<std::uint64_t>{2, 3, 3}));
  EXPECT_EQ(model.parts().front().file().size(), head.file_size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].offset % kGgufAlignment, 0U);
    EXPECT_EQ(tensors[i].type, head.tensors()[i].type);
    std::vector<std::byte> found(tensors[i].size);
    ASSERT_OK(model.find(tensors[i].name)->read(0, found));
    EXPECT_EQ(found, data[i]);
  }
}

TEST_F(GgufWriterTest, PaddingIsZero) {
  GgufHead head;
  ASSERT_OK(head.add_tensor("a", type_of(QFormatId::kF32), {1}));
  ASSERT_OK(head.add_tensor("b", type_of(QFormatId::kF32), {1}));
  ASSERT_OK_AND_ASSIGN(GgufOutput output, head.create(path()));
  for (const GgufOutputTensor& tensor : head.tensors()) {
    ASSERT_OK(output.write_at(tensor, 0, std::vector<std::byte>(4, std::byte{0xff})));
  }
  ASSERT_OK(output.commit());
  ASSERT_OK_AND_ASSIGN(const std::string text, read_text_file(path(), 1 << 20));
  EXPECT_EQ(text.size() % kGgufAlignment, 0U);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\xff'), 8);
  EXPECT_EQ(text.substr(text.size() - 28), std::string(28, '\0'));
}

TEST_F(GgufWriterTest, RefusesWhatTheReaderRefuses) {
  const GgmlType f32 = type_of(QFormatId::kF32);
  GgufHead head;
  ASSERT_OK(head.add("k", true));
  ASSERT_OK(head.add_tensor("t", f32, {1}));
  const auto refused = [](const Status& status, std::initializer_list<std::string_view> parts) {
    expect_error(status, StatusCode::kInvalidArgument, parts);
  };
  refused(head.add("", true), {"0 bytes"});
  refused(head.add(std::string(65536, 'k'), true), {"65536"});
  refused(head.add("k", std::uint32_t{1}), {"k", "twice"});
  refused(head.add_tensor("t", f32, {1}), {"t", "twice"});
  refused(head.add_tensor("", f32, {1}), {"0 bytes"});
  refused(head.add_tensor(std::string(64, 'n'), f32, {1}), {"64"});
  refused(head.add_tensor("none", f32, {}), {"none", "dimensions"});
  refused(head.add_tensor("many", f32, {1, 1, 1, 1, 1}), {"many", "5 dimensions"});
  refused(head.add_tensor("zero", f32, {1, 0}), {"zero", "dimension of 0"});
  refused(head.add_tensor("part", type_of(QFormatId::kQ41), {2, 33}), {"part", "33"});
  refused(head.add_tensor("huge", f32, {1U << 31, 1U << 31, 4}), {"huge", "too large"});
  EXPECT_EQ(head.tensors().size(), 1U);
  ASSERT_OK(head.add_tensor(std::string(63, 'n'), f32, {1}));

  ASSERT_OK_AND_ASSIGN(GgufOutput output, head.create(path()));
  const std::vector<std::byte> five(5);
  refused(output.write_at(head.tensors()[0], 0, five), {"t", "4 bytes"});
  refused(output.write_at(head.tensors()[0], 5, std::span(five).first(0)), {"t"});
}

TEST_F(GgufWriterTest, NothingIsLeftWithoutCommit) {
  GgufHead head;
  ASSERT_OK(head.add_tensor("t", type_of(QFormatId::kF32), {100}));
  {
    ASSERT_OK_AND_ASSIGN(const GgufOutput output, head.create(path()));
    EXPECT_FALSE(nothing_there());
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  EXPECT_TRUE(nothing_there());
}

TEST(GgmlTypes, EveryFormatOfGgmlHasItsNumber) {
  for (const QFormatInfo& info : qformats()) {
    const auto type = ggml_type_of(info.id);
    const bool is_own = static_cast<std::uint32_t>(info.id) >= MOE_QFORMAT_FIRST_OWN;
    EXPECT_EQ(type.has_value(), info.kind != QKind::kAffine && !is_own) << info.name;
    if (!type.has_value()) continue;
    EXPECT_EQ(type->format, info.id) << info.name;
  }
}

}  // namespace
}  // namespace moepack::gguf_writer_test
