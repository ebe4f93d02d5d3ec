#include "convert/pack/convert.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "formats/base/checksum.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"
#include "formats/weights/qcodec.h"
#include "quant/affine.h"
#include "tests/convert/model_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::convert_test {
namespace {

using test::TempDir;
using test::TinyLayout;
using test::TinyModelOptions;

constexpr std::array<const char*, 3> kProjectionNames{"gate_proj", "up_proj", "down_proj"};

std::filesystem::path make_source(const TempDir& dir, const TinyModelOptions& options,
                                  const std::string& name = "toy") {
  test::write_tiny_model(dir / name, options);
  return dir / name;
}

TinyModelOptions layout(TinyLayout kind) {
  TinyModelOptions options;
  options.layout = kind;
  return options;
}

ConvertReport convert(const std::filesystem::path& source, const std::filesystem::path& output,
                      ConvertOptions options = {}) {
  options.source = source;
  options.output = output;
  if (options.threads == 0) options.threads = 2;
  const auto report = convert_checkpoint(options, {});
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? report.value() : ConvertReport{};
}

ConvertOptions affine_options(QFormatId experts, std::uint32_t group = 32) {
  ConvertOptions options;
  options.expert_format = experts;
  options.group_size = group;
  return options;
}

// The components of every expert, sliced from a stacked MLX checkpoint in the order of the engines'
// records: gate | up | down, each weight | scales | biases.
std::string mlx_record(const std::map<std::string, test::RawTensor>& source, std::uint32_t layer,
                       std::uint32_t expert, std::uint32_t num_experts) {
  std::string record;
  for (const char* projection : kProjectionNames) {
    for (const char* part : {".weight", ".scales", ".biases"}) {
      const std::string name = "language_model.model.layers." + std::to_string(layer) +
                               ".mlp.switch_mlp." + projection + part;
      record += test::slice(source.at(name), expert, num_experts);
    }
  }
  return record;
}

void expect_mlx_records(const std::filesystem::path& source_dir,
                        const std::filesystem::path& model) {
  const auto source = test::raw_tensors(source_dir);
  ASSERT_OK_AND_ASSIGN(const PackManifest pack, read_pack_manifest(model / "packed_experts"));
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    const std::string file = test::read_file(model / test::layer_path(l));
    std::string expected;
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      std::string record = mlx_record(source, l, e, pack.num_experts);
      EXPECT_EQ(checksum(std::as_bytes(std::span(record))), pack.layers[l].experts[e].checksum);
      EXPECT_EQ(expected.size(), pack.layers[l].experts[e].offset);
      record.resize(align_up(record.size(), pack.page_size), '\0');
      expected += record;
    }
    EXPECT_EQ(file == expected, true) << "layer " << l;
  }
}

TEST(Convert, DemoRecordsAreTheSourceBytesInTheEnginesOrder) {
  const TempDir dir;
  convert(test::demo_mlx_model(), dir / "model");
  expect_mlx_records(test::demo_mlx_model(), dir / "model");
}

// Unaligned data sections, as MLX writes them, and every code width. Records are no multiple of the
// page here, and the hidden size is not the expert width.
TEST(Convert, MlxRecordsAtOddOffsetsInEveryWidth) {
  for (std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
    const TempDir dir;
    TinyModelOptions options = layout(TinyLayout::kMlx);
    options.bits = bits;
    options.scale_type = bits == 5 ? DType::kF16 : DType::kBf16;
    options.writer.data_start_mod8 = 1;
    options.writer.sorted = false;
    const auto source = make_source(dir, options);
    convert(source, dir / "model");
    expect_mlx_records(source, dir / "model");
    EXPECT_EQ(test::ResidentFile(dir / "model").bytes("model.layers.1.mlp.gate.weight"),
              test::raw_tensors(source).at("language_model.model.layers.1.mlp.gate.weight").bytes);
  }
}

