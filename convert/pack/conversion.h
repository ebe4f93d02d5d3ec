// One conversion under way: writes what a plan says, remembers in the journal what is finished, and
// continues what an earlier run left.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "convert/job/progress_counter.h"
#include "convert/pack/pack.h"
#include "convert/pack/plan.h"
#include "convert/pack/shard_reclaimer.h"

namespace moepack {

class Conversion {
 public:
  // `output` was taken; everything passed outlives the object. Checks the journal against the plan,
  // and what it names against its checksums and, by samples, against the source; removes what is
  // not finished. kInvalidArgument: an interrupted conversion of something else is there
  // (options.restart drops it), or options.layers names a layer that does not exist. kCorrupt: the
  // journal is damaged and shards of the source are gone; nothing is touched then.
  static Result<std::unique_ptr<Conversion>> prepare(ModelSource& source, ConvertPlan& plan,
                                                     const ConvertOptions& options,
                                                     OutputDirectory& output);
  // What prepare() would say, and space_needed() after it. Finished files are told by the journal
  // and their sizes: no weights are read.
  static Result<std::uint64_t> foresee(const ModelSource& source, const ConvertPlan& plan,
                                       const ConvertOptions& options);
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

  // Of the source, by run().
  std::uint64_t bytes_to_read() const { return starting_point().bytes_total; }
  // Free bytes that run() needs at its fullest.
  std::uint64_t space_needed() const;
  // Writes everything that is left, or what options.layers names. On an error the directory keeps
  // what is finished, unless the error is the source's and nothing is older than this run.
  Status run(const ProgressCallback& callback);

  std::size_t layers_resumed() const { return layers_resumed_; }
  std::size_t layers_left() const { return plan_.pack.expert_layers() - journal_.layers_done(); }
  // Of the source, also by earlier runs.
  const std::set<std::string>& not_finite_tensors() const { return journal_.not_finite(); }
  std::vector<std::string> removed_shards() const;
  std::vector<std::string> never_removed_shards() const;

 private:
  struct Commit;
  Conversion(ModelSource& source, ConvertPlan& plan, const ConvertOptions& options,
             OutputDirectory& output, ConversionJournal journal)
      : source_(source),
        plan_(plan),
        options_(options),
        output_(output),
        journal_(std::move(journal)) {}
  Status open_journal();
  Status start_journal();
  bool is_source_incomplete() const;
  void take_finished();
  Status remove_unfinished();
  bool take_residents();
  bool take_layer(std::uint32_t layer);
  Status check_same_weights();
  Status start_reclaiming();
  Status write_everything(const ProgressCallback& callback);
  Status write_residents(ProgressCounter& progress);
  Status write_prediction(ProgressCounter& progress);
  Status write_layers(ProgressCounter& progress);
  Status settle(Commit& commit, ProgressCounter& progress);
  Status write_manifests();
  std::vector<std::uint32_t> layers_to_do() const;
  ConvertProgress starting_point() const;

  ModelSource& source_;  // whose shards are dropped when they are removed
  ConvertPlan& plan_;
  const ConvertOptions& options_;
  OutputDirectory& output_;
  ConversionJournal journal_;
  std::optional<ShardReclaimer> reclaimer_;
  NotFiniteTensors not_finite_;  // of what is being written
  std::uint64_t digest_ = 0;     // of the plan
  bool keeps_headers_ = true;    // saved headers are of this conversion
  std::size_t layers_resumed_ = 0;
};

}  // namespace moepack
