// Whole checkpoints in encodings: what a conversion keeps of their experts' codes means the same
// weights as what it decodes, and so does what `quantize --from` reads.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/pack/convert.h"
#include "convert/quantize/expert_weights.h"
#include "convert/verify/verify.h"
#include "formats/base/bytes.h"
#include "formats/model_dir.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::encoding_conversion_test {
namespace {

namespace fs = std::filesystem;
using test::WriterTensor;

Status convert(const fs::path& source, const fs::path& output,
               std::optional<QFormatId> experts = std::nullopt) {
  ConvertOptions options;
  options.source = source;
  options.output = output;
  options.expert_format = experts;
  options.resident_format = QFormatId::kF32;
  options.threads = 2;
  return convert_checkpoint(options, {}).status();
}

std::vector<float> values_of(const StoredMatrix& matrix) {
  std::vector<float> values;
  BlockDecoder decoder;
  for (std::uint64_t at = 0; at < matrix.elements(); at += kDecodeBlock) {
    const auto block = decoder.decode(matrix, at, std::min(kDecodeBlock, matrix.elements() - at));
    EXPECT_OK(block);
    if (!block.is_ok()) return {};
    values.insert(values.end(), block.value().values.begin(), block.value().values.end());
  }
  return values;
}

// Compares every matrix of `some` that is not bf16 with that of `exact`; the formats it met.
std::set<std::string> expect_same_weights(const ModelConfig& config, const ExpertWeights& some,
                                          const ExpertWeights& exact) {
  std::set<std::string> formats;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (!has_experts(config.layers[layer])) continue;
    for (std::uint32_t expert = 0; expert < config.num_experts; ++expert) {
      for (Projection p : kAllProjections) {
        const StoredMatrix matrix = some.of(layer, expert, p);
        formats.insert(to_string(matrix.format));
        if (matrix.format.id == QFormatId::kBf16) continue;
        const bool is_same = values_of(matrix) == values_of(exact.of(layer, expert, p));
        EXPECT_TRUE(is_same) << "layer " << layer << ", expert " << expert << ", "
                             << projection_name(p) << ", " << to_string(matrix.format);
      }
    }
  }
  return formats;
}

// Converts in both ways and compares; the formats that keep the codes.
std::set<std::string> expect_exact(const fs::path& checkpoint, const test::TempDir& dir) {
  EXPECT_OK(convert(checkpoint, dir / "decoded", QFormatId::kF32));
  EXPECT_OK(convert(checkpoint, dir / "kept"));
  const auto parsed = read_model_config(dir / "decoded" / "config.json");
  EXPECT_OK(parsed);
  if (!parsed.is_ok()) return {};
  const ModelConfig& config = parsed.value().model;
  const auto exact = ExpertWeights::open(dir / "decoded", config, kDefaultPackName);
  const auto kept = ExpertWeights::open(dir / "kept", config, kDefaultPackName);
  const auto source = ExpertWeights::open(dir / "kept", config, checkpoint.string());
  EXPECT_OK(exact);
  EXPECT_OK(kept);
  EXPECT_OK(source);
  if (!exact.is_ok() || !kept.is_ok() || !source.is_ok()) return {};
  expect_same_weights(config, source.value(), exact.value());
  for (const char* model : {"decoded", "kept"}) {
    VerifyOptions options;
    options.path = dir / model;
    options.against = checkpoint;
    const auto report = verify_model(options, {});
    EXPECT_OK(report);
    if (!report.is_ok()) continue;
    EXPECT_EQ(report.value().num_differences, 0U) << model;
  }
  return expect_same_weights(config, kept.value(), exact.value());
}

TEST(EncodingConversion, OfPublishedEncodings) {
  MOE_REQUIRE_MODEL(root, "encodings");
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "config.json")) folders.insert(entry.path());
  }
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    if (name.starts_with("gguf-")) continue;
    SCOPED_TRACE(name);
    const test::TempDir dir;
    if (!read_model_config(folder / "config.json").is_ok()) {
      std::printf("%-26s SKIPPED: its family is not read\n", name.c_str());
      continue;
    }
    std::string text;
    for (const std::string& format : expect_exact(folder, dir)) text += " " + format;
    std::printf("%-26s%s\n", name.c_str(), text.c_str());
  }
}

// ---- blocks of our own, in a model made here ----------------------------------------------------

template <typename T>
void append(std::string& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  store_le(bytes.data() + at, value);
}

using Encode = void (*)(const WriterTensor& plain, std::mt19937& random,
                        std::vector<WriterTensor>& out);

