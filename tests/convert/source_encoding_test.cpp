// Checkpoints in encodings that are decoded or repacked, against twins whose weights this file
// decodes itself, from the definitions.
#include "convert/source/source_encoding.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>

#include "convert/source/source_matrix.h"
#include "formats/base/bytes.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/weights/qcodec.h"
#include "tests/convert/encoding_support.h"
#include "tests/support/converted_model.h"
#include "tests/support/tiny_model.h"

namespace moepack::source_encoding_test {
namespace {

using test::expect_error;
using test::LoneModule;
using test::WriterTensor;

constexpr std::uint64_t kBlockRows = 40;  // no dimension of the tiny model is a multiple of both
constexpr std::uint64_t kBlockCols = 36;

std::uint64_t blocks(std::uint64_t length, std::uint64_t block) {
  return (length + block - 1) / block;
}

// By the definition of E4M3: (-1)^s * 2^(e-7) * (1 + m/8), without a leading 1 at e = 0.
float e4m3(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15U);
  const double mantissa = (bits & 7U) / 8.0;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1 + mantissa, exponent - 7);
  return static_cast<float>((bits & 0x80U) != 0 ? -size : size);
}

TEST(SourceEncoding, EveryCodeOfE4M3) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const float value = f8_e4m3_to_f32(static_cast<std::uint8_t>(bits));
    if ((bits & 0x7fU) == 0x7fU) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(value, e4m3(bits)) << bits;
      EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
    }
  }
}

template <typename T>
void append(std::string& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  store_le(bytes.data() + at, value);
}

// A scale between 2^-6 and 2^-5, with as many digits as a bfloat16 has.
std::uint16_t random_scale(std::mt19937& random) {
  return static_cast<std::uint16_t>(0x3c80U + random() % 128);
}

// Tensors of a matrix as a checkpoint holds it, and what they mean.
struct Encoded {
  std::vector<WriterTensor> tensors;
  std::vector<float> values;
};
using Encode = std::function<Encoded(const std::string& module, std::uint64_t rows,
                                     std::uint64_t cols, std::mt19937& random)>;

Encoded encode_fp8(const std::string& module, std::uint64_t rows, std::uint64_t cols,
                   std::mt19937& random) {
  const std::uint64_t grid_cols = blocks(cols, kBlockCols);
  WriterTensor codes{module + ".weight", DType::kF8E4M3, {rows, cols}, {}};
  WriterTensor scales{
      module + ".weight_scale_inv", DType::kBf16, {blocks(rows, kBlockRows), grid_cols}, {}};
  std::vector<float> grid;
  for (std::uint64_t i = 0; i < blocks(rows, kBlockRows) * grid_cols; ++i) {
    const std::uint16_t scale = random_scale(random);
    append(scales.bytes, scale);
    grid.push_back(bf16_to_f32(scale));
  }
  Encoded out;
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (std::uint64_t c = 0; c < cols; ++c) {
      const auto code = static_cast<unsigned>(random() % 2 * 128 + random() % 0x7fU);
      codes.bytes.push_back(static_cast<char>(code));
      out.values.push_back(e4m3(code) * grid[r / kBlockRows * grid_cols + c / kBlockCols]);
    }
  }
  out.tensors = {codes, scales};
  return out;
}

constexpr std::uint64_t kGroup = 32;

// Four bits; with `zeros` one for each group, packed along the rows.
Encoded encode_packed(const std::string& module, std::uint64_t rows, std::uint64_t cols,
                      bool with_zeros, std::mt19937& random) {
  const std::uint64_t groups = cols / kGroup;
  const std::uint64_t zero_words = blocks(rows, 8);
  WriterTensor codes{module + ".weight_packed", DType::kI32, {rows, cols / 8}, {}};
  WriterTensor scales{module + ".weight_scale", DType::kBf16, {rows, groups}, {}};
  WriterTensor shape{module + ".weight_shape", DType::kI64, {2}, {}};
  append(shape.bytes, rows);
  append(shape.bytes, cols);
  std::vector<std::uint32_t> zeros(zero_words * groups);
  for (std::uint32_t& word : zeros) word = static_cast<std::uint32_t>(random());
  Encoded out;
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (std::uint64_t g = 0; g < groups; ++g) {
      const std::uint16_t scale = random_scale(random);
      append(scales.bytes, scale);
      const auto zero =
          static_cast<int>(with_zeros ? zeros[r / 8 * groups + g] >> (4 * (r % 8)) & 15U : 8U);
      for (std::uint64_t w = 0; w < kGroup / 8; ++w) {
        const auto word = static_cast<std::uint32_t>(random());
        append(codes.bytes, word);
        for (unsigned n = 0; n < 8; ++n) {
          const auto code = static_cast<int>(word >> (4 * n) & 15U);
          out.values.push_back(static_cast<float>(code - zero) * bf16_to_f32(scale));
        }
      }
    }
  }
  out.tensors = {codes, scales, shape};
  if (with_zeros) {
    WriterTensor tensor{module + ".weight_zero_point", DType::kI32, {zero_words, groups}, {}};
    for (std::uint32_t word : zeros) append(tensor.bytes, word);
    out.tensors.push_back(tensor);
  }
  return out;
}