TEST(Convert, PerExpertAndFusedLayoutsGiveTheSameBytes) {
  const TempDir dir;
  TinyModelOptions fused = layout(TinyLayout::kFusedWrapper);
  fused.shards = 3;
  convert(make_source(dir, layout(TinyLayout::kPerExpert), "a"), dir / "model_a");
  const ConvertReport report = convert(make_source(dir, fused, "b"), dir / "model_b");
  const auto a = test::directory_contents(dir / "model_a");
  const auto b = test::directory_contents(dir / "model_b");
  for (const char* name :
       {"packed_experts/layer_00.bin", "packed_experts/layer_03.bin", "model_weights.bin"}) {
    EXPECT_EQ(a.at(name) == b.at(name), true) << name;
  }
  // What was left out is named, in the report and in the pack.
  const std::vector<std::string> skipped{"model.visual.blocks.0.attn.qkv.weight",
                                         "model.visual.patch_embed.proj.weight",
                                         "mtp.fc.weight",
                                         "mtp.layers.0.mlp.experts.down_proj",
                                         "mtp.layers.0.mlp.experts.gate_up_proj",
                                         "mtp.norm.weight"};
  EXPECT_EQ(report.skipped_tensors, skipped);
  EXPECT_EQ(test::read_json(dir / "model_b/packed_experts/layout.json")
                .at("report")
                .at("skipped_tensors")
                .get<std::vector<std::string>>(),
            skipped);
}

// The record of one expert of the per-expert layout, in its own format.
TEST(Convert, PlainRecordsAreTheSourceBytes) {
  const TempDir dir;
  const auto source_dir = make_source(dir, layout(TinyLayout::kPerExpert));
  convert(source_dir, dir / "model");
  const auto source = test::raw_tensors(source_dir);
  ASSERT_OK_AND_ASSIGN(const PackManifest pack,
                       read_pack_manifest(dir / "model" / "packed_experts"));
  EXPECT_EQ(pack.source.method, "copy");
  const std::string file = test::read_file(dir / "model" / test::layer_path(2));
  for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
    std::string record;
    for (const char* projection : kProjectionNames) {
      record +=
          source
              .at("model.layers.2.mlp.experts." + std::to_string(e) + "." + projection + ".weight")
              .bytes;
    }
    EXPECT_EQ(file.substr(pack.layers[2].experts[e].offset, record.size()) == record, true) << e;
  }
}

TEST(Convert, TheSameBytesForAnyNumberOfThreads) {
  const TempDir dir;
  const auto source = make_source(dir, layout(TinyLayout::kFusedWrapper));
  ConvertOptions rounded = affine_options(QFormatId::kQ3);
  rounded.resident_format = QFormatId::kQ6;
  for (const ConvertOptions& base : {ConvertOptions{}, rounded}) {
    std::map<std::string, std::string> first;
    for (unsigned threads : {1U, 2U, 7U}) {
      ConvertOptions options = base;
      options.threads = threads;
      const auto output = dir / ("model" + std::to_string(threads));
      convert(source, output, options);
      const auto files = test::directory_contents(output);
      if (first.empty()) first = files;
      EXPECT_EQ(files == first, true) << threads << " threads";
      std::filesystem::remove_all(output);
    }
    EXPECT_EQ(first.size(), 4 + 1 + 2 + 5U) << "layers, their manifest, residents, companions";
  }
}

TEST(Convert, PageSizesPadAndNothingElse) {
  const TempDir dir;
  const auto source = make_source(dir, layout(TinyLayout::kMlx));
  for (std::uint64_t page : {1U, 4096U, 16384U}) {
    ConvertOptions options;
    options.page_size = page;
    const auto output = dir / ("page" + std::to_string(page));
    const ConvertReport report = convert(source, output, options);
    expect_mlx_records(source, output);
    EXPECT_NE(report.expert_size % 4096, 0U) << "the records must be no multiple of the page";
    EXPECT_EQ(report.expert_stride, align_up(report.expert_size, page));
    EXPECT_EQ(report.expert_bytes, 4 * 6 * report.expert_stride);
  }
}

// Rounding the float checkpoint gives the bytes of the rounded checkpoint, router at 8 bits
// included.
TEST(Convert, RoundingIsMlxs) {
  const TempDir dir;
  ConvertOptions options = affine_options(QFormatId::kQ4);
  options.resident_format = QFormatId::kQ4;
  const ConvertReport report =
      convert(make_source(dir, layout(TinyLayout::kFusedWrapper), "float"), dir / "ours", options);
  EXPECT_TRUE(report.notes.empty());
  convert(make_source(dir, layout(TinyLayout::kMlx), "mlx"), dir / "theirs");
  for (std::uint32_t l = 0; l < 4; ++l) {
    EXPECT_EQ(test::read_file(dir / "ours" / test::layer_path(l)) ==
                  test::read_file(dir / "theirs" / test::layer_path(l)),
              true);
  }
  const test::ResidentFile ours(dir / "ours");
  const test::ResidentFile theirs(dir / "theirs");
  std::size_t quantized = 0;
  for (const auto& [name, entry] : theirs.manifest().at("tensors").items()) {
    if (!name.ends_with(".scales")) continue;
    const std::string module = name.substr(0, name.size() - 7);
    for (const char* part : {".weight", ".scales", ".biases"}) {
      EXPECT_EQ(ours.bytes(module + part) == theirs.bytes(module + part), true) << module << part;
    }
    ++quantized;
  }
  EXPECT_EQ(quantized, 2 + 4 * 5 + 3 * 5 + 4U);
}

