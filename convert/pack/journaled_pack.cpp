#include "convert/pack/journaled_pack.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "convert/job/read_back.h"

namespace moepack {

namespace fs = std::filesystem;

Status JournaledPack::open_journal(const Work& work, bool restart) {
  if (journal_.is_empty()) return journal_.start(work.kind, work.digest, work.what);
  if (journal_.plan() == work.digest) return Status::ok();
  if (restart) return journal_.start(work.kind, work.digest, work.what);
  const std::string there = output_.path().string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = there},
                    "holds an interrupted pack of something else, " + printable(journal_.what()),
                    "give the same call to continue it, --restart to drop it, or another name");
}

Status JournaledPack::prepare(const Work& work, bool restart) {
  MOE_RETURN_IF_ERROR(open_journal(work, restart));
  std::set<fs::path> kept;
  for (std::uint32_t l = 0; l < pack_.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr) continue;
    if (take_layer_file(output_.path(), pack_, l, *journal_.layer_checksums(l), threads_)) {
      kept.insert(output_.path() / pack_.layers[l].file);
    } else {
      journal_.forget_layer(l);
    }
  }
  return output_.keep_only(kept);
}

std::uint64_t JournaledPack::bytes_left() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < pack_.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr) bytes += pack_.layers[l].file_size;
  }
  return bytes;
}

Status JournaledPack::run_layer(std::uint32_t l, const LayerWriter& write_layer,
                                ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, write_layer(l, progress));
  MOE_RETURN_IF_ERROR(file.commit());
  std::vector<std::uint64_t> sums;
  for (const ExpertEntry& expert : pack_.layers[l].experts) sums.push_back(expert.checksum);
  MOE_RETURN_IF_ERROR(journal_.add_layer(l, std::move(sums)));
  progress.layer_done();
  return Status::ok();
}

Status JournaledPack::run(const LayerWriter& write_layer, const std::vector<std::uint32_t>& layers,
                          ProgressCounter& progress) {
  // What is finished stays, whatever ends this run.
  output_.keep();
  for (std::uint32_t l = 0; l < pack_.num_layers; ++l) {
    const bool is_wanted =
        layers.empty() || std::find(layers.begin(), layers.end(), l) != layers.end();
    const bool is_done = pack_.experts_of(l) == 0 || journal_.layer_checksums(l) != nullptr;
    if (!is_wanted || is_done) continue;
    Status status = run_layer(l, write_layer, progress);
    if (status.is_ok()) continue;
    if (journal_.layers_done() == 0) output_.discard();
    return status;
  }
  if (layers_left() > 0) return Status::ok();
  MOE_RETURN_IF_ERROR(write_pack_manifest(output_.path(), pack_));
  MOE_RETURN_IF_ERROR(journal_.add_completion());
  return output_.finish();
}

}  // namespace moepack