Encoded encode_symmetric(const std::string& module, std::uint64_t rows, std::uint64_t cols,
                         std::mt19937& random) {
  return encode_packed(module, rows, cols, false, random);
}

Encoded encode_asymmetric(const std::string& module, std::uint64_t rows, std::uint64_t cols,
                          std::mt19937& random) {
  return encode_packed(module, rows, cols, true, random);
}

nlohmann::json fp8_config() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"weight_block_size", {kBlockRows, kBlockCols}},
          {"modules_to_not_convert", {"lm_head"}}};
}

nlohmann::json packed_config() {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}}}}}}}};
}

// The tiny model with the matrices of its experts, attention and shared experts in an encoding, and
// its twin, which holds what they mean as F32.
class Twins {
 public:
  Twins(const Encode& encode, const nlohmann::json& quantization) {
    std::mt19937 random(7);
    std::vector<WriterTensor> encoded;
    std::vector<WriterTensor> decoded;
    for (const WriterTensor& tensor : test::tiny_model_tensors({})) {
      const std::string_view name = tensor.name;
      const bool is_matrix = name.ends_with("_proj.weight") && tensor.shape.size() == 2 &&
                             tensor.shape.back() % kGroup == 0;
      if (!is_matrix) {
        encoded.push_back(tensor);
        decoded.push_back(tensor);
        continue;
      }
      const std::string module(name.substr(0, name.size() - 7));
      const Encoded one = encode(module, tensor.shape[0], tensor.shape[1], random);
      encoded.insert(encoded.end(), one.tensors.begin(), one.tensors.end());
      WriterTensor twin{tensor.name, DType::kF32, tensor.shape, {}};
      for (float value : one.values) append(twin.bytes, value);
      decoded.push_back(twin);
    }
    write("encoded", encoded, quantization);
    write("decoded", decoded, nullptr);
  }

  std::filesystem::path encoded() const { return dir_ / "encoded"; }
  std::filesystem::path decoded() const { return dir_ / "decoded"; }

 private:
  void write(const std::string& name, const std::vector<WriterTensor>& tensors,
             const nlohmann::json& quantization) {
    std::filesystem::create_directory(dir_ / name);
    nlohmann::ordered_json config = test::tiny_model_config({});
    if (!quantization.is_null()) config["quantization_config"] = quantization;
    test::write_file(dir_ / name / "config.json", config.dump());
    test::write_safetensors(dir_ / name / "model.safetensors", tensors);
  }

  test::TempDir dir_;
};

// The files of weights, one after the other.
std::string weights_of(const std::filesystem::path& model) {
  std::string all = test::read_file(model / "model_weights.bin");
  for (int layer = 0; layer < 4; ++layer) {
    all += test::read_file(model / "packed_experts" / ("layer_0" + std::to_string(layer) + ".bin"));
  }
  return all;
}

std::string converted(const std::filesystem::path& checkpoint, std::optional<QFormatId> experts,
                      std::optional<QFormatId> residents) {
  const test::TempDir dir;
  ConvertOptions options;
  options.expert_format = experts;
  options.resident_format = residents;
  options.group_size = kGroup;
  const std::filesystem::path model = test::convert_for_test(checkpoint, dir, options);
  return model.empty() ? std::string() : weights_of(model);
}

void expect_twins(const Twins& twins, std::optional<QFormatId> format) {
  const std::string ours = converted(twins.encoded(), format, format);
  EXPECT_FALSE(ours.empty());
  EXPECT_TRUE(ours == converted(twins.decoded(), format, format));
}

TEST(SourceEncoding, Fp8IsWhatItsTwinIs) {
  const Twins twins(encode_fp8, fp8_config());
  expect_twins(twins, QFormatId::kF32);
  expect_twins(twins, QFormatId::kBf16);
  expect_twins(twins, QFormatId::kQ4);
}

