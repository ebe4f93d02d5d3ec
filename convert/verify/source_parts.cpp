#include "convert/verify/source_parts.h"

#include <algorithm>

#include "convert/overlay/overlay.h"

namespace moepack {
namespace {

// The pack that was converted or quantized from what the residents were made of. Sources of one
// name may differ: packed_experts, which convert wrote beside the residents, is the first by name.
const PackSource* pack_of_residents(const StatedSources& stated) {
  const auto found =
      std::find_if(stated.packs.begin(), stated.packs.end(), [&](const PackSource& pack) {
        return pack.fingerprint != 0 && pack.method != kOverlayMethod &&
               pack.name == stated.residents;
      });
  return found != stated.packs.end() ? &*found : nullptr;
}

}  // namespace

bool SourceParts::has(const PackSource& pack) const {
  return pack.fingerprint == 0 ? unknown_packs : pack.fingerprint == fingerprint;
}

bool SourceParts::has(const ResidentOverlay& overlay) const {
  return overlay.has_checksum && overlay.source.fingerprint == fingerprint;
}

SourceParts parts_of_source(const StatedSources& stated, const std::string& name,
                            std::uint64_t fingerprint) {
  SourceParts parts{.fingerprint = fingerprint};
  const auto is_of_it = [&](const auto& part) { return parts.has(part); };
  const auto is_unknown = [](const PackSource& pack) { return pack.fingerprint == 0; };
  // Packs of an unknown source do not count yet.
  const bool any = std::any_of(stated.packs.begin(), stated.packs.end(), is_of_it) ||
                   std::any_of(stated.overlays.begin(), stated.overlays.end(), is_of_it);
  const PackSource* own = pack_of_residents(stated);
  parts.residents = own != nullptr ? own->fingerprint == fingerprint : stated.residents == name;
  parts.unknown_packs = parts.residents || !any;
  if (own == nullptr && !any) {
    parts.residents =
        parts.residents || std::any_of(stated.packs.begin(), stated.packs.end(), is_unknown);
  }
  return parts;
}

}  // namespace moepack
