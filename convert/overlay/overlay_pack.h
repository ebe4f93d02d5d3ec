// The expert pack of an overlay, written layer by layer with a journal of what is finished.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "convert/job/progress_counter.h"
#include "convert/pack/pack.h"
#include "convert/pack/plan.h"
#include "formats/base/status.h"

namespace moepack {

class OverlayPack {
 public:
  // Writes the experts of `plan` as its pack says into `output`; both outlive the object. Fills in
  // the checksums.
  OverlayPack(ConvertPlan& plan, OutputDirectory& output, ConversionJournal journal,
              std::size_t threads)
      : plan_(plan), output_(output), journal_(std::move(journal)), threads_(threads) {}

  // Takes over what an earlier run finished if it reads back whole, and removes the rest.
  // `digest` is that of everything that decides about the bytes. kInvalidArgument: a pack with
  // another digest was interrupted here; `restart` drops it.
  Status prepare(std::uint64_t digest, bool restart);
  // Writes what is left, the manifest last. After an error what is finished stays for the next run.
  Status run(ProgressCounter& progress);

  std::size_t layers_done() const { return journal_.layers_done(); }
  std::uint64_t bytes_left() const;

 private:
  Status open_journal(std::uint64_t digest, bool restart);
  Status run_layer(std::uint32_t layer, std::vector<PackWorker>& workers,
                   ProgressCounter& progress);

  ConvertPlan& plan_;
  OutputDirectory& output_;
  ConversionJournal journal_;
  std::size_t threads_;
};

}  // namespace moepack