// Matrices that are read and written in several blocks, by several threads.
TEST(Convert, LargeTensorsAreSplitWithoutSeams) {
  const TempDir dir;
  TinyModelOptions tiny = layout(TinyLayout::kMlx);
  tiny.vocab_size = 50021;  // 9.6 MB of BF16, and a prime number of rows
  tiny.num_layers = 2;
  tiny.full_attention_interval = 2;
  const auto mlx = test::raw_tensors(make_source(dir, tiny, "mlx"));
  tiny.layout = TinyLayout::kPerExpert;
  const auto source = make_source(dir, tiny, "float");
  ConvertOptions options;
  options.resident_format = QFormatId::kQ4;
  options.group_size = 32;
  options.threads = 3;
  convert(source, dir / "rounded", options);
  convert(source, dir / "copied");
  const test::ResidentFile rounded(dir / "rounded");
  const test::ResidentFile copied(dir / "copied");
  const auto raw = test::raw_tensors(source);
  for (const std::string module : {"lm_head", "model.embed_tokens"}) {
    EXPECT_EQ(copied.bytes(module + ".weight") == raw.at(module + ".weight").bytes, true) << module;
    for (const char* part : {".weight", ".scales", ".biases"}) {
      EXPECT_EQ(rounded.bytes(module + part) == mlx.at("language_model." + module + part).bytes,
                true)
          << module << part;
    }
  }
}

TEST(Convert, NormsConvolutionsAndDecayStayAndRoutersGetEightBits) {
  const TempDir dir;
  ConvertOptions options;
  options.resident_format = QFormatId::kQ4;
  options.group_size = 32;
  const auto source = make_source(dir, layout(TinyLayout::kPerExpert));
  convert(source, dir / "model", options);
  ASSERT_OK_AND_ASSIGN(const ResidentManifest m, read_resident_manifest(dir / "model"));
  EXPECT_EQ(m.conventions.norm, ResidentConventions::Norm::kOnePlus);
  EXPECT_EQ(m.conventions.conv1d, ResidentConventions::Conv1d::kC1T);
  const auto raw = test::raw_tensors(source);
  const test::ResidentFile stored(dir / "model");
  for (const ResidentTensor& t : m.tensors) {
    const bool stays = t.name.ends_with("norm") || t.name.ends_with("conv1d") ||
                       t.name.ends_with("A_log") || t.name.ends_with("dt_bias");
    const bool chooses = t.name.ends_with("mlp.gate") || t.name.ends_with("shared_expert_gate");
    EXPECT_EQ(to_string(t.format), stays ? "bf16" : (chooses ? "q8 g32" : "q4 g32")) << t.name;
    if (!stays) continue;
    const std::string name = t.has_weight_suffix ? t.name + ".weight" : t.name;
    EXPECT_EQ(stored.bytes(name) == raw.at(name).bytes, true) << name;
  }
}

