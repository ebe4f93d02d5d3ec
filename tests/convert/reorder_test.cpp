#include "convert/pack/reorder.h"

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convert/source/stored_matrix.h"
#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/pack_directory.h"
#include "formats/weights/row_order.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_matrix.h"
#include "tests/support/tiny_model.h"

namespace moepack::reorder_test {
namespace {

namespace fs = std::filesystem;

using test::expect_error;
using test::TempDir;

constexpr std::uint64_t kHidden = 768;  // whole blocks of every format, and 37 rows are no panels
constexpr std::uint64_t kWidth = 256;

// Two layers of three experts, gate and up in `format`, down in `down`.
PackManifest make_pack(const fs::path& directory, const WeightFormat& format,
                       const WeightFormat& down, std::uint64_t hidden, std::uint64_t width) {
  fs::create_directories(directory);
  PackManifest pack;
  pack.num_layers = 2;
  pack.num_experts = 3;
  pack.hidden_size = hidden;
  pack.expert_width = width;
  pack.page_size = 512;
  pack.source = {.name = "toy", .fingerprint = 42, .method = "copy"};
  pack.report_json = R"({"skipped_tensors":["mtp.fc.weight"]})";
  pack.layouts.push_back(make_expert_layout(hidden, width, {format, format, down}).value());
  const std::uint64_t size = pack.layouts[0].record_bytes;
  const std::uint64_t stride = align_up(size, pack.page_size);
  std::mt19937 random(7);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    LayerEntry layer{.file = layer_file_name(l), .file_size = 3 * stride, .experts = {}};
    std::string bytes(layer.file_size, '\0');
    for (std::uint64_t e = 0; e < 3; ++e) {
      for (std::uint64_t i = 0; i < size; ++i) bytes[e * stride + i] = static_cast<char>(random());
      const auto record = std::as_bytes(std::span(bytes)).subspan(e * stride, size);
      layer.experts.push_back({.offset = e * stride, .layout = 0, .checksum = checksum(record)});
    }
    EXPECT_TRUE(write_text_file(directory / layer.file, bytes).is_ok());
    pack.layers.push_back(std::move(layer));
  }
  EXPECT_TRUE(write_pack_manifest(directory, pack).is_ok());
  return pack;
}

ConvertReport reorder(const fs::path& from, const fs::path& to, RowOrder order) {
  ConvertOptions options;
  options.source = from;
  options.output = to;
  options.row_order = order;
  options.page_size = 512;
  options.threads = 2;
  const auto report = reorder_pack(options, {});
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? report.value() : ConvertReport{};
}

ConvertOptions to_panels(const TempDir& dir) {
  ConvertOptions options;
  options.source = dir / "packed_experts";
  options.output = dir / "packed_experts_p";
  options.row_order = RowOrder::kPanels;
  return options;
}

std::string text_of(const fs::path& file) {
  auto text = read_text_file(file, std::uint64_t{1} << 30);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? std::move(text).value() : std::string();
}

// Any range of any component, and what its elements decode to.
void expect_same_reads(const StoredMatrix& a, const StoredMatrix& b, std::mt19937& random) {
  ASSERT_EQ(a.format, b.format);
  for (Component c : stored_components(a.format)) {
    ASSERT_EQ(a.ranges[c].bytes, b.ranges[c].bytes);
    for (int i = 0; i < 12; ++i) {
      const std::uint64_t begin = i == 0 ? 0 : random() % a.ranges[c].bytes;
      const std::uint64_t count =
          i == 0 ? a.ranges[c].bytes : random() % (a.ranges[c].bytes - begin);
      std::vector<std::byte> expected(count);
      std::vector<std::byte> got(count);
      ASSERT_TRUE(a.ranges[c].read(begin, expected).is_ok());
      ASSERT_TRUE(b.ranges[c].read(begin, got).is_ok());
      ASSERT_EQ(expected, got) << to_string(a.format) << " " << begin << " + " << count;
      if (count == 0) continue;
      std::byte one{};
      ASSERT_TRUE(b.ranges[c].file->read_at(b.ranges[c].file_offset(begin), {&one, 1}).is_ok());
      ASSERT_EQ(one, expected[0]) << to_string(a.format) << " byte " << begin;
    }
  }
  BlockDecoder first;
  BlockDecoder second;
  const std::uint64_t count = std::min(kDecodeBlock, a.elements());
  ASSERT_OK_AND_ASSIGN(const DecodedBlock x, first.decode(a, 0, count));
  ASSERT_OK_AND_ASSIGN(const DecodedBlock y, second.decode(b, 0, count));
  ASSERT_EQ(std::memcmp(x.values.data(), y.values.data(), count * sizeof(float)), 0);
}

void expect_same_packs(const fs::path& rows, const fs::path& panels) {
  ASSERT_OK_AND_ASSIGN(const PackManifest a, read_pack_manifest(rows));
  ASSERT_OK_AND_ASSIGN(const PackManifest b, read_pack_manifest(panels));
  std::mt19937 random(3);
  for (std::uint32_t l = 0; l < a.num_layers; ++l) {
    ASSERT_OK_AND_ASSIGN(const File here, File::open(rows / a.layers[l].file));
    ASSERT_OK_AND_ASSIGN(const File there, File::open(panels / b.layers[l].file));
    for (std::uint32_t e = 0; e < a.num_experts; ++e) {
      for (Projection p : kAllProjections) {
        expect_same_reads(
            stored_matrix(a.layout_of(l, e).of(p), here, a.layers[l].experts[e].offset),
            stored_matrix(b.layout_of(l, e).of(p), there, b.layers[l].experts[e].offset), random);
      }
    }
  }
}

TEST(Reorder, EveryFormatReadsTheSameAndComesBack) {
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!has_panels(format)) continue;
    SCOPED_TRACE(to_string(format));
    const TempDir dir;
    const fs::path rows = dir / "packed_experts";
    const fs::path panels = dir / "packed_experts_panels";
    const fs::path back = dir / "packed_experts_back";
    make_pack(rows, format, format, kHidden, kWidth);
    const ConvertReport report = reorder(rows, panels, RowOrder::kPanels);
    EXPECT_TRUE(report.finished);
    EXPECT_EQ(report.expert_format, to_string(in_order(format, RowOrder::kPanels)));
    ASSERT_OK_AND_ASSIGN(const PackManifest there, read_pack_manifest(panels));
    EXPECT_TRUE(is_in_panels(there.layouts[0]));
    expect_same_packs(rows, panels);
    reorder(panels, back, RowOrder::kRows);
    for (const char* file : {"layer_00.bin", "layer_01.bin", "layout.json"}) {
      EXPECT_EQ(text_of(back / file), text_of(rows / file)) << file;
    }
    EXPECT_NE(text_of(panels / "layer_00.bin"), text_of(rows / "layer_00.bin"));
  }
}

