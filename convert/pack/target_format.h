// In which format a conversion stores a matrix, by the source's format and the user's options.
#pragma once

#include <string>
#include <string_view>

#include "convert/job/options.h"
#include "convert/source/source_naming.h"
#include "formats/config/architecture.h"
#include "formats/config/model_config.h"
#include "formats/pack/resident_manifest.h"
#include "formats/weights/qformat.h"

namespace moepack {

// Of a matrix in the source. `is_decoded`: no stored format holds what the source means, so that
// its rows come as f32.
struct SourceForm {
  WeightFormat format;
  bool is_decoded = false;
};

// Of an expert's matrix: the source's, bf16 for what is decoded, or the one asked for.
WeightFormat expert_target(const SourceForm& source, const ConvertOptions& options);
// Of a resident: as far as the rule allows it.
WeightFormat resident_target(const ResidentRule& rule, const SourceForm& source,
                             const ConvertOptions& options);

// The group sizes that divide both inputs of an expert, "32, 64", or "none; REMEDY". `remedy`: what
// the command at hand has instead.
std::string fitting_groups(const ModelConfig& config,
                           std::string_view remedy = "use --expert-format bf16 or source");

// kUnsupported where there are more experts than any model has.
Status check_expert_count(const ModelConfig& config, const SourceNaming& naming);

// Appends `tensor`, whose name, suffix, shape and format are set: rows, cols, bytes and places
// follow. False, and nothing is done, where the format cannot hold the shape.
bool append_resident(ResidentTensor tensor, ResidentManifest& manifest);

}  // namespace moepack