// From codes back to floats: what decode_row gives, rounded once; the rule of norms holds here too.
TEST(Convert, RoundedResidentsCanBecomeBf16) {
  const TempDir dir;
  TinyModelOptions tiny = layout(TinyLayout::kMlx);
  tiny.state_in_f32 = true;
  const auto source = make_source(dir, tiny);
  ConvertOptions options;
  options.resident_format = QFormatId::kBf16;
  convert(source, dir / "model", options);
  convert(source, dir / "copy");
  ASSERT_OK_AND_ASSIGN(const ResidentManifest m, read_resident_manifest(dir / "model"));
  ASSERT_OK_AND_ASSIGN(const ResidentManifest copy, read_resident_manifest(dir / "copy"));
  const std::string data = test::read_file(dir / "model/model_weights.bin");
  const std::string codes = test::read_file(dir / "copy/model_weights.bin");
  const std::byte* base = std::as_bytes(std::span(codes)).data();
  std::size_t decoded = 0;
  for (std::size_t i = 0; i < m.tensors.size(); ++i) {
    const ResidentTensor& t = m.tensors[i];
    const ResidentTensor& c = copy.tensors[i];
    ASSERT_EQ(t.name, c.name);
    EXPECT_EQ(to_string(t.format),
              t.name.ends_with("A_log") || t.name.ends_with("dt_bias") ? "f32" : "bf16");
    if (!is_affine(c.format)) continue;
    ++decoded;
    const QMatrixView view{.format = c.format,
                           .rows = c.rows,
                           .cols = c.cols,
                           .data = affine_components<const std::byte*>(
                               base + c.offsets.codes(), base + c.offsets[Component::kScales],
                               base + c.offsets[Component::kBiases])};
    std::vector<float> row(c.cols);
    decode_row(view, c.rows - 1, row);
    const char* last = data.data() + t.offsets.codes() + 2 * (t.rows - 1) * t.cols;
    for (std::size_t j = 0; j < row.size(); ++j) {
      ASSERT_EQ(load_le<std::uint16_t>(last + 2 * j), f32_to_bf16(row[j])) << t.name;
    }
  }
  EXPECT_EQ(decoded, 2 + 4 * 5 + 3 * 5 + 4U);
}

TEST(Convert, MlxConventionsAreDetected) {
  const TempDir dir;
  TinyModelOptions options = layout(TinyLayout::kMlx);
  options.state_in_f32 = true;
  convert(make_source(dir, options), dir / "model");
  ASSERT_OK_AND_ASSIGN(const ResidentManifest m, read_resident_manifest(dir / "model"));
  EXPECT_EQ(m.conventions.norm, ResidentConventions::Norm::kPlain);
  EXPECT_EQ(m.conventions.conv1d, ResidentConventions::Conv1d::kCT1);
  const auto entry = test::read_json(dir / "model/model_weights.json").at("tensors");
  EXPECT_EQ(entry.at("model.layers.0.linear_attn.conv1d.weight").at("shape"),
            nlohmann::json({224, 4, 1}));
  EXPECT_EQ(entry.at("model.layers.0.linear_attn.A_log").at("dtype"), "F32");
}

// All widths and groups, decoded by the definition and held against the floats they came from:
// MLX's rule moves the grid so that the larger edge is exact, which cuts at most one step off the
// other; storing scale and bias in bf16 costs a little more.
TEST(Convert, EveryWidthAndGroupStaysWithinAStep) {
  const TempDir dir;
  TinyModelOptions tiny = layout(TinyLayout::kPerExpert);
  tiny.hidden_size = 384;
  tiny.expert_width = 256;
  tiny.num_layers = 2;
  tiny.full_attention_interval = 2;
  const auto source_dir = make_source(dir, tiny);
  const auto source = test::raw_tensors(source_dir);
  for (QFormatId id : {QFormatId::kQ2, QFormatId::kQ3, QFormatId::kQ4, QFormatId::kQ5,
                       QFormatId::kQ6, QFormatId::kQ8}) {
    for (std::uint32_t group : {32U, 64U, 128U}) {
      const auto output = dir / "model";
      convert(source_dir, output, affine_options(id, group));
      ASSERT_OK_AND_ASSIGN(const PackManifest pack, read_pack_manifest(output / "packed_experts"));
      EXPECT_EQ(pack.source.method, "mlx-affine");
      const std::string file = test::read_file(output / test::layer_path(1));
      const ExpertLayout& record = pack.layout_of(1, 5);
      EXPECT_EQ(record.of(Projection::kDown).format, (WeightFormat{.id = id, .group_size = group}));
      const QMatrixView down =
          record.view(Projection::kDown,
                      std::as_bytes(std::span(file)).data() + pack.layers[1].experts[5].offset);
      const std::string& floats = source.at("model.layers.1.mlp.experts.5.down_proj.weight").bytes;
      std::vector<float> decoded(down.cols);
      const double steps = std::exp2(qformat_info(id).bits) - 1;
      for (std::uint64_t r = 0; r < down.rows; ++r) {
        decode_row(down, r, decoded);
        for (std::uint64_t g = 0; g < down.cols; g += group) {
          float low = 0;
          float high = 0;
          double worst = 0;
          for (std::uint64_t c = g; c < g + group; ++c) {
            const float w =
                bf16_to_f32(load_le<std::uint16_t>(floats.data() + 2 * (r * down.cols + c)));
            low = std::min(low, w);
            high = std::max(high, w);
            worst = std::max(worst, std::fabs(static_cast<double>(w) - decoded[c]));
          }
          EXPECT_LE(worst, (high - low) * (1 / steps + 1.0 / 128));
        }
      }
      std::filesystem::remove_all(output);
    }
  }
}

