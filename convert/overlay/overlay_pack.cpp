#include "convert/overlay/overlay_pack.h"

#include <filesystem>
#include <set>

#include "convert/job/read_back.h"
#include "convert/report/pack_summary.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

namespace fs = std::filesystem;

Status OverlayPack::open_journal(std::uint64_t digest, bool restart) {
  const std::string what = "experts " + pack_formats(plan_.pack) + " of " + plan_.pack.source.name;
  if (journal_.is_empty()) return journal_.start(WorkKind::kOverlay, digest, what);
  if (journal_.plan() == digest) return Status::ok();
  if (restart) return journal_.start(WorkKind::kOverlay, digest, what);
  const std::string there = output_.path().string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = there},
                    "holds an interrupted pack of something else, " + printable(journal_.what()),
                    "give the same call to continue it, --restart to drop it, or another --name");
}

Status OverlayPack::prepare(std::uint64_t digest, bool restart) {
  MOE_RETURN_IF_ERROR(open_journal(digest, restart));
  std::set<fs::path> kept;
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr) continue;
    if (take_layer_file(output_.path(), plan_.pack, l, *journal_.layer_checksums(l), threads_)) {
      kept.insert(output_.path() / plan_.pack.layers[l].file);
    } else {
      journal_.forget_layer(l);
    }
  }
  return output_.keep_only(kept);
}

std::uint64_t OverlayPack::bytes_left() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr) bytes += plan_.pack.layers[l].file_size;
  }
  return bytes;
}

Status OverlayPack::run_layer(std::uint32_t l, std::vector<PackWorker>& workers,
                              ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, write_layer_file(plan_.experts, output_.path(), l, workers,
                                                         plan_.pack, progress));
  MOE_RETURN_IF_ERROR(file.commit());
  std::vector<std::uint64_t> sums;
  for (const ExpertEntry& expert : plan_.pack.layers[l].experts) sums.push_back(expert.checksum);
  MOE_RETURN_IF_ERROR(journal_.add_layer(l, std::move(sums)));
  progress.layer_done();
  return Status::ok();
}

Status OverlayPack::run(ProgressCounter& progress) {
  // What is finished stays, whatever ends this run.
  output_.keep();
  std::vector<PackWorker> workers(threads_);
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) != nullptr) continue;
    Status status = run_layer(l, workers, progress);
    if (status.is_ok()) continue;
    if (journal_.layers_done() == 0) output_.discard();
    return status;
  }
  MOE_RETURN_IF_ERROR(write_pack_manifest(output_.path(), plan_.pack));
  MOE_RETURN_IF_ERROR(journal_.add_completion());
  return output_.finish();
}

}  // namespace moepack
