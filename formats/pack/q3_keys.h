// The keys by which the flash-moe engines know a pack of ggml's blocks, beside those of our own
// manifest: `format`, `default_format`, `outlier_layers`, and `quant` of a component.
#pragma once

#include <string>

#include "formats/base/json_fields.h"
#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

constexpr std::string_view kQ3Format = "q3_streamed_experts";

// "IQ3_XXS" of a block format; "" of others.
std::string quant_name(const WeightFormat& format);

// The members without braces, each line with `indent` and a comma. "" where the engines cannot read
// the layer files: a matrix that is not in blocks, a layer with two layouts.
std::string q3_members(const PackManifest& manifest, const std::string& indent);
// Why the engines, which know two records of blocks, cannot run the pack; "" when they can.
std::string q3_problem(const PackManifest& manifest);
// kCorrupt unless `root` has exactly these members, or none of them.
Status check_q3_members(const JsonFields& root, const PackManifest& manifest);

}  // namespace moepack