std::string bytes_below(std::uint64_t count, std::uint32_t end, std::mt19937& random) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % end);
  return bytes;
}

void encode_fp8(const WriterTensor& plain, std::mt19937& random, std::vector<WriterTensor>& out) {
  const std::uint64_t rows = (plain.shape[0] + 127) / 128;
  const std::uint64_t cols = (plain.shape[1] + 127) / 128;
  WriterTensor scales{plain.name + "_scale_inv", DType::kF32, {rows, cols}, {}};
  for (std::uint64_t i = 0; i < rows * cols; ++i) {
    append(scales.bytes, 1e-3F * static_cast<float>(1 + random() % 97));
  }
  out.push_back({plain.name, DType::kF8E4M3, plain.shape,
                 bytes_below(plain.shape[0] * plain.shape[1], 0x7f, random)});
  out.push_back(scales);
}

void encode_nvfp4(const WriterTensor& plain, std::mt19937& random, std::vector<WriterTensor>& out) {
  const std::uint64_t rows = plain.shape[0];
  const std::uint64_t cols = plain.shape[1];
  WriterTensor factor{plain.name + "_scale_2", DType::kF32, {}, {}};
  append(factor.bytes, 1e-4F * static_cast<float>(1 + random() % 97));
  out.push_back(
      {plain.name, DType::kU8, {rows, cols / 2}, bytes_below(rows * cols / 2, 256, random)});
  out.push_back({plain.name + "_scale",
                 DType::kF8E4M3,
                 {rows, cols / 16},
                 bytes_below(rows * cols / 16, 0x7f, random)});
  out.push_back(factor);
}

void encode_mxfp8(const WriterTensor& plain, std::mt19937& random, std::vector<WriterTensor>& out) {
  const std::uint64_t rows = plain.shape[0];
  const std::uint64_t cols = plain.shape[1];
  const std::string module = plain.name.substr(0, plain.name.size() - 7);
  std::string scales = bytes_below(rows * cols / 32, 16, random);
  for (char& scale : scales) scale = static_cast<char>(scale + 110);
  out.push_back(
      {plain.name, DType::kU32, {rows, cols / 4}, bytes_below(rows * cols, 0x7f, random)});
  out.push_back({module + ".scales", DType::kU8, {rows, cols / 32}, scales});
}

struct OwnCase {
  const char* stored;
  Encode encode;
  const char* config;  // the quantization of config.json; quotes are '
  const char* own;     // hf_quant_config.json
};

constexpr OwnCase kOwnCases[] = {
    {"f8_e4m3", encode_fp8,
     "{'quantization_config':{'quant_method':'fp8','weight_block_size':[128,128]}}", ""},
    {"nvfp4_scaled", encode_nvfp4, "{}", "{'quantization':{'quant_algo':'NVFP4'}}"},
    {"mxfp8", encode_mxfp8, "{'quantization':{'mode':'mxfp8'}}", ""},
};

nlohmann::json json_of(std::string text) {
  std::replace(text.begin(), text.end(), '\'', '"');
  return nlohmann::json::parse(text);
}

TEST(EncodingConversion, OwnBlocksKeepTheCodes) {
  for (const OwnCase& c : kOwnCases) {
    SCOPED_TRACE(c.stored);
    test::TinyModelOptions tiny;
    tiny.hidden_size = 256;
    tiny.expert_width = 128;
    std::mt19937 random(3);
    std::vector<WriterTensor> tensors;
    for (const WriterTensor& tensor : test::tiny_model_tensors(tiny)) {
      if (tensor.name.find(".experts.") == std::string::npos) {
        tensors.push_back(tensor);
      } else {
        c.encode(tensor, random, tensors);
      }
    }
    const test::TempDir dir;
    fs::create_directory(dir / "checkpoint");
    nlohmann::ordered_json config = test::tiny_model_config(tiny);
    const nlohmann::json quantization = json_of(c.config);
    for (const auto& [key, value] : quantization.items()) config[key] = value;
    test::write_file(dir / "checkpoint" / "config.json", config.dump());
    if (*c.own != '\0') {
      test::write_file(dir / "checkpoint" / "hf_quant_config.json", json_of(c.own).dump());
    }
    test::write_safetensors(dir / "checkpoint" / "model.safetensors", tensors);
    EXPECT_EQ(expect_exact(dir / "checkpoint", dir), std::set<std::string>{c.stored});
  }
}

}  // namespace
}  // namespace moepack::encoding_conversion_test
