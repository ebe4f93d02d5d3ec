#include "runtime/option_checks.h"

#include <string>

namespace moepack {
namespace {

// Cache-aware routing is the cpu backend's, and its states are nobody else's.
Status check_car(const EngineOptions& options, const ModelConfig& config) {
  if (!options.car.is_on()) return Status::ok();
  const std::uint32_t top_k = config.experts_per_token;
  if (options.backend == Backend::kReference) {
    return unsupported(Where{}, "the reference backend routes exactly (--car)",
                       "give --backend cpu, or leave --car out");
  }
  if (options.saves_sequence) {
    return unsupported(Where{},
                       "a prompt that was computed with --car is not the model's, and its state "
                       "is not saved",
                       "leave --car out, or what saves states (--prompt-cache, --slot-save-path)");
  }
  if (options.car.always <= top_k && top_k <= options.car.among &&
      options.car.among <= config.num_experts) {
    return Status::ok();
  }
  return invalid_argument("--car " + std::to_string(options.car.always) + "," +
                              std::to_string(options.car.among) + " does not fit a model of " +
                              std::to_string(config.num_experts) + " experts, " +
                              std::to_string(top_k) + " a token",
                          "give J,M with J <= " + std::to_string(top_k) +
                              " <= M <= " + std::to_string(config.num_experts));
}

// What is read ahead is in memory, which cache-aware routing prefers; and it is waited for while
// the times of a trace are taken.
Status check_lookahead(const EngineOptions& options) {
  if (options.store.is_lookahead_automatic || options.store.lookahead == 0) return Status::ok();
  if (options.car.is_on()) {
    return invalid_argument("--lookahead would change what --car chooses", "leave one of them out");
  }
  if (options.store.trace.empty()) return Status::ok();
  return invalid_argument("--lookahead would change what --trace records", "leave one of them out");
}

}  // namespace

Status check_cpu_options(const EngineOptions& options, const ModelConfig& config) {
  MOE_RETURN_IF_ERROR(check_car(options, config));
  return check_lookahead(options);
}

Status check_hot_options(const EngineOptions& options) {
  const HotOptions& hot = options.hot;
  if (options.hot_experts.has_value() && !hot.profile.empty()) {
    return invalid_argument("there are a hot set and a profile for one", "give one of them");
  }
  if (options.cold_experts != ColdExperts::kFetch) return Status::ok();
  const std::string flag = !hot.profile.empty()  ? "--hot-profile"
                           : hot.update_rate > 0 ? "--hot-update-rate"
                           : !hot.report.empty() ? "--lane-report"
                                                 : "";
  if (flag.empty()) return Status::ok();
  return invalid_argument(flag + " means nothing to --cold-experts fetch, which keeps no experts",
                          "give --cold-experts cpu or auto");
}

Status check_devices(const EngineOptions& options) {
  if (!options.tensor_split.empty() && options.tensor_split.size() != options.devices.size()) {
    return invalid_argument("--tensor-split has " + std::to_string(options.tensor_split.size()) +
                                " shares for " + std::to_string(options.devices.size()) +
                                " devices",
                            "give a share for each of --devices");
  }
  return Status::ok();
}

Status check_device_options(const EngineOptions& options) {
  MOE_RETURN_IF_ERROR(check_devices(options));
  if (options.car.is_on()) {
    return unsupported(Where{}, "the vulkan backend routes exactly (--car)",
                       "give --backend cpu, or leave --car out");
  }
  if (!options.store.is_lookahead_automatic && options.store.lookahead != 0) {
    return unsupported(Where{}, "the vulkan backend reads no experts ahead (--lookahead)",
                       "give --backend cpu, or leave --lookahead out");
  }
  if (!options.store.pinned.empty()) {
    return unsupported(Where{}, "the vulkan backend keeps no chosen experts (--pin)",
                       "give --backend cpu, or leave --pin out");
  }
  if (options.store.trace.empty()) return Status::ok();
  return unsupported(Where{}, "the vulkan backend does not tell which experts it chose (--trace)",
                     "give --backend cpu, or leave --trace out");
}

}  // namespace moepack
