#include "formats/pack/pack_manifest.h"

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "tests/support/number_mutation.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::pack_manifest_test {
namespace {

using test::expect_error;

WeightFormat affine(std::uint32_t bits, std::uint32_t group = 64) {
  return {.id = *affine_qformat(bits), .group_size = group};
}

// Lays the records of every layer out in order.
void place(PackManifest& manifest) {
  std::uint64_t salt = 1;
  for (LayerEntry& layer : manifest.layers) {
    std::uint64_t offset = 0;
    for (ExpertEntry& expert : layer.experts) {
      expert.offset = offset;
      expert.checksum = salt++ * 0x9e3779b97f4a7c15ULL;
      offset += align_up(manifest.layouts[expert.layout].record_bytes, manifest.page_size);
    }
    layer.file_size = offset;
  }
}

PackManifest uniform(std::uint64_t page_size = 4096, std::uint64_t hidden = 128,
                     std::uint64_t width = 64, WeightFormat format = affine(4)) {
  PackManifest m;
  m.num_layers = 3;
  m.num_experts = 6;
  m.hidden_size = hidden;
  m.expert_width = width;
  m.page_size = page_size;
  m.layouts.push_back(make_expert_layout(hidden, width, {format, format, format}).value());
  for (std::uint32_t l = 0; l < m.num_layers; ++l) {
    m.layers.push_back({.file = layer_file_name(l), .file_size = 0, .experts = {}});
    m.layers.back().experts.resize(m.num_experts);
  }
  m.source = {.name = "toy", .fingerprint = 42, .method = "copy"};
  place(m);
  return m;
}

// Layer 0 uniform, layer 1 of another format, layer 2 with three kinds of records side by side.
PackManifest mixed() {
  PackManifest m = uniform();
  const auto add = [&m](WeightFormat gate, WeightFormat up, WeightFormat down) {
    m.layouts.push_back(
        make_expert_layout(m.hidden_size, m.expert_width, {gate, up, down}).value());
  };
  add({}, {}, {});
  add(affine(2), affine(2, 32), affine(3));
  for (ExpertEntry& expert : m.layers[1].experts) expert.layout = 1;
  m.layers[2].experts[1].layout = 2;
  m.layers[2].experts[4].layout = 1;
  m.report_json = R"({"skipped": ["a \"quoted\" name"], "errors": [0.5, 1]})";
  place(m);
  return m;
}

// The matrices that can be are in panels.
PackManifest in_panels(PackManifest m) {
  for (ExpertLayout& layout : m.layouts) layout = in_order(layout, RowOrder::kPanels);
  return m;
}

void expect_same_records(const PackManifest& a, const PackManifest& b) {
  ASSERT_EQ(a.num_layers, b.num_layers);
  ASSERT_EQ(a.num_experts, b.num_experts);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.expert_width, b.expert_width);
  for (std::uint32_t l = 0; l < a.num_layers; ++l) {
    EXPECT_EQ(a.layers[l].file, b.layers[l].file);
    EXPECT_EQ(a.layers[l].file_size, b.layers[l].file_size);
    for (std::uint32_t e = 0; e < a.num_experts; ++e) {
      EXPECT_EQ(a.layers[l].experts[e].offset, b.layers[l].experts[e].offset);
      EXPECT_EQ(a.layers[l].experts[e].checksum, b.layers[l].experts[e].checksum);
      EXPECT_EQ(a.layout_of(l, e), b.layout_of(l, e));
    }
  }
}

Status parse(std::string_view text) { return parse_pack_manifest(text, "layout.json").status(); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PackManifest, RoundTripsUniformAndMixedPacks) {
  for (const PackManifest& m : {uniform(), uniform(1), uniform(16384), mixed()}) {
    const std::string text = pack_manifest_text(m);
    ASSERT_OK_AND_ASSIGN(const PackManifest back, parse_pack_manifest(text, "layout.json"));
    expect_same_records(m, back);
    EXPECT_EQ(back.page_size, m.page_size);
    EXPECT_EQ(back.layouts, m.layouts);
    EXPECT_EQ(back.source.name, "toy");
    EXPECT_EQ(back.source.fingerprint, 42U);
    PackManifest again = back;
    again.report_json = m.report_json;
    EXPECT_EQ(pack_manifest_text(again), text);
  }
}

