// What a quantization will write, before anything is written.
#pragma once

#include "convert/quantize/quantize.h"
#include "convert/quantize/quantize_inputs.h"
#include "convert/quantize/reusable_packs.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

struct QuantizePlan : QuantizeInputs {
  PackManifest pack;                // complete but for checksums and report
  std::filesystem::path directory;  // of the pack
  std::uint64_t pack_bytes = 0;     // of all layer files
  std::uint64_t total_bytes = 0;    // with the manifest, estimated
  std::uint64_t worker_bytes = 0;   // memory of one thread
  std::uint64_t recipe = 0;         // PackReport::recipe
  ReusablePacks reuse;
  std::vector<std::uint32_t> reused;  // [layers]: experts that are taken over
  std::uint64_t digest = 0;           // of everything that decides about the bytes
};

// kInvalidArgument: options that contradict each other or the shapes.
Result<QuantizePlan> make_quantize_plan(const QuantizeOptions& options);

}  // namespace moepack
