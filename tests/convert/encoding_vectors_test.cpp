// Small matrices in every encoding, against values that NumPy computed (tests/golden/encodings).
#include "tests/convert/encoding_vectors.h"

#include <bit>

#include "formats/base/bytes.h"

namespace moepack::encoding_vectors_test {
namespace {

using test::EncodingVector;

std::span<const float> matrix_of(const EncodingVector& vector, std::uint64_t index,
                                 std::uint64_t size) {
  return std::span(vector.values).subspan(index * size, size);
}

// Bit for bit; NaN does not occur.
void expect_bits(std::span<const float> found, std::span<const float> expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << "value " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

TEST(EncodingVectors, AreDecodedBitForBit) {
  const auto vectors = test::encoding_vectors();
  EXPECT_GE(vectors.size(), 50U);
  for (const EncodingVector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    const test::LoneModule module(vector.tensors);
    const auto form = test::recognise_vector(vector, module);
    ASSERT_OK(form);
    const ModuleForm decoded = test::decoded_form(form.value());
    for (std::uint64_t e = 0; e < decoded.matrices; ++e) {
      ASSERT_OK_AND_ASSIGN(const auto values, test::weights_of_form(decoded, e));
      expect_bits(values, matrix_of(vector, e, decoded.rows * decoded.cols));
    }
  }
}

// The format that keeps the codes means the same numbers (of zeros, ggml's blocks lose the sign).
TEST(EncodingVectors, AreKeptWhereAFormatHoldsThem) {
  for (const EncodingVector& vector : test::encoding_vectors()) {
    SCOPED_TRACE(vector.name);
    const test::LoneModule module(vector.tensors);
    const auto form = test::recognise_vector(vector, module);
    ASSERT_OK(form);
    EXPECT_EQ(to_string(form.value().format), vector.stored);
    for (std::uint64_t e = 0; e < form.value().matrices; ++e) {
      ASSERT_OK_AND_ASSIGN(const auto values, test::weights_of_form(form.value(), e));
      const auto expected = matrix_of(vector, e, values.size());
      EXPECT_TRUE(std::equal(values.begin(), values.end(), expected.begin(), expected.end()));
    }
  }
}

// Any rows are what they are in the whole.
TEST(EncodingVectors, RowsAreReadAlone) {
  for (const EncodingVector& vector : test::encoding_vectors()) {
    SCOPED_TRACE(vector.name);
    const test::LoneModule module(vector.tensors);
    const auto form = test::recognise_vector(vector, module);
    ASSERT_OK(form);
    if (form.value().encoding->read_rows == nullptr) continue;
    const auto shared = std::make_shared<const ModuleForm>(test::decoded_form(form.value()));
    const std::uint64_t last = shared->matrices - 1;
    const SourceMatrix matrix = slice_matrix(shared, last, 0, shared->rows);
    const auto expected = matrix_of(vector, last, shared->rows * shared->cols);
    for (std::uint64_t begin = 0; begin < shared->rows; ++begin) {
      const std::uint64_t end = std::min(shared->rows, begin + 1 + begin % 3);
      std::vector<std::byte> bytes((end - begin) * shared->cols * 4);
      ASSERT_OK(matrix.read_rows(Component::kCodes, begin, end, bytes));
      std::vector<float> values(bytes.size() / 4);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      expect_bits(values, expected.subspan(begin * shared->cols, values.size()));
    }
  }
}

// ---- blocks of our own --------------------------------------------------------------------------

std::vector<float> decoded_block(QFormatId id, const std::string& bytes) {
  const QFormatInfo& info = qformat_info(id);
  EXPECT_EQ(bytes.size(), info.block_bytes);
  QMatrixView view{.format = {.id = id}, .rows = 1, .cols = info.block_values};
  view.data.codes() = reinterpret_cast<const std::byte*>(bytes.data());
  std::vector<float> values(info.block_values);
  decode_row(view, 0, values);
  return values;
}

std::string block_of(QFormatId id, float head, std::size_t at) {
  std::string bytes(qformat_info(id).block_bytes, '\0');
  store_le(reinterpret_cast<std::byte*>(bytes.data()) + at, head);
  return bytes;
}

// Values by hand: 0x38 is 1, 0x7e 448, 0x01 2^-9, 0xb9 -1.125; nibbles 2 and 15 are 1 and -6.
TEST(FloatBlocks, MeanWhatTheirDefinitionSays) {
  std::string f8 = block_of(QFormatId::kF8E4M3, 0.375F, 0);
  f8.replace(4, 4, "\x38\x7e\x01\xb9");
  const auto eight = decoded_block(QFormatId::kF8E4M3, f8);
  EXPECT_EQ(eight[0], 0.375F);
  EXPECT_EQ(eight[1], 168.0F);
  EXPECT_EQ(eight[2], 0.375F * 0x1p-9F);
  EXPECT_EQ(eight[3], -0.421875F);
  EXPECT_EQ(eight[127], 0.0F);

  std::string mx(33, '\x38');
  for (const auto& [exponent, value] : {std::pair{127, 1.0F}, std::pair{0, 0x1p-127F},
                                        std::pair{1, 0x1p-126F}, std::pair{254, 0x1p127F}}) {
    mx[0] = static_cast<char>(exponent);
    EXPECT_EQ(decoded_block(QFormatId::kMxfp8, mx)[31], value) << exponent;
  }
  mx[0] = '\xff';
  EXPECT_TRUE(std::isnan(decoded_block(QFormatId::kMxfp8, mx)[0]));

  // The scale of group 1 is 5; five thirds are rounded otherwise than five times a third.
  std::string nv = block_of(QFormatId::kNvfp4Scaled, 1.0F / 3.0F, 0);
  nv[5] = '\x4a';
  nv[12 + 8] = '\xf2';
  const auto multiplied = decoded_block(QFormatId::kNvfp4Scaled, nv);
  EXPECT_EQ(multiplied[16], 0x1.aaaaacp0F);
  EXPECT_EQ(multiplied[17], -6.0F * 0x1.aaaaacp0F);
  store_le(reinterpret_cast<std::byte*>(nv.data()), -3.0F);
  const auto divided = decoded_block(QFormatId::kNvfp4Scaled, nv);
  EXPECT_EQ(divided[16], 0x1.aaaaaap0F);
  EXPECT_NE(divided[16], multiplied[16]);
}

}  // namespace
}  // namespace moepack::encoding_vectors_test
