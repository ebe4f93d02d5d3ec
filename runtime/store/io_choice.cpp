#include "runtime/store/io_choice.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/store/direct_file.h"
#include "runtime/store/disk_probe.h"
#include "runtime/store/mirror_reader.h"
#include "runtime/store/stall_watch.h"
#include "runtime/store/thread_reader.h"
#include "runtime/store/uring_reader.h"

namespace moepack {
namespace {

// Reads under way at once on each disk, by threads.
constexpr std::uint32_t kThreadsPerPlace = 8;
// Reads that the kernel has at once from each disk.
constexpr std::uint32_t kDepthPerPlace = 32;
// A file below this says little of its disk.
constexpr std::uint64_t kLeastMeasured = std::uint64_t{64} << 20;
constexpr double kProbeMilliseconds = 40;
// How much faster a disk must be through the page cache, in percent, to be read that way.
constexpr std::uint64_t kMuchFaster = 125;

std::uint64_t bytes_of_pack(const PackManifest& manifest) {
  std::uint64_t bytes = 0;
  for (const LayerEntry& layer : manifest.layers) bytes += layer.file_size;
  return bytes;
}

std::string gigabytes_text(std::uint64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << static_cast<double>(bytes) / 1e9;
  return out.str();
}

bool is_aligned(const PackManifest& manifest) { return manifest.page_size % kDirectUnit == 0; }

// One file of each place: the largest.
std::vector<std::filesystem::path> file_of_each_place(const IoRequest& request) {
  std::vector<std::filesystem::path> chosen(request.files.num_places);
  std::vector<std::uint64_t> sizes(request.files.num_places);
  for (std::size_t layer = 0; layer < request.files.of_layer.size(); ++layer) {
    const std::uint64_t size = request.manifest.layers[layer].file_size;
    for (const std::uint32_t file : request.files.of_layer[layer]) {
      const std::uint32_t place = request.files.places[file];
      if (!chosen[place].empty() && size <= sizes[place]) continue;
      chosen[place] = request.files.files[file];
      sizes[place] = size;
    }
  }
  // The pack's own directory may have none.
  chosen.erase(std::remove(chosen.begin(), chosen.end(), std::filesystem::path()), chosen.end());
  return chosen;
}

// The directories that are read, for people.
std::string places_text(const PackFiles& files) {
  std::string text;
  std::vector<bool> is_named(files.num_places);
  for (std::size_t i = 0; i < files.files.size(); ++i) {
    if (files.files[i].empty() || is_named[files.places[i]]) continue;
    is_named[files.places[i]] = true;
    if (!text.empty()) text += ", ";
    text += files.files[i].parent_path().string();
  }
  return text;
}

// Ok when every place can be read directly; else names what cannot.
Status check_direct(const IoRequest& request) {
  if (!is_aligned(request.manifest)) {
    return unsupported(Where{.file = request.files.first().string()},
                       "has records at any byte, which cannot be read past the page cache",
                       "adopt the model with moepack import, or give --io buffered");
  }
  for (const std::filesystem::path& path : file_of_each_place(request)) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
    if (DirectFile::open(file).is_open()) continue;
    return unsupported(Where{.file = file.path()},
                       "lies on a file system that cannot be read past the page cache",
                       "give --io buffered or auto");
  }
  return Status::ok();
}

Result<DiskRates> measure_rates(const std::filesystem::path& file, const IoRequest& request) {
  DiskProbe probe{.request_bytes = largest_record_bytes(request.manifest)};
  probe.milliseconds = kProbeMilliseconds;
  MOE_ASSIGN_OR_RETURN(const DiskRate direct, measure_disk_rate(file, probe));
  probe.direct = false;
  probe.seed = 2;  // other places: a cache below the system may have these
  MOE_ASSIGN_OR_RETURN(const DiskRate buffered, measure_disk_rate(file, probe));
  DiskRates rates{.direct = static_cast<std::uint64_t>(direct.bytes_per_second),
                  .buffered = static_cast<std::uint64_t>(buffered.bytes_per_second)};
  // What the page cache would not forget says nothing of the disk.
  if (buffered.cached_share > 0.1) rates.buffered = 0;
  return rates;
}

// Of the place that is slowest directly; nullopt where no file is worth a measurement, or none is
// known and `may_measure` is false.
Result<std::optional<DiskRates>> slowest_rates(const IoRequest& request, bool may_measure) {
  std::optional<DiskRates> slowest;
  for (const std::filesystem::path& path : file_of_each_place(request)) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
    const std::optional<DiskId> disk = disk_of(path);
    if (!disk.has_value() || file.size() < kLeastMeasured) continue;
    std::optional<DiskRates> rates = recall_disk(request.options.disk_file, *disk);
    if (!rates.has_value() && may_measure) {
      // A disk that cannot be measured is judged when it is read; another may have what it lacks.
      const Result<DiskRates> measured = measure_rates(path, request);
      if (!measured.is_ok()) continue;
      rates = measured.value();
      remember_disk(request.options.disk_file, {.id = *disk, .rates = *rates});
    }
    if (!rates.has_value()) continue;
    if (!slowest.has_value() || rates->direct < slowest->direct) slowest = rates;
  }
  return slowest;
}

