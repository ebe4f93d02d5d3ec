#include "formats/pack/prediction_manifest.h"

#include <gtest/gtest.h>

#include "formats/base/file.h"
#include "tests/support/number_mutation.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::prediction_manifest_test {
namespace {

using test::expect_error;

Result<PredictionManifest> parse(std::string_view text) {
  return parse_prediction_manifest(text, "prediction.json");
}

void add(PredictionManifest& manifest, std::string name, std::string type,
         std::vector<std::uint64_t> shape) {
  const std::uint64_t sum = 0x1234 + manifest.tensors.size();
  ASSERT_TRUE(append_prediction({.name = std::move(name),
                                 .type = std::move(type),
                                 .shape = std::move(shape),
                                 .checksum = sum},
                                manifest));
}

PredictionManifest sample() {
  PredictionManifest manifest;
  manifest.source = "toy";
  manifest.fingerprint = 77;
  manifest.quantization = "fp8";
  add(manifest, "mtp.a", "F8_E4M3", {3, 7});
  add(manifest, "mtp.b", "F32", {});
  add(manifest, "mtp.c", "BF16", {0, 5});
  add(manifest, "mtp.d", "BF16", {40});
  return manifest;
}

PredictionManifest gguf_sample() {
  PredictionManifest manifest;
  manifest.container = TensorContainer::kGguf;
  add(manifest, "blk.4.ffn_up_exps.weight", "Q4_K", {2, 3, 512});
  add(manifest, "blk.4.nextn.enorm.weight", "F32", {96});
  return manifest;
}

TEST(PredictionManifest, RoundTrips) {
  for (const PredictionManifest& manifest : {sample(), gguf_sample()}) {
    const std::string text = prediction_manifest_text(manifest);
    ASSERT_OK_AND_ASSIGN(const PredictionManifest back, parse(text));
    EXPECT_EQ(prediction_manifest_text(back), text);
  }
  const PredictionManifest manifest = sample();
  EXPECT_EQ(manifest.tensors[1].offset, 64U);
  EXPECT_EQ(manifest.tensors[1].size, 4U);
  EXPECT_EQ(manifest.tensors[2].size, 0U);
  EXPECT_EQ(manifest.tensors[3].offset, 128U);
  EXPECT_EQ(manifest.data_size, 128U + 80U);
  EXPECT_EQ(manifest.find("mtp.d")->size, 80U);
  EXPECT_EQ(manifest.find("mtp.e"), nullptr);
  // Blocks of 256 values in 144 bytes, and their format for whoever decodes them.
  EXPECT_EQ(gguf_sample().tensors[0].size, 2U * 3 * 2 * 144);
  EXPECT_EQ(prediction_type(TensorContainer::kGguf, "Q4_K")->format, QFormatId::kQ4K);
  EXPECT_EQ(prediction_type(TensorContainer::kSafetensors, "F8_E4M3")->format, std::nullopt);
}

TEST(PredictionManifest, SizesThatDoNotExist) {
  const auto bytes = [](std::string_view type, std::vector<std::uint64_t> shape) {
    return prediction_bytes(TensorContainer::kSafetensors, type, shape);
  };
  EXPECT_EQ(bytes("F4", {3, 4}), 6U);
  EXPECT_EQ(bytes("F4", {3}), std::nullopt);  // half a byte
  EXPECT_EQ(bytes("Q4_K", {256}), std::nullopt);
  EXPECT_EQ(bytes("BF16", {std::uint64_t{1} << 62}), std::nullopt);
  EXPECT_EQ(bytes("U8", {std::uint64_t{1} << 40, std::uint64_t{1} << 40, 0}), std::nullopt);
  EXPECT_EQ(prediction_bytes(TensorContainer::kGguf, "Q4_K", std::vector<std::uint64_t>{2, 128}),
            std::nullopt);
}

TEST(PredictionManifest, RefusesEveryTruncation) {
  std::string text = prediction_manifest_text(sample());
  while (text.back() == '\n') text.pop_back();
  test::drill_truncation(text, [](std::string_view cut) { return parse(cut).status(); });
}

TEST(PredictionManifest, EveryEditedNumberIsRefused) {
  const std::string text = prediction_manifest_text(sample());
  test::for_each_number_edit(text, [&](const std::string& edited, std::size_t at) {
    EXPECT_FALSE(parse(edited).is_ok()) << "accepted: ..." << edited.substr(at - 40, 90);
  });
}

// Every byte of the list: names, types, shapes and checksums, without the data and the source.
TEST(PredictionManifest, EveryEditedByteOfTheListIsRefused) {
  const std::string text = prediction_manifest_text(sample());
  const std::size_t begin = text.find("\"checksum\"");
  for (std::size_t at = begin; at < text.size(); ++at) {
    for (const unsigned bit : {1U, 4U, 32U}) {
      std::string edited = text;
      edited[at] = static_cast<char>(static_cast<unsigned char>(edited[at]) ^ bit);
      const auto back = parse(edited);
      // White space for white space, and hex digits in the other case are not taken.
      if (!back.is_ok()) continue;
      EXPECT_EQ(prediction_manifest_text(back.value()), text)
          << at << ": " << edited.substr(at, 20);
    }
  }
}

TEST(PredictionManifest, ErrorsNameTheKey) {
  const std::string text = prediction_manifest_text(sample());
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse(out.replace(at, from.size(), to)).status();
  };
  expect_error(edited("\"format_version\": 1", "\"format_version\": 2"), StatusCode::kUnsupported,
               {"prediction.json", "format_version", "is 2"});
  expect_error(edited("\"safetensors\"", "\"pickle\""), StatusCode::kCorrupt,
               {"container", "pickle"});
  expect_error(edited("\"F8_E4M3\"", "\"F8_E4M4\""), StatusCode::kCorrupt,
               {"mtp.a", "type", "F8_E4M4", "safetensors"});
  expect_error(edited("\"size\": 21", "\"size\": 22"), StatusCode::kCorrupt, {"mtp.a", "size"});
  expect_error(edited("mtp.b", "mtp.bb"), StatusCode::kCorrupt, {"checksum", "changed"});
  expect_error(edited("\"num_tensors\": 4", "\"num_tensors\": 5"), StatusCode::kCorrupt,
               {"num_tensors"});
  expect_error(edited("\"data_size\"", "\"wings\": 2, \"data_size\""), StatusCode::kUnsupported,
               {"wings"});
}

TEST(PredictionManifest, TheDataFileHasTheSizeThatIsStated) {
  const test::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto none, read_prediction_manifest(dir.path()));
  EXPECT_FALSE(none.has_value());
  const PredictionManifest manifest = sample();
  ASSERT_TRUE(write_prediction_manifest(dir.path(), manifest).is_ok());
  EXPECT_FALSE(read_prediction_manifest(dir.path()).is_ok());  // no data
  ASSERT_TRUE(write_text_file(dir.path() / kPredictionDataName, std::string(208, 'x')).is_ok());
  ASSERT_OK_AND_ASSIGN(const auto read, read_prediction_manifest(dir.path()));
  EXPECT_EQ(read->tensors.size(), 4U);
  ASSERT_TRUE(write_text_file(dir.path() / kPredictionDataName, std::string(207, 'x')).is_ok());
  expect_error(read_prediction_manifest(dir.path()).status(), StatusCode::kCorrupt,
               {"prediction.bin", "207", "208"});
}

}  // namespace
}  // namespace moepack::prediction_manifest_test
