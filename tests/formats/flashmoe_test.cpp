// The manifests of the flash-moe engines as their fixtures write them
// (tests/cli/flashmoe_fixtures.py): what they mean, and what happens when they are damaged. That
// models run with them is shown by tests/cli/flashmoe_test.py.
#include <filesystem>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "formats/base/file.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/model_dir.h"
#include "formats/pack_directory.h"
#include "tests/support/flashmoe_model.h"
#include "tests/support/number_mutation.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::flashmoe_test {
namespace {

using test::expect_error;
using test::flashmoe_config;
using test::flashmoe_dimensions;

std::string fixture(const std::string& name) {
  const auto text = read_text_file(
      std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/fuzz/corpus/flashmoe" / name, 1U << 20);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? text.value() : std::string();
}

Result<PackManifest> layout(std::string_view text) {
  return parse_flashmoe_layout(text, "layout.json", flashmoe_dimensions());
}
Result<PackManifest> tiered(std::string_view text) {
  return parse_flashmoe_tiered(text, "tiered_manifest.json", flashmoe_dimensions());
}
Result<ResidentManifest> resident(std::string_view text) {
  return parse_flashmoe_resident(text, "model_weights.json", flashmoe_config());
}

// Every fixture and the function that reads it.
struct Reader {
  const char* name;
  std::function<Status(std::string_view)> parse;
};
std::vector<Reader> readers() {
  const auto parse_layout = [](std::string_view text) { return layout(text).status(); };
  const auto parse_tiered = [](std::string_view text) { return tiered(text).status(); };
  const auto parse_resident = [](std::string_view text) { return resident(text).status(); };
  const auto check_c = [](std::string_view text) {
    return check_flashmoe_tiered_layout(text, "layout.json", flashmoe_dimensions());
  };
  return {{"layout-a.json", parse_layout},    {"layout-b.json", parse_layout},
          {"layout-c.json", check_c},         {"layout-q3.json", parse_layout},
          {"tiered-dict.json", parse_tiered}, {"tiered-list.json", parse_tiered},
          {"weights.json", parse_resident},   {"weights-split.json", parse_resident}};
}

std::string edited(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// The record sizes are worked out by hand: 2 * 256 * 512 * b/8 + 512 * 256 * b/8 of codes, and
// 3 * 131072 / 64 groups of 4 bytes.
TEST(FlashMoePack, UniformPacksOfBothVariants) {
  for (const char* name : {"layout-a.json", "layout-b.json"}) {
    ASSERT_OK_AND_ASSIGN(const PackManifest m, layout(fixture(name)));
    EXPECT_FALSE(m.has_checksums);
    ASSERT_EQ(m.layouts.size(), 1U);
    EXPECT_EQ(m.layouts[0].record_bytes, 196608U + 24576U);
    EXPECT_EQ(to_string(m.layouts[0].of(Projection::kDown).format), "q4 g64");
    ASSERT_EQ(m.layers.size(), 2U);
    EXPECT_EQ(m.layers[1].file, "layer_01.bin");
    EXPECT_EQ(m.layers[1].file_size, 3 * 221184U);
    EXPECT_EQ(m.layers[1].experts[2].offset, 2 * 221184U);
    EXPECT_EQ(m.page_size, 4096U);  // 221184 is 54 pages
  }
}

TEST(FlashMoePack, TieredPacksOfBothForms) {
  for (const char* name : {"tiered-dict.json", "tiered-list.json"}) {
    ASSERT_OK_AND_ASSIGN(const PackManifest m, tiered(fixture(name)));
    const auto bits = [&](std::uint32_t layer, std::uint32_t expert) {
      return qformat_info(m.layout_of(layer, expert).of(Projection::kUp).format.id).bits;
    };
    EXPECT_EQ(bits(0, 0), 2U);
    EXPECT_EQ(bits(0, 1), 4U);
    EXPECT_EQ(bits(0, 2), 2U);
    EXPECT_EQ(bits(1, 0), 4U);
    EXPECT_EQ(bits(1, 1), 2U);
    EXPECT_EQ(m.layers[0].experts[2].offset, 122880U + 221184U);
    EXPECT_EQ(m.layers[0].file_size, 2 * 122880U + 221184U);
    EXPECT_EQ(m.layers[1].file_size, 122880U + 2 * 221184U);
  }
}

TEST(FlashMoePack, Q3WithAnOutlierLayer) {
  ASSERT_OK_AND_ASSIGN(const PackManifest m, layout(fixture("layout-q3.json")));
  const ExpertLayout& usual = m.layout_of(0, 2);
  const ExpertLayout& outlier = m.layout_of(1, 2);
  EXPECT_EQ(usual.of(Projection::kGate).format.id, QFormatId::kIq3Xxs);
  EXPECT_EQ(usual.of(Projection::kDown).format.id, QFormatId::kIq4Xs);
  EXPECT_EQ(outlier.of(Projection::kUp).format.id, QFormatId::kIq4Xs);
  EXPECT_EQ(outlier.of(Projection::kDown).format.id, QFormatId::kQ5K);
  EXPECT_EQ(usual.record_bytes, 512U * (2 * 98 + 136));
  EXPECT_EQ(outlier.record_bytes, 512U * (2 * 136 + 176));
  EXPECT_EQ(m.layers[1].file_size, 3 * outlier.record_bytes);
  EXPECT_EQ(m.page_size, 2048U);  // the most that both records keep
}

// The published sizes (397B): what the two Q3 formats of flash-moe weigh.
TEST(FlashMoePack, TheAbandonedQ3IsToldByItsRecords) {
  const PackDimensions dims{
      .hidden_size = 4096, .expert_width = 1024, .num_layers = 60, .num_experts = 512};
  EXPECT_TRUE(is_abandoned_q3_record(dims, 5570560));
  EXPECT_TRUE(is_abandoned_q3_record(dims, 6815744));
  for (std::uint64_t other : {5439488U, 7340032U, 7077888U, 3932160U}) {
    EXPECT_FALSE(is_abandoned_q3_record(dims, other)) << other;
  }
}

TEST(FlashMoePack, RefusesMoreExpertsThanAnyModelHas) {
  PackDimensions dims = flashmoe_dimensions();
  dims.num_layers = 1U << 15;
  dims.num_experts = 1U << 19;
  std::string text =
      edited(fixture("tiered-list.json"), "\"num_layers\": 2", "\"num_layers\": 32768");
  text = edited(text, "\"num_experts\": 3", "\"num_experts\": 524288");
  expect_error(parse_flashmoe_tiered(text, "t", dims).status(), StatusCode::kUnsupported,
               {"experts"});
}

TEST(FlashMoe, RefusesEveryTruncation) {
  for (const Reader& reader : readers()) {
    SCOPED_TRACE(reader.name);
    test::drill_truncation(fixture(reader.name), reader.parse, {.step = 7});
  }
}

// Numbers of a pack that may change without changing what is read.
bool is_ignored(const std::string& text, std::size_t at) {
  const std::string before = text.substr(0, at);
  const std::size_t ratio = before.rfind("\"hot_ratio\": ");
  const std::size_t set = before.rfind("\"hot_set\": ");
  if (ratio != std::string::npos && at - ratio < 16) return true;
  return set != std::string::npos && before.find("\"layers\"", set) == std::string::npos;
}

TEST(FlashMoePack, EveryEditedNumberIsRefused) {
  for (const Reader& reader : readers()) {
    const std::string name = reader.name;
    if (name.starts_with("weights")) continue;
    const std::string text = fixture(name);
    std::size_t refused = 0;
    test::for_each_number_edit(text, [&](const std::string& changed, std::size_t at) {
      if (is_ignored(text, at)) return;
      const Status status = reader.parse(changed);
      EXPECT_FALSE(status.is_ok()) << name << ": " << changed.substr(at < 40 ? 0 : at - 40, 80);
      ++refused;
    });
    EXPECT_GT(refused, 100U) << name;
  }
}

TEST(FlashMoeResident, ReadsFormatsFromShapesAndConfiguration) {
  for (const char* name : {"weights.json", "weights-split.json"}) {
    ASSERT_OK_AND_ASSIGN(const ResidentManifest m, resident(fixture(name)));
    EXPECT_FALSE(m.has_checksum);
    EXPECT_EQ(m.conventions.norm, ResidentConventions::Norm::kPlain);
    const auto find = [&](const std::string& wanted) -> const ResidentTensor& {
      for (const ResidentTensor& t : m.tensors) {
        if (t.name == wanted) return t;
      }
      ADD_FAILURE() << wanted << " is missing";
      return m.tensors.front();
    };
    EXPECT_EQ(to_string(find("lm_head").format), "q4 g64");
    EXPECT_EQ(to_string(find("model.layers.1.mlp.gate").format), "q8 g64");
    EXPECT_EQ(to_string(find("model.layers.0.linear_attn.in_proj_b").format), "bf16");
    EXPECT_EQ(to_string(find("model.layers.0.linear_attn.A_log").format), "f32");
    const ResidentTensor& down = find("model.layers.0.mlp.shared_expert.down_proj");
    EXPECT_EQ(down.rows, 512U);
    EXPECT_EQ(down.cols, 128U);
    EXPECT_EQ(find("model.layers.0.linear_attn.conv1d").shape,
              (std::vector<std::uint64_t>{256, 4, 1}));
    for (const ResidentTensor& t : m.tensors) {
      EXPECT_FALSE(t.name.starts_with("mtp") || t.name.starts_with("vision")) << t.name;
    }
    EXPECT_EQ(m.files.size(), std::string(name) == "weights.json" ? 1U : 3U);
  }
}

// An edited number is refused, or belongs to a tensor that is left out or to the untrusted block.
TEST(FlashMoeResident, EditedNumbersNeverMoveATensorOutOfItsFile) {
  const std::string text = fixture("weights-split.json");
  std::size_t accepted = 0;
  std::size_t refused = 0;
  test::for_each_number_edit(text, [&](const std::string& changed, std::size_t) {
    const auto read = resident(changed);
    if (!read.is_ok()) {
      ++refused;
      return;
    }
    ++accepted;
    for (const ResidentTensor& t : read.value().tensors) {
      EXPECT_LE(t.offsets.codes() + t.bytes.codes(), read.value().data_size) << t.name;
      if (!is_affine(t.format)) continue;
      EXPECT_LE(t.offsets[Component::kScales] + t.bytes[Component::kScales], read.value().data_size)
          << t.name;
      EXPECT_LE(t.offsets[Component::kBiases] + t.bytes[Component::kBiases], read.value().data_size)
          << t.name;
    }
  });
  EXPECT_GT(refused, 1000U);
  EXPECT_GT(accepted, 0U);
}

// What import writes: our form of the same tensors, files included.
TEST(FlashMoeResident, IsWrittenInOurForm) {
  ASSERT_OK_AND_ASSIGN(ResidentManifest m, resident(fixture("weights-split.json")));
  m.model = "toy";
  const std::string text = resident_manifest_text(m);
  ASSERT_OK_AND_ASSIGN(const ResidentManifest back, parse_resident_manifest(text, "f"));
  EXPECT_EQ(back.files, m.files);
  EXPECT_EQ(resident_manifest_text(back), text);
  expect_error(parse_resident_manifest(edited(text, "\"begin\": 0", "\"begin\": 1"), "f").status(),
               StatusCode::kCorrupt, {"files[0].begin"});
  expect_error(parse_resident_manifest(edited(text, "model_weights_1.bin", "../weights_1.bin"), "f")
                   .status(),
               StatusCode::kCorrupt, {"files[1].file"});
  expect_error(
      parse_resident_manifest(edited(text, "model_weights_1.bin", "model_weights.bin"), "f")
          .status(),
      StatusCode::kCorrupt, {"files[1].file", "once"});
}

TEST(PackDirectory, TellsTheKinds) {
  const test::TempDir dir;
  const auto make = [&](const std::string& name, const std::string& file, const std::string& text) {
    std::filesystem::create_directories(dir / name);
    EXPECT_OK(write_text_file(dir / name / file, text));
  };
  const auto kind = [&](const std::string& name) {
    const auto found = detect_pack(dir / name);
    EXPECT_TRUE(found.is_ok());
    return found.is_ok() ? found.value() : PackKind::kNone;
  };
  make("plain", "notes.txt", "x");
  make("bare", "layer_00.bin", "x");
  make("a", "layout.json", fixture("layout-a.json"));
  make("tiered", "tiered_manifest.json", fixture("tiered-dict.json"));
  make("own", "layout.json", "{\"format_version\": 1}");
  make("own", "tiered_manifest.json", fixture("tiered-dict.json"));
  make("packed_experts_lz4", "layer_00.bin", "x");
  EXPECT_EQ(kind("plain"), PackKind::kNone);
  EXPECT_EQ(kind("bare"), PackKind::kUndescribed);
  EXPECT_EQ(kind("a"), PackKind::kFlashMoe);
  EXPECT_EQ(kind("tiered"), PackKind::kFlashMoe);
  EXPECT_EQ(kind("own"), PackKind::kNative);
  EXPECT_EQ(kind("packed_experts_lz4"), PackKind::kLz4);
  expect_error(read_pack_directory(dir / "packed_experts_lz4", flashmoe_dimensions()).status(),
               StatusCode::kUnsupported, {"packed_experts_lz4", "LZ4"});
  expect_error(read_pack_directory(dir / "bare", flashmoe_dimensions()).status(),
               StatusCode::kNotFound, {"bare", "moepack import"});
  expect_error(read_pack_directory(dir / "a", flashmoe_dimensions()).status(),
               StatusCode::kNotFound, {"layer_00.bin"});
}

// That a pack has no checksums says nothing about whose it is.
TEST(PackFits, DimensionsAreComparedWithoutChecksumsToo) {
  ModelConfig config;
  config.num_layers = 2;
  config.layers.resize(2);
  PackManifest pack;
  pack.num_layers = 2;
  pack.layers.resize(2);
  pack.num_experts = config.num_experts;
  pack.hidden_size = config.hidden_size;
  pack.expert_width = config.expert_width;
  for (const bool has_checksums : {false, true}) {
    pack.has_checksums = has_checksums;
    pack.num_layers = 2;
    EXPECT_OK(check_pack_fits(config, pack, "pack"));
    pack.num_layers = 3;
    expect_error(check_pack_fits(config, pack, "pack"), StatusCode::kCorrupt,
                 {"pack/layout.json", "num_layers is 3", "config.json says 2"});
  }
}

}  // namespace
}  // namespace moepack::flashmoe_test
