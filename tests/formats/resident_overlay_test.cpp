#include "formats/pack/resident_overlay.h"

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "tests/support/number_mutation.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::resident_overlay_test {
namespace {

using test::expect_error;

constexpr std::uint32_t kLayers = 4;

const Architecture& family() { return *find_architecture("qwen3_5_moe"); }

const OverlayRole& role_of(OverlayGroup group, std::string_view name) {
  for (const OverlayRole& role : overlay_roles()) {
    if (role.group == group && role.role == name) return role;
  }
  ADD_FAILURE() << name;
  return overlay_roles().front();
}

void add(ResidentOverlay& overlay, std::string_view name, std::uint32_t layer, QFormatId format,
         std::uint64_t rows, std::uint64_t cols) {
  OverlayTensor entry{
      .role = &role_of(overlay.group, name), .layer = layer, .tensor = {}, .v_heads = {}};
  entry.tensor.name = overlay_module(family(), *entry.role, layer);
  entry.tensor.format = {.id = format};
  entry.tensor.rows = rows;
  entry.tensor.cols = cols;
  entry.tensor.shape = {rows, cols};
  entry.tensor.bytes = matrix_bytes(entry.tensor.format, rows, cols).value();
  entry.tensor.offsets.codes() = align_up(overlay.data_size, kResidentAlignment);
  overlay.data_size = entry.tensor.offsets.codes() + entry.tensor.bytes.codes();
  overlay.tensors.push_back(entry);
}

ResidentOverlay sample() {
  ResidentOverlay overlay;
  overlay.stem = "linear_attention";
  overlay.group = OverlayGroup::kLinearAttention;
  overlay.source = {.name = "toy.gguf", .fingerprint = 77, .method = {}};
  overlay.checksum = 0xabcdef;
  add(overlay, "out", 1, QFormatId::kQ6K, 64, 256);
  overlay.tensors.back().v_heads = ResidentConventions::VHeads::kTiled;
  add(overlay, "alpha", 2, QFormatId::kBf16, 8, 64);
  add(overlay, "qkv", 3, QFormatId::kQ80, 96, 64);
  return overlay;
}

Result<ResidentOverlay> parse(std::string_view text, std::string_view stem = "linear_attention") {
  return parse_resident_overlay(text, std::string(stem) + ".json", stem, family(), kLayers);
}

TEST(ResidentOverlay, RoundTrips) {
  const ResidentOverlay overlay = sample();
  const std::string text = resident_overlay_text(overlay);
  ASSERT_OK_AND_ASSIGN(const ResidentOverlay back, parse(text));
  EXPECT_EQ(resident_overlay_text(back), text);
  EXPECT_EQ(back.group, overlay.group);
  EXPECT_EQ(back.source.fingerprint, 77U);
  ASSERT_EQ(back.tensors.size(), 3U);
  EXPECT_EQ(back.tensors[0].tensor.name, "model.layers.1.linear_attn.out_proj");
  EXPECT_EQ(back.tensors[0].v_heads, ResidentConventions::VHeads::kTiled);
  EXPECT_EQ(back.tensors[1].tensor.name, "model.layers.2.linear_attn.in_proj_a");
  EXPECT_EQ(back.tensors[2].tensor.rows, 96U);
  EXPECT_EQ(back.tensors[2].tensor.cols, 64U);
}

// The keys of the engines: shape as ggml orders it, their file where role and type are theirs.
TEST(ResidentOverlay, SpeaksTheEnginesNames) {
  EXPECT_NE(resident_overlay_text(sample()).find(
                R"({"layer": 3, "role": "qkv", "offset": 14464, "size": 6528, "shape": [64, 96], )"
                R"("tensor_type": "Q8_0", "v_heads": "grouped"})"),
            std::string::npos)
      << resident_overlay_text(sample());
  const OverlayRole& q = role_of(OverlayGroup::kAttention, "q");
  EXPECT_EQ(overlay_stem(q, {.id = QFormatId::kQ80}), "full_attn_q8_0");
  EXPECT_EQ(overlay_stem(q, {.id = QFormatId::kQ6K}), "attention");
  const OverlayRole& head = role_of(OverlayGroup::kLmHead, "lm_head");
  EXPECT_EQ(overlay_stem(head, {.id = QFormatId::kQ6K}), "lm_head_q6");
  EXPECT_EQ(overlay_stem(head, {.id = QFormatId::kQ80}), "lm_head");
  EXPECT_EQ(overlay_stem(role_of(OverlayGroup::kLinearAttention, "beta"), {.id = QFormatId::kQ80}),
            "linear_attention");
}

TEST(ResidentOverlay, ReadsTheEnginesOwnFiles) {
  const char* text =
      R"({"gguf": "x", "entries": [{"layer": 1, "offset": 6800, "size": 6528, "shape": [64, 96],
          "tensor_type": "Q8_0", "name": "blk.1.attn_qkv.weight"}]})";
  ASSERT_OK_AND_ASSIGN(const ResidentOverlay overlay, parse(text, "attn_qkv_q8_0"));
  EXPECT_FALSE(overlay.has_checksum);
  EXPECT_EQ(overlay.tensors[0].tensor.name, "model.layers.1.linear_attn.in_proj_qkv");
  EXPECT_EQ(overlay.tensors[0].v_heads, ResidentConventions::VHeads::kGrouped);
  // Only under their names.
  expect_error(parse(text).status(), StatusCode::kCorrupt, {"format_version"});
}

