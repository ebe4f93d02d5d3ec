// Writes the layer files of an expert pack.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "convert/job/progress_counter.h"
#include "convert/pack/transcode.h"
#include "convert/source/expert_source.h"
#include "formats/base/file.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// The buffers of one thread that packs experts: about three mebibytes, with panels four, whatever
// the model.
struct PackWorker {
  Transcoder transcoder;
  AlignedBuffer output;
  Components<std::vector<std::byte>> parts;
};

// Writes one record to `file` at `offset` and returns its XXH3-64.
Result<std::uint64_t> write_record(const ExpertSource& source, const ExpertLayout& layout,
                                   std::uint32_t layer, std::uint32_t expert, AtomicFile& file,
                                   std::uint64_t offset, PackWorker& worker);

// Writes layer_NN.bin of one layer into `directory` as `pack` says and fills in its checksums. The
// experts are shared among `workers`, one thread each; the bytes do not depend on their number. The
// file is complete but neither synced nor under its name: commit() it. layout.json is left to the
// caller.
Result<AtomicFile> write_layer_file(const ExpertSource& source,
                                    const std::filesystem::path& directory, std::uint32_t layer,
                                    std::vector<PackWorker>& workers, PackManifest& pack,
                                    ProgressCounter& progress);

}  // namespace moepack