// Affine experts to another affine format: decoded, then rounded; the report says so.
TEST(Convert, RoundedExpertsCanBeRoundedAgainAndTheReportSaysSo) {
  const TempDir dir;
  TinyModelOptions tiny = layout(TinyLayout::kMlx);
  tiny.bits = 8;
  const auto source = make_source(dir, tiny);
  convert(source, dir / "eight");
  const ConvertReport report = convert(source, dir / "three", affine_options(QFormatId::kQ3));
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_NE(report.notes[0].find("q8 g32 to q3 g32"), std::string::npos) << report.notes[0];
  const ConvertReport same = convert(source, dir / "same", affine_options(QFormatId::kQ8));
  EXPECT_TRUE(same.notes.empty());
  EXPECT_EQ(test::read_file(dir / "eight" / test::layer_path(0)) ==
                test::read_file(dir / "same" / test::layer_path(0)),
            true);

  ASSERT_OK_AND_ASSIGN(const PackManifest from, read_pack_manifest(dir / "eight/packed_experts"));
  ASSERT_OK_AND_ASSIGN(const PackManifest to, read_pack_manifest(dir / "three/packed_experts"));
  const std::string eight = test::read_file(dir / "eight" / test::layer_path(3));
  const std::string three = test::read_file(dir / "three" / test::layer_path(3));
  const auto view = [](const PackManifest& pack, const std::string& file) {
    return pack.layout_of(3, 2).view(
        Projection::kUp, std::as_bytes(std::span(file)).data() + pack.layers[3].experts[2].offset);
  };
  const QMatrixView old_up = view(from, eight);
  const QMatrixView new_up = view(to, three);
  const MatrixBytes row = matrix_bytes(new_up.format, 1, new_up.cols).value();
  std::vector<float> values(old_up.cols);
  for (std::uint64_t r = 0; r < old_up.rows; ++r) {
    decode_row(old_up, r, values);
    std::vector<std::byte> codes(row.codes());
    std::vector<std::byte> scales(row[Component::kScales]);
    std::vector<std::byte> biases(row[Component::kBiases]);
    encode_affine_row(new_up.format, values, {codes, scales, biases});
    EXPECT_EQ(std::equal(codes.begin(), codes.end(), new_up.codes() + r * row.codes()), true);
    EXPECT_EQ(
        std::equal(scales.begin(), scales.end(), new_up.scales() + r * row[Component::kScales]),
        true);
    EXPECT_EQ(
        std::equal(biases.begin(), biases.end(), new_up.biases() + r * row[Component::kBiases]),
        true);
  }
}

// Rewrites a text checkpoint's expert matrices in another float type.
void retype_experts(const std::filesystem::path& directory, DType dtype) {
  TinyModelOptions options = layout(TinyLayout::kPerExpert);
  auto tensors = test::tiny_model_tensors(options);
  for (test::WriterTensor& t : tensors) {
    if (t.name.find(".mlp.experts.") == std::string::npos) continue;
    std::string bytes(t.bytes.size() / 2 * dtype_bits(dtype) / 8, '\0');
    for (std::size_t i = 0; i < t.bytes.size() / 2; ++i) {
      // A third of a bf16 step is added, so that going back to bf16 has something to round.
      const float w = bf16_to_f32(load_le<std::uint16_t>(t.bytes.data() + 2 * i)) * 1.0013F;
      if (dtype == DType::kF32) {
        store_le(bytes.data() + 4 * i, w);
      } else {
        store_le(bytes.data() + 2 * i, f32_to_f16(w));
      }
    }
    t.dtype = dtype;
    t.bytes = std::move(bytes);
  }
  test::write_safetensors(directory / "model.safetensors", tensors);
}

