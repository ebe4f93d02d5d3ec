// Overlays: matrices of a GGUF file that stand in for a model's own resident tensors, in
// MODEL/gguf.
//
// A pair of files, STEM.bin and STEM.json, holds matrices of one group, rows as GGUF files store
// them. Where the flash-moe engines have a file for a role and its type, the matrix is there, under
// their name and keys (embedding_q8_0, lm_head_q6, full_attn_q8_0, attn_qkv_q8_0, linear_q8_0,
// shared_q8_0); every other one is in the file called as its group. Schema: docs/pack-format.md.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/architecture.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

constexpr const char* kOverlayDirectory = "gguf";
constexpr std::uint32_t kOverlayFormatVersion = 1;
// Directories in it while files that are complete are put in place
// (convert/overlay/overlay_files.h).
constexpr const char* kOverlayComplete = "moepack.complete";
constexpr const char* kOverlayMoving = "moepack.moving";

enum class OverlayGroup : std::uint8_t {
  kEmbedding,
  kLmHead,
  kAttention,
  kLinearAttention,
  kSharedExperts,
};
constexpr std::array<OverlayGroup, 5> kOverlayGroups{
    OverlayGroup::kEmbedding, OverlayGroup::kLmHead, OverlayGroup::kAttention,
    OverlayGroup::kLinearAttention, OverlayGroup::kSharedExperts};
// "embedding", "lm_head", "attention", "linear_attention", "shared_experts".
std::string_view overlay_group_name(OverlayGroup group);
std::optional<OverlayGroup> overlay_group_from_name(std::string_view name);

// What a matrix of a group is for.
struct OverlayRole {
  OverlayGroup group;
  std::string_view role;         // in the JSON; flash-moe's qkv has none
  ModuleRole module;             // its name and shape stand in the model's architecture
  std::string_view engine_stem;  // of flash-moe's file; "" where the engines have none
  QFormatId engine_format;       // the only one of that file
};
std::span<const OverlayRole> overlay_roles();
// The matrix's canonical name: "model.layers.3.self_attn.q_proj", "lm_head". The architecture must
// have a module of that role.
std::string overlay_module(const Architecture& architecture, const OverlayRole& role,
                           std::uint32_t layer);
inline bool has_layers(OverlayGroup group) {
  return group != OverlayGroup::kEmbedding && group != OverlayGroup::kLmHead;
}

struct OverlayTensor {
  const OverlayRole* role = nullptr;
  std::uint32_t layer = 0;  // of groups with layers
  // Under the canonical name; offsets.codes() in the file. Plain floats or blocks.
  ResidentTensor tensor;
  // Of matrices of linear attention: the order that its V heads have. Not the model's own where
  // blocks of out_proj span several heads, whose columns cannot be moved.
  ResidentConventions::VHeads v_heads = ResidentConventions::VHeads::kGrouped;
};

// One pair of files.
struct ResidentOverlay {
  std::string stem;  // "full_attn_q8_0", "attention"
  OverlayGroup group = OverlayGroup::kEmbedding;
  std::vector<OverlayTensor> tensors;  // by offsets.codes()
  std::uint64_t data_size = 0;         // of the .bin, exact
  bool has_checksum = true;            // false: the flash-moe engines' own
  std::uint64_t checksum = 0;          // XXH3-64 of the .bin
  PackSource source;                   // without method

  std::string data_name() const { return stem + ".bin"; }
  std::string manifest_name() const { return stem + ".json"; }
};

// "attention" for a matrix that the engines have no file for.
std::string_view overlay_stem(const OverlayRole& role, const WeightFormat& format);

// Deterministic.
std::string resident_overlay_text(const ResidentOverlay& overlay);
// Reads the text alone; data_size stays 0 where it is the engines' own. kCorrupt: roles of no
// group's file or not of this architecture, layers beyond num_layers, one matrix twice, sizes that
// are not those of shape and type, matrices that overlap or leave a stated data_size. `file` names
// it in errors; `stem` that file's, of a group's or the engines' name.
Result<ResidentOverlay> parse_resident_overlay(std::string_view text, const std::string& file,
                                               std::string_view stem,
                                               const Architecture& architecture,
                                               std::uint32_t num_layers);

// The names that the files of a group can have; the group's own last.
std::vector<std::string> overlay_stems(OverlayGroup group);

// One overlay of `model` with its data file's size checked. The engines' embedding and head need no
// JSON: `config` gives their shape.
Result<ResidentOverlay> read_resident_overlay(const std::filesystem::path& model,
                                              const std::string& stem, const ModelConfig& config);

// All overlays of `model` that belong to `groups`, by group. kNotFound: a group has none; the
// message says which groups there are. kCorrupt: a matrix is in two files.
Result<std::vector<ResidentOverlay>> read_resident_overlays(const std::filesystem::path& model,
                                                            const ModelConfig& config,
                                                            std::span<const OverlayGroup> groups);
// The groups of which `model` has a file.
std::vector<OverlayGroup> list_overlay_groups(const std::filesystem::path& model);

}  // namespace moepack