// Without a format named, what is decoded becomes bf16.
TEST(SourceEncoding, DecodedWeightsAreKeptAsBf16) {
  const Twins twins(encode_fp8, fp8_config());
  const std::string ours = converted(twins.encoded(), std::nullopt, std::nullopt);
  EXPECT_EQ(ours.size(), converted(twins.encoded(), QFormatId::kBf16, std::nullopt).size());
  EXPECT_TRUE(ours == converted(twins.encoded(), QFormatId::kBf16, std::nullopt));
}

TEST(SourceEncoding, AsymmetricCodesAreWhatTheirTwinIs) {
  const Twins twins(encode_asymmetric, packed_config());
  expect_twins(twins, QFormatId::kF32);
  expect_twins(twins, QFormatId::kQ3);
}

TEST(SourceEncoding, SymmetricCodesAreWhatTheirTwinIs) {
  const Twins twins(encode_symmetric, packed_config());
  expect_twins(twins, QFormatId::kF32);
}

const SourceQuantization kFp8{.method = "fp8", .block_rows = kBlockRows, .block_cols = kBlockCols};
const SourceQuantization kPacked{.method = "compressed-tensors", .code_widths = 1U << 4U};

constexpr std::array<std::uint64_t, 2> kShape{100, 96};

// The codes stay; the biases are -8 times the scales.
TEST(SourceEncoding, SymmetricCodesAreRepackedWithoutLoss) {
  std::mt19937 random(3);
  const Encoded one = encode_symmetric("m", kShape[0], kShape[1], random);
  const LoneModule module(one.tensors);
  ASSERT_OK_AND_ASSIGN(const ModuleForm form, module.recognise(kShape, kPacked));
  EXPECT_EQ(to_string(form.format), "q4 g32");
  const SourceMatrix matrix =
      slice_matrix(std::make_shared<const ModuleForm>(form), 0, 0, kShape[0]);
  Components<std::vector<std::byte>> parts;
  QMatrixView view{.format = form.format, .rows = kShape[0], .cols = kShape[1]};
  for (Component c : stored_components(form.format)) {
    parts[c].resize(matrix.row_bytes(c) * kShape[0]);
    EXPECT_OK(matrix.read_rows(c, 0, kShape[0], parts[c]));
    view.data[c] = parts[c].data();
  }
  EXPECT_EQ(std::memcmp(parts.codes().data(), one.tensors[0].bytes.data(), parts.codes().size()),
            0);
  std::vector<float> row(kShape[1]);
  for (std::uint64_t r = 0; r < kShape[0]; ++r) {
    decode_row(view, r, row);
    for (std::uint64_t c = 0; c < row.size(); ++c)
      ASSERT_EQ(row[c], one.values[r * row.size() + c]);
  }
}

// A float16 cannot hold -8 times its largest values.
TEST(SourceEncoding, ScalesThatAreTooLargeForABiasAreNamed) {
  std::mt19937 random(3);
  std::vector<WriterTensor> tensors = encode_symmetric("m", kShape[0], kShape[1], random).tensors;
  tensors[1].dtype = DType::kF16;
  for (std::size_t at = 0; at < tensors[1].bytes.size(); at += 2) {
    store_le(tensors[1].bytes.data() + at, std::uint16_t{0x3c00});
  }
  store_le(tensors[1].bytes.data() + 2 * (7 * 3 + 1), std::uint16_t{0x7800});  // 32768, in row 7
  const LoneModule module(tensors);
  ASSERT_OK_AND_ASSIGN(const ModuleForm form, module.recognise(kShape, kPacked));
  const SourceMatrix matrix =
      slice_matrix(std::make_shared<const ModuleForm>(form), 0, 0, kShape[0]);
  std::vector<std::byte> biases(matrix.row_bytes(Component::kBiases) * kShape[0]);
  expect_error(matrix.read_rows(Component::kBiases, 0, kShape[0], biases), StatusCode::kCorrupt,
               {"m.weight_scale", "row 7"});
}