TEST(Convert, OtherFloatsAreCopiedOrRounded) {
  for (DType dtype : {DType::kF32, DType::kF16}) {
    const TempDir dir;
    const auto source = make_source(dir, layout(TinyLayout::kPerExpert));
    retype_experts(source, dtype);
    const auto raw = test::raw_tensors(source);
    const std::string& gate = raw.at("model.layers.0.mlp.experts.0.gate_proj.weight").bytes;

    convert(source, dir / "copy");
    EXPECT_EQ(test::read_file(dir / "copy" / test::layer_path(0)).substr(0, gate.size()) == gate,
              true);

    ConvertOptions to_bf16;
    to_bf16.expert_format = QFormatId::kBf16;
    convert(source, dir / "bf16", to_bf16);
    ASSERT_OK_AND_ASSIGN(const PackManifest pack, read_pack_manifest(dir / "bf16/packed_experts"));
    EXPECT_EQ(pack.source.method, "bf16");
    const std::string file = test::read_file(dir / "bf16" / test::layer_path(0));
    const std::size_t width = dtype_bits(dtype) / 8;
    for (std::size_t i = 0; i < gate.size() / width; ++i) {
      const float w = load_plain_float(dtype, gate.data() + i * width);
      ASSERT_EQ(load_le<std::uint16_t>(file.data() + 2 * i), f32_to_bf16(w)) << i;
    }

    // MLX stores scales in the type of the weights; F32 scales have no format here.
    convert(source, dir / "q4", affine_options(QFormatId::kQ4));
    ASSERT_OK_AND_ASSIGN(const PackManifest q4, read_pack_manifest(dir / "q4/packed_experts"));
    EXPECT_EQ(q4.layout_of(0, 0).of(Projection::kGate).format.scale_type,
              dtype == DType::kF16 ? DType::kF16 : DType::kBf16);
  }
}

TEST(Convert, GroupsThatFitNoExpertAreRefusedWithThoseThatDo) {
  const TempDir dir;
  const auto source = make_source(dir, layout(TinyLayout::kPerExpert));
  ConvertOptions options = affine_options(QFormatId::kQ4, 64);
  options.source = source;
  options.output = dir / "model";
  test::expect_error(convert_checkpoint(options, {}).status(), StatusCode::kInvalidArgument,
                     {"model.layers.0.mlp.experts.0.gate_proj.weight", "96", "q4 g64",
                      "that fit all experts: 32"});
  EXPECT_FALSE(std::filesystem::exists(dir / "model"));
}

TEST(Convert, ResidentsWithoutAFittingGroupStayAndAreReported) {
  const TempDir dir;
  ConvertOptions options;
  options.resident_format = QFormatId::kQ4;
  options.group_size = 64;
  const ConvertReport report =
      convert(make_source(dir, layout(TinyLayout::kPerExpert)), dir / "model", options);
  const auto kept = [&](const std::string& name) {
    return std::find(report.kept_tensors.begin(), report.kept_tensors.end(), name) !=
           report.kept_tensors.end();
  };
  EXPECT_TRUE(kept("lm_head"));                              // 96 inputs
  EXPECT_TRUE(kept("model.layers.0.linear_attn.out_proj"));  // 160 inputs
  EXPECT_FALSE(kept("model.layers.3.self_attn.o_proj"));     // 192 inputs
  EXPECT_FALSE(kept("model.norm"));
  ASSERT_OK_AND_ASSIGN(const ResidentManifest m, read_resident_manifest(dir / "model"));
  for (const ResidentTensor& t : m.tensors) {
    EXPECT_EQ(to_string(t.format), t.name == "model.layers.3.self_attn.o_proj" ? "q4 g64" : "bf16");
  }
}

TEST(Convert, ManifestsDescribeTheModel) {
  const TempDir dir;
  const auto source = make_source(dir, layout(TinyLayout::kPerExpert), "my-model");
  convert(source, dir / "model");
  const auto layout_json = test::read_json(dir / "model/packed_experts/layout.json");
  EXPECT_EQ(layout_json.at("num_layers"), 4);
  EXPECT_EQ(layout_json.at("num_experts"), 6);
  EXPECT_EQ(layout_json.at("hidden_size"), 96);
  EXPECT_EQ(layout_json.at("expert_width"), 64);
  EXPECT_EQ(layout_json.at("source").at("name"), "my-model");
  const auto weights = test::read_json(dir / "model/model_weights.json");
  EXPECT_EQ(weights.at("model"), "my-model");
  const std::string data = test::read_file(dir / "model/model_weights.bin");
  EXPECT_EQ(weights.at("checksum"), checksum_text(checksum(std::as_bytes(std::span(data)))));
  const auto& config = weights.at("config");
  EXPECT_EQ(config.at("hidden_size"), 96);
  EXPECT_EQ(config.at("full_attention_interval"), 4);
  EXPECT_EQ(config.at("partial_rotary_factor"), 0.25);
  EXPECT_EQ(config.at("rms_norm_eps").dump(), "1e-06");
  EXPECT_EQ(config.at("layer_types").size(), 4U);
  // Companion files are the source's.
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(test::read_file(source / name), test::read_file(dir / "model" / name));
  }
  // Neither the place nor the time of the conversion stands in the output.
  for (const char* name : {"model/packed_experts/layout.json", "model/model_weights.json"}) {
    EXPECT_EQ(test::read_file(dir / name).find(dir.path().string()), std::string::npos);
  }
}

