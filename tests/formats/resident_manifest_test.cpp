#include "formats/pack/resident_manifest.h"

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "tests/support/number_mutation.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::resident_manifest_test {
namespace {

using test::expect_error;

void add(ResidentManifest& m, const std::string& name, WeightFormat format,
         std::vector<std::uint64_t> shape, bool weight_suffix = true) {
  ResidentTensor t;
  t.name = name;
  t.has_weight_suffix = weight_suffix;
  t.format = format;
  t.rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) t.rows *= shape[i];
  t.cols = shape.back();
  t.shape = std::move(shape);
  t.bytes = matrix_bytes(format, t.rows, t.cols).value();
  const auto take = [&m](std::uint64_t bytes) {
    const std::uint64_t at = m.data_size;
    m.data_size = align_up(at + bytes, kResidentAlignment);
    return at;
  };
  t.offsets.codes() = take(t.bytes.codes());
  if (is_affine(format)) {
    t.offsets[Component::kScales] = take(t.bytes[Component::kScales]);
    t.offsets[Component::kBiases] = take(t.bytes[Component::kBiases]);
  }
  m.tensors.push_back(t);
}

ResidentManifest sample() {
  ResidentManifest m;
  const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 64};
  const WeightFormat q3f16{.id = QFormatId::kQ3, .group_size = 32, .scale_type = DType::kF16};
  add(m, "lm_head", q4, {10, 128});
  add(m, "model.layers.0.linear_attn.A_log", {.id = QFormatId::kF32}, {4}, false);
  add(m, "model.layers.0.linear_attn.conv1d", {}, {12, 1, 4});
  add(m, "model.layers.0.mlp.gate", q3f16, {6, 96});
  add(m, "model.norm", {.id = QFormatId::kF16}, {128});
  m.conventions = {.norm = ResidentConventions::Norm::kOnePlus,
                   .v_heads = ResidentConventions::VHeads::kGrouped,
                   .a_log = ResidentConventions::ALog::kNegExp,
                   .conv1d = ResidentConventions::Conv1d::kCT1};
  m.checksum = 0xabcdef;
  m.model = "toy";
  return m;
}

void expect_same_tensors(const ResidentManifest& a, const ResidentManifest& b) {
  EXPECT_EQ(a.data_size, b.data_size);
  EXPECT_EQ(a.conventions, b.conventions);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const ResidentTensor& x = a.tensors[i];
    const ResidentTensor& y = b.tensors[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.has_weight_suffix, y.has_weight_suffix);
    EXPECT_EQ(x.format, y.format);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.rows, y.rows);
    EXPECT_EQ(x.cols, y.cols);
    EXPECT_EQ(x.bytes, y.bytes);
    EXPECT_EQ(x.offsets, y.offsets);
  }
}

Status parse(std::string_view text) {
  return parse_resident_manifest(text, "model_weights.json").status();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ResidentManifest, RoundTrips) {
  ResidentManifest m = sample();
  m.config_json = R"({"hidden_size":128,"rms_norm_eps":1e-06})";
  const std::string text = resident_manifest_text(m);
  ASSERT_OK_AND_ASSIGN(const ResidentManifest back, parse_resident_manifest(text, "f"));
  expect_same_tensors(m, back);
  EXPECT_EQ(back.checksum, m.checksum);
  EXPECT_EQ(back.model, "toy");
  EXPECT_EQ(back.config_json, m.config_json);
  EXPECT_EQ(resident_manifest_text(back), text);
}

