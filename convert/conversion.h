// One conversion under way: writes what a plan says, remembers in the journal what is finished, and
// continues what an earlier run left.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/journal.h"
#include "convert/output_directory.h"
#include "convert/pack.h"
#include "convert/plan.h"
#include "convert/progress_counter.h"
#include "convert/shard_reclaimer.h"

namespace moepack {

class Conversion {
 public:
  // `output` was taken; everything passed outlives the object. Checks the journal against the plan
  // and removes what is not finished. kInvalidArgument: an interrupted conversion of something else
  // is there (options.restart drops it), or options.layers names a layer that does not exist.
  static Result<std::unique_ptr<Conversion>> prepare(const Checkpoint& checkpoint,
                                                     ConvertPlan& plan,
                                                     const ConvertOptions& options,
                                                     OutputDirectory& output);
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

  // Of the source, by run().
  std::uint64_t bytes_to_read() const { return starting_point().bytes_total; }
  // Free bytes that run() needs at its fullest.
  std::uint64_t space_needed() const;
  // Writes everything that is left, or what options.layers names. On an error the directory keeps
  // what is finished if the system was at fault (kIo) or source shards are gone; else nothing.
  Status run(const ProgressCallback& callback);

  std::size_t layers_resumed() const { return layers_resumed_; }
  std::size_t layers_left() const { return plan_.pack.num_layers - journal_.layers_done(); }
  const std::vector<std::string>& removed_shards() const;
  const std::vector<std::string>& never_removed_shards() const;

 private:
  struct Commit;
  Conversion(const Checkpoint& checkpoint, ConvertPlan& plan, const ConvertOptions& options,
             OutputDirectory& output, ConversionJournal journal)
      : checkpoint_(checkpoint),
        plan_(plan),
        options_(options),
        output_(output),
        journal_(std::move(journal)) {}
  Status open_journal();
  Status keep_finished();
  Status start_reclaiming();
  Status write_everything(const ProgressCallback& callback);
  Status write_residents(ProgressCounter& progress);
  Status write_layers(ProgressCounter& progress);
  Status settle(Commit& commit, ProgressCounter& progress);
  Status write_manifests();
  bool is_wanted(std::uint32_t layer) const;
  std::vector<std::uint32_t> layers_to_do() const;
  ConvertProgress starting_point() const;

  const Checkpoint& checkpoint_;
  ConvertPlan& plan_;
  const ConvertOptions& options_;
  OutputDirectory& output_;
  ConversionJournal journal_;
  std::optional<ShardReclaimer> reclaimer_;
  std::size_t layers_resumed_ = 0;
};

// How many threads a conversion uses: as asked, but no more than its memory allows.
std::size_t conversion_threads(unsigned asked);

}  // namespace moepack