TEST(ResidentOverlay, RefusesEveryTruncation) {
  std::string text = resident_overlay_text(sample());
  while (text.back() == '\n') text.pop_back();
  test::drill_truncation(text, [](std::string_view cut) { return parse(cut).status(); });
}

// But for layers, which only the model can tell to be of the wrong kind.
TEST(ResidentOverlay, EveryEditedNumberIsRefused) {
  const std::string text = resident_overlay_text(sample());
  test::for_each_number_edit(text, [&](const std::string& edited, std::size_t at) {
    if (text.substr(at - 2, 2) == ": " && text.substr(at - 9, 9) == "\"layer\": ") return;
    EXPECT_FALSE(parse(edited).is_ok()) << "accepted: ..." << edited.substr(at - 60, 90);
  });
}

TEST(ResidentOverlay, ErrorsNameTheEntry) {
  const std::string text = resident_overlay_text(sample());
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse(out.replace(at, from.size(), to)).status();
  };
  expect_error(edited("\"format_version\": 1", "\"format_version\": 2"), StatusCode::kUnsupported,
               {"format_version", "is 2"});
  expect_error(edited("\"layer\": 3", "\"layer\": 4"), StatusCode::kCorrupt,
               {"entries[2].layer", "4"});
  expect_error(edited("\"role\": \"alpha\"", "\"role\": \"q\""), StatusCode::kCorrupt,
               {"entries[1].role", "q", "linear_attention"});
  expect_error(edited("\"Q6_K\"", "\"Q6_X\""), StatusCode::kUnsupported,
               {"entries[0].tensor_type", "Q6_X"});
  expect_error(edited("\"tiled\"", "\"mixed\""), StatusCode::kCorrupt, {"entries[0].v_heads"});
  expect_error(edited("\"layer\": 2, \"role\": \"alpha\"", "\"layer\": 1, \"role\": \"out\""),
               StatusCode::kCorrupt, {"model.layers.1.linear_attn.out_proj", "twice"});
}

TEST(ResidentOverlay, MissingGroupsAreNamedWithThoseThereAre) {
  const test::TempDir dir;
  ModelConfig config;
  config.model_type = "qwen3_5_moe_text";
  config.num_layers = kLayers;
  config.vocab_size = 4;
  config.hidden_size = 64;
  std::filesystem::create_directory(dir.path() / kOverlayDirectory);
  const std::filesystem::path bin = dir.path() / kOverlayDirectory / "embedding_q8_0.bin";
  ASSERT_TRUE(write_text_file(bin, std::string(4 * 2 * 34, 'x')).is_ok());
  const std::vector<OverlayGroup> both{OverlayGroup::kEmbedding, OverlayGroup::kAttention};
  expect_error(read_resident_overlays(dir.path(), config, both).status(), StatusCode::kNotFound,
               {"gguf", "attention", "it has: embedding"});
  // The engines' embedding needs no JSON, but its size.
  const std::vector<OverlayGroup> one{OverlayGroup::kEmbedding};
  ASSERT_OK_AND_ASSIGN(const auto read, read_resident_overlays(dir.path(), config, one));
  EXPECT_EQ(read.front().tensors.front().tensor.rows, 4U);
  config.vocab_size = 5;
  expect_error(read_resident_overlays(dir.path(), config, one).status(), StatusCode::kCorrupt,
               {"embedding_q8_0.bin", "272", "340"});
  EXPECT_EQ(list_overlay_groups(dir.path()), one);
}

}  // namespace
}  // namespace moepack::resident_overlay_test