bool fits_spare(const IoRequest& request) {
  return request.spare_bytes.has_value() && bytes_of_pack(request.manifest) <= *request.spare_bytes;
}

Result<IoChoice> choose_mode(const IoRequest& request) {
  const IoMode asked = request.options.io;
  if (asked == IoMode::kDirect) MOE_RETURN_IF_ERROR(check_direct(request));
  IoChoice choice{.mode = asked, .is_plain = false};
  // A measurement takes time; it is left out where the rule does not ask for it.
  const bool can_be_direct = !fits_spare(request) && check_direct(request).is_ok();
  std::optional<DiskRates> rates;
  if (!fits_spare(request)) {
    MOE_ASSIGN_OR_RETURN(rates, slowest_rates(request, can_be_direct && asked == IoMode::kAuto));
  }
  if (asked == IoMode::kAuto) choice = automatic_mode(request, can_be_direct, rates);
  if (!rates.has_value()) return choice;
  const bool is_direct = choice.mode == IoMode::kDirect;
  choice.disk_bytes_per_second = is_direct ? rates->direct : rates->buffered;
  return choice;
}

Result<IoEngine> choose_engine(const IoRequest& request, IoMode mode) {
  const IoEngine asked = request.options.engine;
  if (asked == IoEngine::kUring && mode == IoMode::kMmap) {
    return invalid_argument("--io-engine uring reads no mapped files",
                            "give --io direct or buffered, or leave --io-engine out");
  }
  if (asked == IoEngine::kUring) MOE_RETURN_IF_ERROR(UringReader::check_available());
  if (asked != IoEngine::kAuto) return asked;
  // What the page cache has is copied in the thread that asks: several do that at once.
  const bool can_be_uring = mode == IoMode::kDirect && UringReader::check_available().is_ok();
  return can_be_uring ? IoEngine::kUring : IoEngine::kThreads;
}

}  // namespace

IoChoice automatic_mode(const IoRequest& request, bool can_be_direct,
                        const std::optional<DiskRates>& rates) {
  if (fits_spare(request)) {
    return {.mode = IoMode::kBuffered,
            .reason = "the pack of " + gigabytes_text(bytes_of_pack(request.manifest)) +
                      " GB fits into free memory"};
  }
  IoChoice choice{.mode = IoMode::kBuffered, .is_plain = false};
  const std::string pack = gigabytes_text(bytes_of_pack(request.manifest)) +
                           " GB of experts do not fit into the page cache beside the plan";
  if (!can_be_direct) {
    choice.reason = pack + ", but its files cannot be read past it";
    return choice;
  }
  if (!rates.has_value()) {
    choice.mode = IoMode::kDirect;
    choice.reason = pack;
    return choice;
  }
  const bool is_faster_buffered = rates->buffered > rates->direct / 100 * kMuchFaster;
  choice.mode = is_faster_buffered ? IoMode::kBuffered : IoMode::kDirect;
  choice.reason = pack + "; the disk gave " + gigabytes_text(rates->direct) + " GB/s directly";
  if (rates->buffered != 0) choice.reason += ", " + gigabytes_text(rates->buffered) + " buffered";
  return choice;
}

Result<IoChoice> choose_io(const IoRequest& request) {
  MOE_ASSIGN_OR_RETURN(IoChoice choice, choose_mode(request));
  MOE_ASSIGN_OR_RETURN(choice.engine, choose_engine(request, choice.mode));
  return choice;
}

Result<std::unique_ptr<RecordReader>> open_record_reader(const IoRequest& request,
                                                         const IoChoice& choice) {
  const PackFiles& files = request.files;
  std::unique_ptr<RecordReader> reader;
  if (choice.engine == IoEngine::kUring) {
    MOE_ASSIGN_OR_RETURN(reader,
                         UringReader::open(files.files, {.depth = kDepthPerPlace * files.num_places,
                                                         .mode = choice.mode}));
  } else {
    MOE_ASSIGN_OR_RETURN(
        reader, ThreadReader::open(files.files, kThreadsPerPlace * files.num_places, choice.mode));
  }
  const StoreNotice& notice = request.options.on_notice;
  std::function<std::string()> source = [text = places_text(files)] { return text; };
  if (files.has_further()) {
    auto mirror =
        std::make_unique<MirrorReader>(std::move(reader), files, request.manifest, notice);
    // Ends before the reader that it asks, which the watch owns.
    source = [own = mirror.get(), all = source] {
      const std::string awaited = own->awaited_places();
      return awaited.empty() ? all() : awaited;
    };
    reader = std::move(mirror);
  }
  if (!notice) return reader;
  MOE_ASSIGN_OR_RETURN(reader, StallWatch::open(std::move(reader), std::move(source), notice));
  return reader;
}

}  // namespace moepack
