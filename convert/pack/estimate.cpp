#include "convert/pack/estimate.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "convert/job/parallel.h"
#include "convert/pack/pack.h"
#include "formats/base/bytes.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"

namespace moepack {
namespace {

constexpr double kProbeSeconds = 2;
// Enough to see the disk behind the system's cache.
constexpr std::uint64_t kProbeBytes = std::uint64_t{1} << 30;

// At most a quarter of what is free, so that others can go on writing.
std::uint64_t probe_limit(const std::filesystem::path& directory) {
  std::error_code error;
  const auto space = std::filesystem::space(directory, error);
  return error ? 0 : std::min<std::uint64_t>(kProbeBytes, space.available / 4);
}

}  // namespace

Result<double> estimate_seconds(const ConvertPlan& plan, const std::filesystem::path& directory,
                                std::size_t threads) {
  const PackManifest& pack = plan.pack;
  const std::size_t experts = std::size_t{pack.num_layers} * pack.num_experts;
  // A stride that shares no factor with their number visits every expert once, far apart.
  std::size_t stride = 7919;
  while (std::gcd(stride, experts) != 1) ++stride;
  std::vector<PackWorker> workers(threads);
  std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint64_t> written{0};
  const std::uint64_t limit = probe_limit(directory);
  const Clock::time_point start = Clock::now();
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create_unnamed(directory));
  file.write_directly();
  const auto probe = [&](std::size_t item, std::size_t w) -> Status {
    if (seconds_since(start) > kProbeSeconds) return Status::ok();
    const std::size_t at = item * stride % experts;
    const auto layer = static_cast<std::uint32_t>(at / pack.num_experts);
    const auto expert = static_cast<std::uint32_t>(at % pack.num_experts);
    if (pack.experts_of(layer) == 0) return Status::ok();
    const ExpertLayout& layout = pack.layout_of(layer, expert);
    const std::uint64_t room = align_up(layout.record_bytes, kDirectUnit);
    if (written + room * workers.size() > limit || !plan.experts.has_data(layer, expert)) {
      return Status::ok();
    }
    const std::uint64_t offset = written.fetch_add(room);
    MOE_RETURN_IF_ERROR(
        write_record(plan.experts, layout, layer, expert, file, offset, workers[w]).status());
    read += plan.experts.bytes(layer, expert);
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(experts, threads, probe));
  MOE_RETURN_IF_ERROR(file.sync());
  const double seconds = seconds_since(start);
  if (read == 0) return 0.0;
  return seconds / static_cast<double>(read.load()) * static_cast<double>(plan.source_bytes);
}

}  // namespace moepack