// 40 rows are two panels and eight rows; 8 rows are none.
TEST(Reorder, LastRowsFollowEachOther) {
  const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 32};
  for (const std::uint64_t width : {32U, 96U}) {
    const TempDir dir;
    make_pack(dir / "packed_experts", q4, q4, 160, width);
    reorder(dir / "packed_experts", dir / "packed_experts_p", RowOrder::kPanels);
    expect_same_packs(dir / "packed_experts", dir / "packed_experts_p");
  }
  const WeightFormat q8{.id = QFormatId::kQ80};
  const TempDir dir;
  make_pack(dir / "packed_experts", q8, {.id = QFormatId::kBf16}, 64, 40);
  reorder(dir / "packed_experts", dir / "packed_experts_p", RowOrder::kPanels);
  expect_same_packs(dir / "packed_experts", dir / "packed_experts_p");
  ASSERT_OK_AND_ASSIGN(const PackManifest there, read_pack_manifest(dir / "packed_experts_p"));
  EXPECT_EQ(there.layouts[0].of(Projection::kDown).format.row_order, RowOrder::kRows);
}

// More rows than fit a block of work, and a last one that is no whole panel.
TEST(Reorder, MatricesOfSeveralBlocks) {
  const TempDir dir;
  const WeightFormat q8{.id = QFormatId::kQ8, .group_size = 32};
  make_pack(dir / "packed_experts", q8, {.id = QFormatId::kBf16}, 2048, 536);
  reorder(dir / "packed_experts", dir / "packed_experts_p", RowOrder::kPanels);
  expect_same_packs(dir / "packed_experts", dir / "packed_experts_p");
}

// A conversion writes panels as they are made from a pack of rows.
TEST(Reorder, ConversionsMakeTheSamePanels) {
  test::TinyModelOptions model;
  model.hidden_size = 1536;
  model.expert_width = 416;
  model.num_experts = 2;
  model.experts_per_token = 1;
  const TempDir dir;
  test::write_tiny_model(dir / "source", model);
  ConvertOptions options;
  options.source = dir / "source";
  options.expert_format = QFormatId::kQ5;
  options.group_size = 32;
  options.page_size = 512;
  for (const RowOrder order : {RowOrder::kRows, RowOrder::kPanels}) {
    options.row_order = order;
    options.output = dir / std::string(row_order_name(order));
    ASSERT_OK(convert_checkpoint(options, {}).status());
  }
  const fs::path converted = dir / "panels16" / "packed_experts";
  reorder(dir / "rows" / "packed_experts", dir / "packed_experts_p", RowOrder::kPanels);
  for (const auto& entry : fs::directory_iterator(converted)) {
    const std::string name = entry.path().filename();
    EXPECT_EQ(text_of(dir / "packed_experts_p" / name), text_of(entry.path())) << name;
  }
}

TEST(Reorder, RefusesWhatItCannotDo) {
  const TempDir dir;
  const WeightFormat bf16{.id = QFormatId::kBf16};
  make_pack(dir / "packed_experts", bf16, bf16, 64, 32);
  ConvertOptions options = to_panels(dir);
  expect_error(reorder_pack(options, {}).status(), StatusCode::kInvalidArgument,
               {"bf16", "no panels"});
  options.row_order = RowOrder::kRows;
  options.expert_format = QFormatId::kQ4;
  expect_error(plan_reordering(options).status(), StatusCode::kInvalidArgument,
               {"is a pack", "--expert-format"});
  options.expert_format.reset();
  options.output = dir / "other";
  expect_error(plan_reordering(options).status(), StatusCode::kInvalidArgument,
               {"packed_experts_NAME"});
  EXPECT_FALSE(fs::exists(dir / "packed_experts_p"));
  EXPECT_FALSE(fs::exists(dir / "other"));
}

TEST(Reorder, DamagedRecordsAreNamed) {
  const TempDir dir;
  const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 32};
  PackManifest pack = make_pack(dir / "packed_experts", q4, q4, 64, 32);
  pack.layers[1].experts[2].checksum ^= 1;
  ASSERT_TRUE(write_pack_manifest(dir / "packed_experts", pack).is_ok());
  ConvertOptions options = to_panels(dir);
  expect_error(reorder_pack(options, {}).status(), StatusCode::kCorrupt,
               {"layer_01.bin", "expert 2", "checksum"});
}

}  // namespace
}  // namespace moepack::reorder_test