// Between components and behind records there are zeros, not what was in memory.
TEST(Convert, PaddingIsZero) {
  const TempDir dir;
  convert(make_source(dir, layout(TinyLayout::kMlx)), dir / "model");
  ASSERT_OK_AND_ASSIGN(const ResidentManifest m, read_resident_manifest(dir / "model"));
  std::string data = test::read_file(dir / "model/model_weights.bin");
  for (const ResidentTensor& t : m.tensors) {
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(t.offsets.codes()), t.bytes.codes(),
                '\0');
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(t.offsets[Component::kScales]),
                t.bytes[Component::kScales], '\0');
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(t.offsets[Component::kBiases]),
                t.bytes[Component::kBiases], '\0');
  }
  EXPECT_EQ(data.find_first_not_of('\0'), std::string::npos);
}

TEST(Convert, DryRunGivesTheExactSizeAndWritesNothing) {
  for (const ConvertOptions& base : {ConvertOptions{}, affine_options(QFormatId::kQ2)}) {
    const TempDir dir;
    ConvertOptions options = base;
    options.source = make_source(dir, layout(TinyLayout::kFusedWrapper));
    options.output = dir / "deep" / "model";
    ASSERT_OK_AND_ASSIGN(const ConvertReport planned, plan_conversion(options));
    EXPECT_FALSE(std::filesystem::exists(dir / "deep"));
    EXPECT_GT(planned.free_bytes, 0U);
    convert(options.source, options.output, base);
    std::uint64_t size = 0;
    for (const auto& [name, bytes] : test::directory_contents(options.output)) size += bytes.size();
    EXPECT_EQ(planned.total_bytes, size);
  }
}

TEST(Convert, ProgressCountsEveryByteOnce) {
  const TempDir dir;
  ConvertOptions options;
  options.source = make_source(dir, layout(TinyLayout::kMlx));
  options.output = dir / "model";
  options.threads = 3;
  std::uint64_t last = 0;
  ConvertProgress end;
  const auto report = convert_checkpoint(options, [&](const ConvertProgress& p) {
    EXPECT_GE(p.bytes_done, last);
    last = p.bytes_done;
    end = p;
  });
  ASSERT_OK(report);
  EXPECT_EQ(end.bytes_done, end.bytes_total);
  EXPECT_EQ(end.bytes_total, report.value().source_bytes);
  EXPECT_EQ(end.layers_done, 4U);
  std::uint64_t stored = 0;
  for (const auto& [name, t] : test::raw_tensors(options.source)) stored += t.bytes.size();
  EXPECT_EQ(end.bytes_total, stored);
}

TEST(Convert, AModelInTheHuggingFaceCacheKeepsItsName) {
  const TempDir dir;
  const auto snapshot = dir / "models--org--toy" / "snapshots" / "0123abcd";
  test::write_tiny_model(snapshot, {});
  convert(dir / "models--org--toy", dir / "model");
  ASSERT_OK_AND_ASSIGN(const PackManifest pack, read_pack_manifest(dir / "model/packed_experts"));
  EXPECT_EQ(pack.source.name, "org--toy");
}

TEST(Convert, AbsentTokenizerIsReported) {
  const TempDir dir;
  TinyModelOptions tiny;
  tiny.with_tokenizer = false;
  const ConvertReport report = convert(make_source(dir, tiny), dir / "model");
  EXPECT_NE(std::find(report.absent_files.begin(), report.absent_files.end(), "tokenizer.json"),
            report.absent_files.end());
}

}  // namespace
}  // namespace moepack::convert_test