TEST(PackManifest, LayersWithoutExpertsHaveNoFile) {
  PackManifest m = mixed();
  m.layers[0] = {};
  const std::string text = pack_manifest_text(m);
  ASSERT_OK_AND_ASSIGN(const PackManifest back, parse_pack_manifest(text, "layout.json"));
  EXPECT_EQ(back.experts_of(0), 0U);
  EXPECT_EQ(back.experts_of(1), 6U);
  EXPECT_EQ(back.expert_layers(), 2U);
  EXPECT_EQ(back.all_experts(), 12U);
  EXPECT_EQ(pack_manifest_text(back), pack_manifest_text([&] {
              PackManifest bare = m;
              bare.report_json.clear();
              return bare;
            }()));
  const std::string dense = R"({"dense": true})";
  const auto with = [&](const std::string& layer) {
    std::string changed = text;
    changed.replace(changed.find(dense), dense.size(), layer);
    return parse_pack_manifest(changed, "layout.json").status();
  };
  expect_error(with(R"({"dense": false})"), StatusCode::kCorrupt, {"layout.json", "dense"});
  expect_error(with(R"({"dense": 1})"), StatusCode::kCorrupt, {"layout.json", "dense"});
  expect_error(with(R"({"dense": true, "size": 0})"), StatusCode::kUnsupported, {"size"});
  m.layers[1] = m.layers[2] = {};
  expect_error(parse_pack_manifest(pack_manifest_text(m), "layout.json").status(),
               StatusCode::kCorrupt, {"layers", "no layer with experts"});
}

TEST(PackManifest, RoundTripsRecordsInAnyOrder) {
  PackManifest m = mixed();
  LayerEntry& layer = m.layers[2];
  // The last expert's record first, all others behind it.
  const std::uint64_t moved = align_up(m.layout_of(2, 5).record_bytes, m.page_size);
  for (std::size_t e = 0; e < 5; ++e) layer.experts[e].offset += moved;
  layer.experts[5].offset = 0;
  ASSERT_OK_AND_ASSIGN(const PackManifest back, parse_pack_manifest(pack_manifest_text(m), "f"));
  expect_same_records(m, back);
}

