#include "convert/pack/journaled_pack.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "convert/job/read_back.h"

namespace moepack {

namespace fs = std::filesystem;

Result<bool> JournaledPack::is_continued(const ConversionJournal& journal, const Work& work,
                                         bool restart, const fs::path& directory) {
  if (journal.is_empty()) return false;
  if (journal.plan() == work.digest) return true;
  if (restart) return false;
  const std::string there = directory.string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = there},
                    "holds an interrupted pack of something else, " + printable(journal.what()),
                    "give the same call to continue it, --restart to drop it, or another name");
}

Result<std::uint64_t> JournaledPack::foresee(const PackManifest& pack, const fs::path& directory,
                                             const Work& work, bool restart) {
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::look(directory / kUnfinishedMarker));
  MOE_ASSIGN_OR_RETURN(const bool continued, is_continued(journal, work, restart, directory));
  if (!continued) return bytes_left(pack, {});
  forget_missing_layers(directory, pack, journal);
  return bytes_left(pack, journal);
}

Status JournaledPack::prepare(const Work& work, bool restart) {
  MOE_ASSIGN_OR_RETURN(const bool continued, is_continued(journal_, work, restart, output_.path()));
  if (!continued) MOE_RETURN_IF_ERROR(journal_.start(work.kind, work.digest, work.what));
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

std::uint64_t JournaledPack::bytes_left(const PackManifest& pack,
                                        const ConversionJournal& journal) {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    if (journal.layer_checksums(l) == nullptr) bytes += pack.layers[l].file_size;
  }
  return bytes;
}

std::uint64_t JournaledPack::bytes_left() const { return bytes_left(pack_, journal_); }

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
