#include "runtime/store/kept_records.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "formats/calibration/foreign_profile.h"
#include "runtime/store/record_cache.h"

namespace moepack {
namespace {

class KeepRecords final : public EvictionPolicy {
 public:
  KeepRecords(std::unique_ptr<EvictionPolicy> rest, std::span<const RecordKey> kept)
      : rest_(std::move(rest)), is_kept_(kept.begin(), kept.end()) {}

  void used(RecordKey key) override { policy_of(key).used(key); }
  void removed(RecordKey key) override { policy_of(key).removed(key); }
  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) override {
    const std::optional<RecordKey> key = rest_->victim(may_leave);
    return key.has_value() ? key : kept_->victim(may_leave);
  }

 private:
  EvictionPolicy& policy_of(RecordKey key) { return is_kept_.contains(key) ? *kept_ : *rest_; }

  std::unique_ptr<EvictionPolicy> rest_;
  std::unique_ptr<EvictionPolicy> kept_ = least_recently_used();
  std::unordered_set<RecordKey> is_kept_;
};

// An expert and how much it is used, by share of its layer's uses or by rank.
struct Candidate {
  double heat = 0;
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
};

// Hottest first; equally hot ones by layer and id.
std::vector<Candidate> candidates_of(const ExpertProfile& profile) {
  std::vector<Candidate> all;
  for (std::uint32_t layer = 0; layer < profile.layers.size(); ++layer) {
    const LayerProfile& counts = profile.layers[layer];
    const auto uses = static_cast<double>(layer_uses(counts));
    const std::vector<std::uint32_t> used = used_experts(counts);
    for (std::size_t rank = 0; rank < used.size(); ++rank) {
      const double heat = counts.counts.empty()
                              ? -static_cast<double>(rank)
                              : static_cast<double>(counts.counts[used[rank]]) / uses;
      all.push_back({.heat = heat, .layer = layer, .expert = used[rank]});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.heat > b.heat; });
  return all;
}

}  // namespace

std::unique_ptr<EvictionPolicy> keep_records(std::unique_ptr<EvictionPolicy> rest,
                                             std::span<const RecordKey> kept) {
  return std::make_unique<KeepRecords>(std::move(rest), kept);
}

KeptRecords hottest_records(const ExpertProfile& profile, const RecordBytes& bytes_of,
                            std::uint64_t most_bytes) {
  KeptRecords kept;
  for (const Candidate& candidate : candidates_of(profile)) {
    const std::uint64_t bytes = record_memory_bytes(bytes_of(candidate.layer, candidate.expert));
    if (bytes == 0 || bytes > most_bytes - kept.bytes) continue;
    kept.bytes += bytes;
    kept.keys.push_back(RecordKey{candidate.layer} * profile.shape.num_experts + candidate.expert);
  }
  return kept;
}

Status check_profiled_model(const ExpertProfile& profile, const ProfiledModel& model,
                            const std::string& file) {
  ExpertProfile known;
  known.model = model.name;
  known.source_fingerprint = model.source_fingerprint;
  known.shape = model.shape;
  known.experts_per_token = model.experts_per_token;
  Status same = profile.shape == model.shape
                    ? check_same_model(known, profile)
                    : invalid_argument("is of another model, with " + to_string(profile.shape) +
                                           "; this one has " + to_string(model.shape),
                                       "run moepack profile on this model");
  return same.is_ok() ? same : make_error(same.code(), Where{.file = file}, same.message());
}

Result<ExpertProfile> read_model_profile(const std::filesystem::path& file,
                                         const ProfiledModel& model) {
  MOE_ASSIGN_OR_RETURN(ProfileInput input, read_profile_input(file, model.shape));
  MOE_RETURN_IF_ERROR(check_profiled_model(input.profile, model, file.string()));
  return std::move(input.profile);
}

Result<KeptRecords> read_kept_records(const std::filesystem::path& profile,
                                      const ProfiledModel& model, const RecordBytes& bytes_of,
                                      std::uint64_t most_bytes) {
  MOE_ASSIGN_OR_RETURN(const ExpertProfile checked, read_model_profile(profile, model));
  return hottest_records(checked, bytes_of, most_bytes);
}

}  // namespace moepack
