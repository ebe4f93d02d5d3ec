// Records of a pack on their way into another one.
#pragma once

#include <cstdint>

#include "convert/job/record_stream.h"
#include "formats/base/file.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Appends the record of `expert` in `file`, the layer's, to `out`: in the layout `to`, which is the
// record's own but for the order of rows. Reads blocks of about a mebibyte. kCorrupt, naming file,
// expert and offset, where the pack has checksums and the record has another.
Status copy_record(const PackManifest& pack, std::uint32_t layer, std::uint32_t expert,
                   const File& file, const ExpertLayout& to, RecordStream& out);

}  // namespace moepack
