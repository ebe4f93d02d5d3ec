#include "runtime/model/memory_remedy.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "formats/base/bytes.h"
#include "runtime/model/byte_counts.h"

namespace moepack {
namespace {

// Every command takes a context of so many tokens.
constexpr std::uint64_t kLeastContext = 3;
constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

std::uint64_t available_bytes_of(const MemoryRequest& request) {
  return request.available_bytes.value_or(kTooManyBytes - 1);
}

// The largest value in [least, most] for which `holds` is true, which it is for `least`.
template <typename Holds>
std::uint64_t largest_value(std::uint64_t least, std::uint64_t most, const Holds& holds) {
  while (least < most) {
    const std::uint64_t middle = least + (most - least + 1) / 2;
    if (holds(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

class RemedySearch {
 public:
  RemedySearch(const MemoryRequest& request, const PlanOf& plan_of)
      : request_(request), plan_of_(plan_of) {}

  std::string find() const {
    if (request_.cache_bytes != 0 && fits(without_cache(request_))) return cache_way();
    if (std::string way = ways_of(request_); !way.empty()) return "give " + way;
    // Several flags at once, as few as help.
    const MemoryRequest uncached = without_cache(request_);
    const std::string leave =
        request_.cache_bytes != 0 ? "leave --cache-mb out and give " : "give ";
    if (std::string way = ways_of(uncached); !way.empty()) return leave + way;
    MemoryRequest one_thread = uncached;
    one_thread.threads = 1;
    if (fits(one_thread)) return leave + "-t 1";
    if (std::string way = ways_of(one_thread); !way.empty()) return leave + "-t 1 and " + way;
    return nothing_helps(one_thread);
  }

  std::string find_smaller() const {
    if (fits(request_)) return "";
    const std::string way = ways_of(request_);
    return way.empty() ? "" : "give " + way;
  }

 private:
  static MemoryRequest without_cache(MemoryRequest request) {
    request.cache_bytes = 0;
    return request;
  }
  static MemoryRequest with_chunk(MemoryRequest request, std::uint64_t tokens) {
    request.chunk_tokens = tokens;
    return request;
  }
  static MemoryRequest with_context(MemoryRequest request, std::uint64_t tokens) {
    request.context = tokens;
    return request;
  }
  static MemoryRequest with_cache(MemoryRequest request, std::uint64_t mebibytes) {
    request.cache_bytes = mebibytes * kMebibyte;
    return request;
  }
  static MemoryRequest with_snapshots(MemoryRequest request, std::uint64_t bytes) {
    request.snapshot_bytes = bytes;
    return request;
  }
  static MemoryRequest with_sequences(MemoryRequest request, std::uint64_t sequences) {
    request.sequences = sequences;
    return request;
  }
  static std::uint64_t least_context(const MemoryRequest& request) {
    return std::min(kLeastContext, request.context);
  }

  bool fits(const MemoryRequest& request) const { return fits_memory(plan_of_(request), request); }

  // Another budget alone helps; it may be that no whole number of MiB does.
  std::string cache_way() const {
    const MemoryPlan plan = plan_of_(without_cache(request_));
    const auto holds = [&](std::uint64_t mib) { return fits(with_cache(request_, mib)); };
    const std::uint64_t least = div_up(plan.cache_floor_bytes, kMebibyte);
    if (!holds(least)) return "leave --cache-mb out";
    if (request_.cache_bytes < plan.cache_floor_bytes) {
      return "give --cache-mb " + std::to_string(least) + " or more";
    }
    const std::uint64_t most = largest_value(least, request_.cache_bytes / kMebibyte, holds);
    return "give --cache-mb " + std::to_string(most) + " or less";
  }

  // Values of one flag, or else of several, with which `base` fits; empty when there are none.
  std::string ways_of(const MemoryRequest& base) const {
    if (std::string way = single_ways(base); !way.empty()) return way;
    if (std::string way = context_way(with_chunk(base, 1)); !way.empty()) {
      return "--chunk 1 and " + way;
    }
    if (base.snapshot_bytes > 0) {
      const std::string way = ways_of(with_snapshots(base, 0));
      if (!way.empty()) return "--checkpoint-mb 0 and " + way;
    }
    if (base.sequences > 1) {
      const std::string way = ways_of(with_sequences(base, 1));
      if (!way.empty()) return "--parallel 1 and " + way;
    }
    return "";
  }

  // Each flag whose value alone helps.
  std::string single_ways(const MemoryRequest& base) const {
    std::string ways;
    for (const std::string& way :
         {chunk_way(base), context_way(base), snapshot_way(base), sequence_way(base)}) {
      if (!way.empty()) ways += (ways.empty() ? "" : ", or ") + way;
    }
    return ways;
  }

  std::string chunk_way(const MemoryRequest& base) const {
    return way("--chunk", 1, base.chunk_tokens,
               [&](std::uint64_t n) { return with_chunk(base, n); });
  }
  std::string context_way(const MemoryRequest& base) const {
    return way("-c", least_context(base), base.context,
               [&](std::uint64_t n) { return with_context(base, n); });
  }
  // Commands that keep no snapshots do not have the flag.
  std::string snapshot_way(const MemoryRequest& base) const {
    if (base.snapshot_bytes == 0) return "";
    return way("--checkpoint-mb", 0, div_up(base.snapshot_bytes, kMebibyte),
               [&](std::uint64_t n) { return with_snapshots(base, n * kMebibyte); });
  }
  std::string sequence_way(const MemoryRequest& base) const {
    if (base.sequences == 1) return "";
    return way("--parallel", 1, base.sequences,
               [&](std::uint64_t n) { return with_sequences(base, n); });
  }

  // "FLAG N or less (now MOST)" with the largest value in [least, most] that fits; empty when none
  // does.
  template <typename With>
  std::string way(const char* flag, std::uint64_t least, std::uint64_t most,
                  const With& with) const {
    if (!fits(with(least))) return "";
    const std::uint64_t value =
        largest_value(least, most, [&](std::uint64_t n) { return fits(with(n)); });
    return std::string(flag) + " " + std::to_string(value) + " or less (now " +
           std::to_string(most) + ")";
  }

  std::string nothing_helps(const MemoryRequest& one_thread) const {
    const MemoryRequest least = with_sequences(
        with_snapshots(with_context(with_chunk(one_thread, 1), least_context(one_thread)), 0), 1);
    const std::uint64_t needed = plan_of_(least).total_bytes();
    return "no flag helps: this model's residents and the experts of one token alone take " +
           std::to_string(needed) + " bytes, " +
           std::to_string(needed - available_bytes_of(one_thread)) +
           " more than there are; free memory, or raise --ram-mb or the limit of the control group";
  }

  const MemoryRequest& request_;
  const PlanOf& plan_of_;
};

}  // namespace

bool fits_memory(const MemoryPlan& plan, const MemoryRequest& request) {
  return plan.cache_bytes >= plan.cache_floor_bytes &&
         plan.total_bytes() <= available_bytes_of(request);
}

std::string memory_remedy(const MemoryRequest& request, const PlanOf& plan_of) {
  return RemedySearch(request, plan_of).find();
}

std::string smaller_request_remedy(const MemoryRequest& request, const PlanOf& plan_of) {
  return RemedySearch(request, plan_of).find_smaller();
}

}  // namespace moepack
