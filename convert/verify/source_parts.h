// Which parts of a model came from the source it is compared with, by what they state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_overlay.h"

namespace moepack {

// What the parts of a model say of their origin.
struct StatedSources {
  std::optional<std::string> residents;  // ResidentManifest::model; nullopt: a lone pack
  std::span<const PackSource> packs;     // of all packs, in order of their directories' names
  std::span<const ResidentOverlay> overlays;
};

struct SourceParts {
  std::uint64_t fingerprint = 0;  // of the source
  bool residents = false;         // they are compared with it
  // So are packs that do not say what they were made from, as those of other engines.
  bool unknown_packs = false;

  bool has(const PackSource& pack) const;
  bool has(const ResidentOverlay& overlay) const;
};

// Residents are of the source of the pack that names the same one; where there is none, of the one
// that their manifest names. What is of an unknown source is compared where the residents are of
// the given one, or where nothing in the model says that it is of it.
SourceParts parts_of_source(const StatedSources& stated, const std::string& name,
                            std::uint64_t fingerprint);

}  // namespace moepack
