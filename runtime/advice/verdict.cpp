#include "runtime/advice/verdict.h"

#include <algorithm>

#include "runtime/model/resident_tensors.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string((bytes + kMebibyte - 1) / kMebibyte) + " MiB";
}

Advice small_cache(const RunPlan& plan, const ModelDir& dir, std::uint64_t wanted) {
  Advice advice{.verdict = Verdict::kTight};
  advice.reason = "the cache of " + mebibytes(plan.memory.cache_bytes) +
                  " has no room for the experts of two tokens, " + mebibytes(wanted) +
                  ": what a token has read is gone before the next one asks for it";
  if (plan.request.cache_bytes != 0 && plan.request.available_bytes.has_value() &&
      plan.memory.fixed_bytes() + wanted <= *plan.request.available_bytes) {
    advice.remedy =
        "give --cache-mb " + std::to_string((wanted + kMebibyte - 1) / kMebibyte) + " or more";
    return advice;
  }
  if (plan.request.context != 0) {
    advice.remedy =
        larger_cache_remedy(dir.config, resident_memory(dir), dir.pack, plan.request, wanted);
  }
  return advice;
}

Advice little_left(const RunPlan& plan, std::uint64_t available) {
  Advice advice{.verdict = Verdict::kTight};
  const std::uint64_t total = plan.memory.total_bytes();
  advice.reason = "only " + mebibytes(available - std::min(available, total)) +
                  " of the memory there is would be left";
  const std::uint64_t most = available - available / 8;
  const std::uint64_t fixed = plan.memory.fixed_bytes();
  if (plan.request.cache_bytes != 0 && most > fixed + plan.memory.cache_floor_bytes) {
    advice.remedy = "give --cache-mb " + std::to_string((most - fixed) / kMebibyte) + " or less";
  }
  return advice;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "OK";
    case Verdict::kTight:
      return "TIGHT";
    default:
      return "REFUSE";
  }
}

Advice advise(const RunPlan& plan, const ModelDir& dir) {
  if (!plan.verdict.is_ok()) {
    return {.verdict = Verdict::kRefuse, .reason = plan.verdict.message(), .remedy = ""};
  }
  if (plan.use.has_value() && plan.use->plan.holds_all_experts()) return {};
  const MemoryPlan& memory = plan.memory;
  const std::uint64_t wanted = std::min(memory.pack_bytes, 2 * memory.cache_floor_bytes);
  if (memory.cache_bytes < wanted) return small_cache(plan, dir, wanted);
  const std::uint64_t available = plan.request.available_bytes.value_or(0);
  const auto left = static_cast<double>(available) - static_cast<double>(memory.total_bytes());
  if (available != 0 && left < kLeftShare * static_cast<double>(available)) {
    return little_left(plan, available);
  }
  return {};
}

}  // namespace moepack
