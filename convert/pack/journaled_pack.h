// One expert pack, written layer by layer with a journal of what is finished.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "convert/job/progress_counter.h"
#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

class JournaledPack {
 public:
  // Writes the file of one layer into the directory and fills in its checksums; the file is
  // complete but neither synced nor under its name.
  using LayerWriter = std::function<Result<AtomicFile>(std::uint32_t layer, ProgressCounter&)>;
  // What is written, in words, and by which command.
  struct Work {
    WorkKind kind = WorkKind::kConversion;
    std::string what;
    // Of everything that decides about the bytes.
    std::uint64_t digest = 0;
  };

  // Writes `pack`, complete but for the checksums, into `output`; both outlive the object.
  JournaledPack(PackManifest& pack, OutputDirectory& output, ConversionJournal journal,
                std::size_t threads)
      : pack_(pack), output_(output), journal_(std::move(journal)), threads_(threads) {}

  // What prepare() would say of the pack in `directory`, and bytes_left() after it. Finished layers
  // are told by the journal and their sizes: none is read.
  static Result<std::uint64_t> foresee(const PackManifest& pack,
                                       const std::filesystem::path& directory, const Work& work,
                                       bool restart);

  // Takes over what an earlier run finished if it reads back whole, and removes the rest.
  // kInvalidArgument: a pack with another digest was interrupted here; `restart` drops it.
  Status prepare(const Work& work, bool restart);
  // Writes what is left of `layers` (empty: of all), the manifest once nothing is left. After an
  // error what is finished stays for the next run.
  Status run(const LayerWriter& write_layer, const std::vector<std::uint32_t>& layers,
             ProgressCounter& progress);

  std::size_t layers_done() const { return journal_.layers_done(); }
  std::size_t layers_left() const { return pack_.expert_layers() - journal_.layers_done(); }
  // Of layer files that are not finished.
  std::uint64_t bytes_left() const;

 private:
  // True: the journal is of this work; false: one has to be started.
  static Result<bool> is_continued(const ConversionJournal& journal, const Work& work, bool restart,
                                   const std::filesystem::path& directory);
  static std::uint64_t bytes_left(const PackManifest& pack, const ConversionJournal& journal);
  Status run_layer(std::uint32_t layer, const LayerWriter& write_layer, ProgressCounter& progress);

  PackManifest& pack_;
  OutputDirectory& output_;
  ConversionJournal journal_;
  std::size_t threads_;
};

}  // namespace moepack
