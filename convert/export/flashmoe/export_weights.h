// Writes the weight files of an export plan.
#pragma once

#include "convert/export/flashmoe/export_plan.h"
#include "convert/job/export_directory.h"
#include "convert/job/progress_counter.h"

namespace moepack {

// Reads `model`'s resident data, whose checksum is verified first where there is one, and writes
// the files of plan.chunks into `directory`, in blocks of a few mebibytes: no tensor is ever whole
// in memory, and the bytes do not depend on the number of threads. kCorrupt: the checksum differs,
// or a matrix that is to be rounded holds a value that is not finite.
Status write_export_weights(const ModelDir& model, const ExportPlan& plan, std::size_t threads,
                            ExportDirectory& directory, ProgressCounter& progress);

}  // namespace moepack