// One entry per component, with the shapes and dtypes that safetensors and flash-moe state.
TEST(ResidentManifest, ComponentsStandUnderTheirOwnNames) {
  const std::string text = resident_manifest_text(sample());
  for (
      const char* part :
      {R"("lm_head.weight": {"offset": 0, "size": 640, "shape": [10, 16], "dtype": "U32", "format": "q4", "group_size": 64, "scale_dtype": "BF16"})",
       R"("lm_head.scales": {"offset": 640, "size": 40, "shape": [10, 2], "dtype": "BF16"})",
       R"("model.layers.0.linear_attn.A_log": {"offset": 768, "size": 16, "shape": [4], "dtype": "F32", "format": "f32"})",
       R"("model.layers.0.linear_attn.conv1d.weight": {"offset": 832, "size": 96, "shape": [12, 1, 4], "dtype": "BF16", "format": "bf16"})",
       R"("model.layers.0.mlp.gate.weight": {"offset": 960, "size": 216, "shape": [6, 9], "dtype": "U32", "format": "q3", "group_size": 32, "scale_dtype": "F16"})",
       R"("num_tensors": 9)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
  }
}

TEST(ResidentManifest, RefusesEveryTruncation) {
  std::string text = resident_manifest_text(sample());
  while (text.back() == '\n') text.pop_back();
  test::drill_truncation(text, parse);
}

TEST(ResidentManifest, EveryEditedNumberIsRefused) {
  const ResidentManifest m = sample();
  const std::string text = resident_manifest_text(m);
  test::for_each_number_edit(text, [&](const std::string& edited, std::size_t at) {
    const auto result = parse_resident_manifest(edited, "model_weights.json");
    EXPECT_FALSE(result.is_ok()) << "accepted: ..." << edited.substr(at < 60 ? 0 : at - 60, 90);
  });
}

TEST(ResidentManifest, ErrorsNameTheTensor) {
  const std::string text = resident_manifest_text(sample());
  expect_error(parse(replaced(text, "\"format_version\": 1", "\"format_version\": 9")),
               StatusCode::kUnsupported, {"format_version", "is 9"});
  expect_error(parse(replaced(text, "\"offset\": 768", "\"offset\": 704")), StatusCode::kCorrupt,
               {"A_log", "704", "overlaps"});
  expect_error(parse(replaced(text, "\"size\": 640", "\"size\": 641")), StatusCode::kCorrupt,
               {"tensors.lm_head.weight.size", "641", "640"});
  expect_error(parse(replaced(text, "\"lm_head.scales\"", "\"lm_head.scale\"")),
               StatusCode::kCorrupt, {"lm_head"});
  expect_error(parse(replaced(text, "\"format\": \"q4\"",
                              "\"format\": \"q4\", \"row_order\": \"panels16\"")),
               StatusCode::kCorrupt, {"tensors.lm_head.weight.row_order", "expert packs"});
  expect_error(parse(replaced(text, "\"format\": \"q4\"", "\"format\": \"q9\"")),
               StatusCode::kCorrupt, {"tensors.lm_head.weight.format", "q9"});
  expect_error(parse(replaced(text, "\"norm\": \"one_plus\"", "\"norm\": \"maybe\"")),
               StatusCode::kCorrupt, {"conventions.norm", "maybe"});
  expect_error(parse(replaced(text, "\"norm\": \"one_plus\", ", "")), StatusCode::kCorrupt,
               {"conventions.norm: is missing"});
  expect_error(parse(replaced(text, "\"dtype\": \"F32\"", "\"dtype\": \"BF16\"")),
               StatusCode::kCorrupt, {"A_log.dtype"});
}

TEST(ResidentManifest, ReadChecksTheDataFile) {
  const test::TempDir dir;
  const ResidentManifest m = sample();
  ASSERT_OK(write_resident_manifest(dir.path(), m));
  expect_error(read_resident_manifest(dir.path()).status(), StatusCode::kNotFound,
               {kResidentDataName});
  EXPECT_OK(write_text_file(dir / kResidentDataName, std::string(m.data_size, '\0')));
  EXPECT_OK(read_resident_manifest(dir.path()));
  std::filesystem::resize_file(dir / kResidentDataName, m.data_size + 64);
  expect_error(read_resident_manifest(dir.path()).status(), StatusCode::kCorrupt,
               {kResidentDataName, std::to_string(m.data_size)});
}

}  // namespace
}  // namespace moepack::resident_manifest_test
