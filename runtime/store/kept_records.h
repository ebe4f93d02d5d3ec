// The records that a profile of expert use says are hottest, to be kept in the cache (--pin).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/expert_profile.h"
#include "runtime/store/eviction_policy.h"

namespace moepack {

struct KeptRecords {
  std::vector<RecordKey> keys;  // hottest first
  std::uint64_t bytes = 0;      // of memory, as RecordCache counts it
};

// Bytes of an expert's record; 0 where the layer has no experts, of which none is kept.
using RecordBytes = std::function<std::uint64_t(std::uint32_t layer, std::uint32_t expert)>;

// Takes the experts in the order of their share of their layer's uses (a profile of ranks: of their
// rank), equally hot ones by layer and id, as long as they fit into `most_bytes` of memory; one
// that does not fit is passed over. Experts that were never used are not kept.
KeptRecords hottest_records(const ExpertProfile& profile, const RecordBytes& bytes_of,
                            std::uint64_t most_bytes);

// What a profile must agree with (check_same_model).
struct ProfiledModel {
  std::string name;  // of the model directory
  std::uint64_t source_fingerprint = 0;
  ExpertShape shape;
  std::uint32_t experts_per_token = 0;
};

// kInvalidArgument, naming `file`, for a profile of another model.
Status check_profiled_model(const ExpertProfile& profile, const ProfiledModel& model,
                            const std::string& file);
// A profile in any of the formats that `moepack profile` reads, checked so. Errors name the file.
Result<ExpertProfile> read_model_profile(const std::filesystem::path& file,
                                         const ProfiledModel& model);

// The same of a file, which may have any of the formats that `moepack profile` reads. Errors name
// it; kInvalidArgument for a profile of another model.
Result<KeptRecords> read_kept_records(const std::filesystem::path& profile,
                                      const ProfiledModel& model, const RecordBytes& bytes_of,
                                      std::uint64_t most_bytes);

}  // namespace moepack