// What the flash-moe engines' tools expect of an affine pack.
TEST(PackManifest, WritesTheKeysOfFlashMoe) {
  const std::string text = pack_manifest_text(uniform());
  for (
      const char* part :
      {"\"expert_size\": 13824", "\"num_layers\": 3", "\"num_experts\": 6",
       R"({"name": "gate_proj.weight", "offset": 0, "size": 4096, "dtype": "U32", "shape": [64, 16]})",
       R"({"name": "gate_proj.scales", "offset": 4096, "size": 256, "dtype": "BF16", "shape": [64, 2]})",
       R"({"name": "down_proj.biases", "offset": 13568, "size": 256, "dtype": "BF16", "shape": [128, 1]})"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
  }
}

TEST(PackManifest, ManyExpertsStaySmall) {
  PackManifest m = mixed();
  m.num_experts = 512;
  for (LayerEntry& layer : m.layers) layer.experts.resize(512);
  for (std::size_t e = 0; e < 512; e += 4) m.layers[0].experts[e].layout = 2;
  place(m);
  const std::string text = pack_manifest_text(m);
  EXPECT_LT(text.size(), 3U * 512 * 32);
  ASSERT_OK_AND_ASSIGN(const PackManifest back, parse_pack_manifest(text, "f"));
  expect_same_records(m, back);
}

TEST(PackManifest, RefusesEveryTruncation) {
  for (const PackManifest& m : {uniform(), mixed(), in_panels(mixed())}) {
    std::string text = pack_manifest_text(m);
    while (text.back() == '\n') text.pop_back();
    test::drill_truncation(text, parse);
  }
}

TEST(PackManifest, EveryEditedNumberIsRefusedOrChangesNothing) {
  // Page 128: every record of these shapes is a multiple of it, so an edited page size can be
  // consistent; the records must then still be the same.
  for (PackManifest m : {uniform(), mixed(), uniform(128), in_panels(mixed())}) {
    m.report_json.clear();
    const std::string text = pack_manifest_text(m);
    std::size_t refused = 0;
    test::for_each_number_edit(text, [&](const std::string& edited, std::size_t at) {
      const auto result = parse_pack_manifest(edited, "layout.json");
      if (!result.is_ok()) {
        EXPECT_EQ(result.status().message().rfind("layout.json: ", 0), 0U);
        ++refused;
        return;
      }
      EXPECT_EQ(text.substr(at - 13, 11), "\"page_size\"") << edited.substr(at, 40);
      expect_same_records(m, result.value());
    });
    EXPECT_GT(refused, 400U);
  }
}

TEST(PackManifest, ReportIsIgnored) {
  PackManifest m = uniform();
  m.report_json = R"({"anything": [1, {"deep": -2.5e3}]})";
  EXPECT_OK(parse(pack_manifest_text(m)));
}

TEST(PackManifest, ErrorsNameTheKey) {
  const std::string text = pack_manifest_text(mixed());
  expect_error(parse(replaced(text, "\"format_version\": 1", "\"format_version\": 2")),
               StatusCode::kUnsupported, {"layout.json", "format_version", "is 2"});
  expect_error(parse(replaced(text, "\"format_version\": 1,", "")), StatusCode::kCorrupt,
               {"format_version: is missing"});
  expect_error(parse(replaced(text, "\"format\": \"q4\"", "\"format\": \"q7\"")),
               StatusCode::kCorrupt, {"formats.gate_proj.format", "\"q7\""});
  expect_error(parse(replaced(text, "\"expert_stride\": 16384", "\"expert_stride\": 13824")),
               StatusCode::kCorrupt, {"expert_stride", "13824", "16384"});
  expect_error(parse(replaced(text, "\"size\": 98304", "\"size\": 102400")), StatusCode::kCorrupt,
               {"layers[0].size", "102400", "98304"});
  expect_error(parse(replaced(text, "layer_01.bin", "../layer_01.bin")), StatusCode::kCorrupt,
               {"layers[1].file", "plain file name"});
  expect_error(parse(replaced(text, "layer_01.bin", "layer_00.bin")), StatusCode::kCorrupt,
               {"layers[1].file", "another layer"});
  expect_error(parse(replaced(text, "\"1\": {\"layout\": 2}", "\"6\": {\"layout\": 2}")),
               StatusCode::kCorrupt, {"layers[2].experts.6", "not an expert"});
  expect_error(parse(replaced(text, "\"1\": {\"layout\": 2}", "\"01\": {\"layout\": 2}")),
               StatusCode::kCorrupt, {"layers[2].experts.01"});
  expect_error(parse(replaced(text, "\"1\": {\"layout\": 2}", "\"1\": {\"layout\": 3}")),
               StatusCode::kCorrupt, {"layers[2].experts.1.layout", "is 3"});
  expect_error(parse(replaced(text, "\"1\": {\"layout\": 2}", "\"1\": {\"offset\": 0}")),
               StatusCode::kCorrupt, {"layers[2].experts.", "offset: 0 overlaps"});
  expect_error(parse(replaced(text, "\"1\": {\"layout\": 2}", "\"1\": {\"offset\": 8000}")),
               StatusCode::kCorrupt, {"layers[2].experts.1.offset", "8000", "page_size 4096"});
  expect_error(parse(replaced(text, "\"page_size\"", "\"pages_size\"")), StatusCode::kUnsupported,
               {"pages_size", "not a known key"});
}

TEST(PackManifest, RefusesMalformedChecksumsAndDuplicateKeys) {
  const std::string text = pack_manifest_text(uniform());
  const std::size_t at = text.find("\"checksums\": [\"") + 15;
  for (char bad : {'g', 'A', ' '}) {
    std::string edited = text;
    edited[at] = bad;
    expect_error(parse(edited), StatusCode::kCorrupt, {"layers[0].checksums[0]", "hex"});
  }
  EXPECT_FALSE(parse(replaced(text, "{\n", "{\n\"num_layers\": 3,\n")).is_ok());
}

TEST(PackManifest, ReadChecksTheLayerFiles) {
  const test::TempDir dir;
  const PackManifest m = uniform();
  for (const LayerEntry& layer : m.layers) {
    EXPECT_OK(write_text_file(dir / layer.file, std::string(layer.file_size, '\0')));
  }
  ASSERT_OK(write_pack_manifest(dir.path(), m));
  EXPECT_OK(read_pack_manifest(dir.path()));
  std::filesystem::resize_file(dir / "layer_02.bin", m.layers[2].file_size - 1);
  expect_error(read_pack_manifest(dir.path()).status(), StatusCode::kCorrupt,
               {"layer_02.bin", "98303", "98304"});
  std::filesystem::remove(dir / "layer_02.bin");
  expect_error(read_pack_manifest(dir.path()).status(), StatusCode::kNotFound, {"layer_02.bin"});
}

TEST(PackManifest, LayerFileNamesAreTheEngines) {
  EXPECT_EQ(layer_file_name(0), "layer_00.bin");
  EXPECT_EQ(layer_file_name(27), "layer_27.bin");
  EXPECT_EQ(layer_file_name(100), "layer_100.bin");
}

// Blocks of ggml: the keys of the flash-moe engines stand beside ours, layer 1 an outlier.
PackManifest of_blocks(std::uint64_t page_size) {
  const WeightFormat iq3{.id = QFormatId::kIq3Xxs};
  PackManifest m = uniform(page_size, 512, 256, iq3);
  m.layouts = {make_expert_layout(512, 256, {iq3, iq3, {.id = QFormatId::kIq4Xs}}).value(),
               make_expert_layout(512, 256, {iq3, {.id = QFormatId::kQ4K}, {.id = QFormatId::kQ5K}})
                   .value()};
  for (ExpertEntry& expert : m.layers[1].experts) expert.layout = 1;
  place(m);
  return m;
}

TEST(PackManifest, PacksOfBlocksHaveTheEnginesKeys) {
  for (const std::uint64_t page_size : {1U, 4096U}) {
    const std::string text = pack_manifest_text(of_blocks(page_size));
    for (const char* part :
         {R"("format": "q3_streamed_experts")", R"("default_format": "q3_gguf_iq3_xxs_iq4_xs")",
          R"("1": {"format": "q3_outlier_iq3_xxs_q4_k_q5_k", "expert_size": 214016, "components")",
          R"({"name": "up_proj.weight", "quant": "Q4_K", "offset": 50176, "size": 73728})",
          R"("size": 50176, "quant": "IQ3_XXS", "dtype": "U8")"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
    }
    ASSERT_OK_AND_ASSIGN(const PackManifest back, parse_pack_manifest(text, "layout.json"));
    EXPECT_EQ(pack_manifest_text(back), text);
  }
  PackManifest mixed = of_blocks(4096);
  mixed.layers[2].experts[3].layout = 1;
  place(mixed);
  EXPECT_EQ(pack_manifest_text(mixed).find("q3_streamed"), std::string::npos);
  EXPECT_EQ(pack_manifest_text(uniform()).find("q3_streamed"), std::string::npos);
}

// Other engines would take the components of panels for rows.
TEST(PackManifest, PanelsAreStatedAndClaimNoOtherEngine) {
  for (const PackManifest& m : {in_panels(mixed()), in_panels(of_blocks(4096))}) {
    const std::string text = pack_manifest_text(m);
    EXPECT_NE(text.find("\"row_order\": \"panels16\""), std::string::npos) << text;
    EXPECT_EQ(text.find("q3_streamed"), std::string::npos);
    ASSERT_OK_AND_ASSIGN(const PackManifest back, parse_pack_manifest(text, "layout.json"));
    EXPECT_EQ(back.layouts, m.layouts);
    PackManifest without_report = m;
    without_report.report_json.clear();
    EXPECT_EQ(pack_manifest_text(back), pack_manifest_text(without_report));
  }
  EXPECT_EQ(pack_manifest_text(in_panels(uniform())).find("components"), std::string::npos);
  EXPECT_EQ(pack_manifest_text(mixed()).find("row_order"), std::string::npos);
}

TEST(PackManifest, WrongRowOrdersAreRefused) {
  const std::string text = pack_manifest_text(in_panels(mixed()));
  expect_error(parse(replaced(text, "\"panels16\"", "\"panels8\"")), StatusCode::kCorrupt,
               {"formats.gate_proj.row_order", "panels8"});
  expect_error(parse(replaced(text, "\"panels16\"", "16")), StatusCode::kCorrupt,
               {"formats.gate_proj.row_order"});
  expect_error(parse(replaced(text, "{\"format\": \"bf16\"}",
                              "{\"format\": \"bf16\", \"row_order\": \"panels16\"}")),
               StatusCode::kCorrupt, {"row_order", "does not belong to format bf16"});
  expect_error(parse(replaced(text, "\"layers\": [", "\"components\": [], \"layers\": [")),
               StatusCode::kCorrupt, {"components", "row_order"});
}

TEST(PackManifest, EnginesKeysMustAgree) {
  const std::string text = pack_manifest_text(of_blocks(4096));
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse_pack_manifest(out.replace(at, from.size(), to), "layout.json").status();
  };
  expect_error(edited("q3_streamed_experts", "q4_streamed_experts"), StatusCode::kCorrupt,
               {"format"});
  expect_error(edited("q3_outlier_iq3", "q3_outlier_iq2"), StatusCode::kCorrupt,
               {"outlier_layers"});
  expect_error(edited("\"quant\": \"IQ3_XXS\", \"dtype\"", "\"quant\": \"IQ3_S\", \"dtype\""),
               StatusCode::kCorrupt, {"components[0].quant", "IQ3_S", "IQ3_XXS"});
}

}  // namespace
}  // namespace moepack::pack_manifest_test
