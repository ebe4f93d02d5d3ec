// Which matrices of a GGUF file go into which overlay, and whether they belong to the model at all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/pack/plan.h"
#include "formats/model_dir.h"
#include "formats/pack/resident_overlay.h"

namespace moepack {

struct PlannedOverlay {
  ResidentOverlay overlay;  // complete but for the checksum
  // sources[i] gives the bytes of overlay.tensors[i]. Where columns were moved it has a row for
  // each V head of a row (convert/source/v_head_rows.h), in the same bytes.
  std::vector<SourceMatrix> sources;
};

// Plans the files of `groups`, in that order. `plan` is that of `source`, with everything as it is.
// `conventions` are those of the model that is overlaid; its V-head order is taken over where no
// block spans two heads. kNotFound: the source has no matrix of a group.
Result<std::vector<PlannedOverlay>> plan_resident_overlays(const ModelSource& source,
                                                           const ConvertPlan& plan,
                                                           const ResidentConventions& conventions,
                                                           std::span<const OverlayGroup> groups);

// The part of a model directory that an overlay is checked against.
struct OverlaidModel {
  std::filesystem::path path;
  ModelConfig config;
  ResidentManifest residents;
};
Result<OverlaidModel> open_overlaid_model(const std::filesystem::path& model);

// kInvalidArgument unless `source` has the dimensions of `model`.
Status check_same_model(const ModelSource& source, const OverlaidModel& model);
// kInvalidArgument unless samples of the matrices differ from the model's own by no more than
// roundings of the same weights do, naming the first that does.
Status check_same_residents(std::span<const PlannedOverlay> overlays, const OverlaidModel& model);
// Compares samples of the experts likewise with the first pack of the model, other than `except`,
// that can be read. Gives "", or says why there is no pack to compare with.
Result<std::string> check_same_experts(const ConvertPlan& plan, const OverlaidModel& model,
                                       const std::string& except);

}  // namespace moepack
