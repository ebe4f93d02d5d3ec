// The manifests of the flash-moe engines' expert packs, read into our own PackManifest. They state
// no model dimensions, often no formats and never checksums: dimensions come from config.json, and
// what a manifest leaves out is what its writer always does. Every number is compared with what
// formats and dimensions give; none is taken from a file's size.
//
//   layout.json         a) components with dtype and shape: widths and groups follow from them
//                       b) components with name, offset, size: 4 bits, group 64
//                       c) "tiered": true: the two records of the tiered pack beside it
//                       d) "format": "q3_streamed_experts": ggml's blocks, named per component
//   tiered_manifest.json  each expert at 4 or 2 bits, group 64
//
// In all of these packs, records follow each other expert by expert, without padding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

constexpr const char* kTieredManifestName = "tiered_manifest.json";

// What a model's config.json says about its packs.
struct PackDimensions {
  std::uint64_t hidden_size = 0;
  std::uint64_t expert_width = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
};
PackDimensions pack_dimensions(const ModelConfig& config);

// The following functions parse texts alone (fuzz targets); `file` names the text in errors. The
// manifests returned have has_checksums == false and no source. kCorrupt: numbers that contradict
// each other, the formats or the model; kUnsupported: bit widths and formats that these packs
// cannot hold, by name. Pure; any number of threads.
//
// Parses layout.json, variants a, b and d. Variant c is kUnsupported here, because it does not say
// where experts lie.
Result<PackManifest> parse_flashmoe_layout(std::string_view text, const std::string& file,
                                           const PackDimensions& dims);
// Checks the numbers of variant c.
Status check_flashmoe_tiered_layout(std::string_view text, const std::string& file,
                                    const PackDimensions& dims);
// Parses tiered_manifest.json. Its layers are {"experts": […], "file_size": N} or bare lists; a
// layer that is not listed holds 4-bit records alone.
Result<PackManifest> parse_flashmoe_tiered(std::string_view text, const std::string& file,
                                           const PackDimensions& dims);

// ---- Used by the readers and by `moepack import` ----

// A pack whose layers all hold records of layouts[0], in files layer_NN.bin, without checksums.
// kUnsupported when there are more experts than any model has.
Result<PackManifest> uniform_pack(const PackDimensions& dims, const ExpertLayout& layout);
// Lays the records of every layer out in order without padding; sets offsets, file sizes and the
// largest page size that they keep.
void place_without_padding(PackManifest& manifest);

// The text of a tiered_manifest.json that describes `pack`; "" where it cannot: an expert of other
// widths than 4 or 2 bits in groups of 64, or of mixed ones, or records with padding between them.
std::string flashmoe_tiered_text(const PackManifest& pack);

// Q3 as flash-moe first wrote it: IQ3_XXS (outlier layers: IQ4_XS) gate and up with a 4-bit affine
// down. It shares its file names with today's Q3; the size of a record tells it.
bool is_abandoned_q3_record(const PackDimensions& dims, std::uint64_t record_bytes);
Status abandoned_q3_error(const std::string& file);

}  // namespace moepack
