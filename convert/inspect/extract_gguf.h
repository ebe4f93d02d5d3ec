// extract on a GGUF file.
#pragma once

#include "convert/inspect/extract.h"
#include "convert/job/byte_sink.h"
#include "formats/base/status.h"

namespace moepack {

// Does what extract_tensor does. Names are the file's own, with or without .weight. Bytes of a
// big-endian file are handed on in little-endian order.
Result<ExtractedTensor> extract_gguf_tensor(const ExtractOptions& options, const ByteSink& sink);

}  // namespace moepack