// Stacked matrices, a part of one, and rows in another order: each row keeps its own block.
TEST(SourceEncoding, RowsOfFp8KeepTheirBlocks) {
  constexpr std::uint64_t kRows = 50;
  constexpr std::uint64_t kCols = 70;
  std::mt19937 random(5);
  std::vector<WriterTensor> tensors = encode_fp8("m", kRows, kCols, random).tensors;
  const Encoded second = encode_fp8("m", kRows, kCols, random);
  for (std::size_t i = 0; i < 2; ++i) {
    tensors[i].bytes += second.tensors[i].bytes;
    tensors[i].shape.insert(tensors[i].shape.begin(), 2);
  }
  const LoneModule module(tensors);
  constexpr std::array<std::uint64_t, 3> kStacked{2, kRows, kCols};
  ASSERT_OK_AND_ASSIGN(const ModuleForm form, module.recognise(kStacked, kFp8));
  const auto shared = std::make_shared<const ModuleForm>(form);
  const auto expect_rows = [&](const SourceMatrix& matrix, const std::vector<std::uint64_t>& rows) {
    std::vector<std::byte> bytes(rows.size() * kCols * 4);
    EXPECT_OK(matrix.read_rows(Component::kCodes, 0, rows.size(), bytes));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::uint64_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(load_le<float>(bytes.data() + 4 * (r * kCols + c)),
                  second.values[rows[r] * kCols + c])
            << r << " " << c;
      }
    }
  };
  expect_rows(slice_matrix(shared, 1, 38, 4), {38, 39, 40, 41});
  const SourceMatrix whole = slice_matrix(shared, 1, 0, kRows);
  const RowRuns runs{{.first = 39, .rows = 2, .stride = 5, .count = 2},
                     {.first = 1, .rows = 1, .stride = 1, .count = 1}};
  expect_rows(gather_rows(whole, runs), {39, 40, 44, 45, 1});
}

// One scale for each row, and one for all.
TEST(SourceEncoding, Fp8ScalesOfRowsAndOfTensors) {
  for (const bool by_row : {true, false}) {
    WriterTensor codes{"m.weight", DType::kF8E4M3, {3, 2}, "\x38\x40\x38\x40\x38\x40"};  // 1, 2
    WriterTensor scales{"m.weight_scale", DType::kF32, {3, 1}, {}};
    for (int r = 0; r < 3; ++r) append(scales.bytes, static_cast<float>(r + 3));
    if (!by_row) {
      scales.shape = {1};
      scales.bytes.resize(4);
    }
    const LoneModule module({codes, scales});
    ASSERT_OK_AND_ASSIGN(const ModuleForm form, module.recognise(codes.shape, kFp8));
    const SourceMatrix matrix = slice_matrix(std::make_shared<const ModuleForm>(form), 0, 0, 3);
    std::vector<std::byte> bytes(3 * 2 * 4);
    ASSERT_OK(matrix.read_rows(Component::kCodes, 0, 3, bytes));
    for (std::size_t i = 0; i < 6; ++i) {
      const float scale = by_row ? static_cast<float>(i / 2 + 3) : 3.0F;
      EXPECT_EQ(load_le<float>(bytes.data() + 4 * i), scale * static_cast<float>(i % 2 + 1));
    }
  }
}

// Every tensor damaged in turn: each is refused by its name, or its module's.
TEST(SourceEncoding, WhatDoesNotFitIsNamed) {
  std::mt19937 random(9);
  const auto refuse = [](std::vector<WriterTensor> tensors, std::size_t which,
                         const std::function<void(WriterTensor&)>& damage, StatusCode code,
                         const std::string& part) {
    damage(tensors[which]);
    if (tensors[which].bytes.empty()) {
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const bool is_fp8 = tensors.front().dtype == DType::kF8E4M3;
    const auto found = LoneModule(tensors).recognise(kShape, is_fp8 ? kFp8 : kPacked);
    ASSERT_FALSE(found.is_ok()) << part;
    expect_error(found.status(), code, {"m.", part});
  };
  const auto fp8 = encode_fp8("m", kShape[0], kShape[1], random).tensors;
  const auto packed = encode_asymmetric("m", kShape[0], kShape[1], random).tensors;
  const auto drop = [](WriterTensor& t) { t.bytes.clear(); };
  const auto transpose = [](WriterTensor& t) { std::swap(t.shape[0], t.shape[1]); };
  const auto flatten = [](WriterTensor& t) { t.shape = {t.shape[0] * t.shape[1]}; };
  refuse(fp8, 0, transpose, StatusCode::kCorrupt, "[96, 100]");
  refuse(fp8, 0, flatten, StatusCode::kCorrupt, "[9600]");
  refuse(fp8, 1, drop, StatusCode::kNotFound, "weight_scale_inv is missing");
  refuse(fp8, 1, flatten, StatusCode::kCorrupt, "fits no scales");
  refuse(packed, 0, transpose, StatusCode::kCorrupt, "[12, 100]");
  refuse(packed, 1, drop, StatusCode::kNotFound, "weight_scale is missing");
  refuse(packed, 1, flatten, StatusCode::kCorrupt, "[300]");
  refuse(packed, 3, flatten, StatusCode::kCorrupt, "[39]");
  refuse(
      packed, 3, [](WriterTensor& t) { t.name = "m.weight_g_idx"; }, StatusCode::kCorrupt,
      "ask for I32 [96]");
}

}  // namespace
}  // namespace moepack::source_encoding_test
