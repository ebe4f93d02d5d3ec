// Removes the source's shards one by one while they are converted, so that no second copy of the
// model has to fit on the disk.
//
// A shard goes when every tensor in it has been packed and read back; the journal says so before.
// Its descriptor is closed, or the space would stay taken, and a file that came to its place
// meanwhile is left alone. Its header stays in the output until the end, so that an interrupted
// conversion can still be planned. A shard with a tensor that is not packed (vision tower, MTP) is
// never removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "convert/job/journal.h"
#include "convert/pack/plan.h"

namespace moepack {

class ShardReclaimer {
 public:
  // kIo when a shard's directory cannot be written to. What is passed outlives the object.
  // `output`: where the conversion writes, for space_needed. Removes nothing before
  // allow_removal().
  static Result<ShardReclaimer> create(const Checkpoint& checkpoint, const ConvertPlan& plan,
                                       const std::filesystem::path& output);
  // From here on shards of `checkpoint`, the one that was passed, are removed and entered in
  // `journal`. Both outlive the object.
  void allow_removal(Checkpoint& checkpoint, ConversionJournal& journal);

  // Copies the headers of all shards that are still there to `directory`; before the first removal.
  Status save_headers(const std::filesystem::path& directory) const;
  // `layer` (or the resident or the prediction file) is finished, synced and read back. Removes
  // what that frees.
  Status resident_done() { return unit_done(num_layers_); }
  Status prediction_done() { return unit_done(prediction_unit(num_layers_)); }
  Status layer_done(std::uint32_t layer) { return unit_done(layer); }

  // The unit of the prediction file of a model of so many layers.
  static std::uint32_t prediction_unit(std::uint32_t num_layers) { return num_layers + 1; }

  // Free bytes that the conversion needs at its fullest when `units` (layers; num_layers: the
  // resident file; prediction_unit) are written in this order, `bytes` of output each. Only shards
  // that free space on the output's file system count: not those elsewhere, nor those with a second
  // name.
  struct Step {
    std::uint32_t unit;
    std::uint64_t bytes;
  };
  std::uint64_t space_needed(std::span<const Step> steps) const;

  const std::vector<std::string>& removed() const { return removed_; }  // by this object
  // Names of shards that hold skipped tensors.
  const std::vector<std::string>& never_removed() const { return never_removed_; }

 private:
  ShardReclaimer() = default;
  void count_units(const Checkpoint& checkpoint, const ConvertPlan& plan);
  Status unit_done(std::uint32_t unit);
  Status remove(const SafetensorsFile& shard);
  void find_countable(const std::filesystem::path& output);

  Checkpoint* checkpoint_ = nullptr;      // whose shards are removed; nullptr: none are
  ConversionJournal* journal_ = nullptr;  // of the removals
  std::uint32_t num_layers_ = 0;
  // Shards that may be removed; units of work (layers, the resident file as unit num_layers_ and
  // the prediction file behind it) that still need them.
  std::map<const SafetensorsFile*, std::size_t> units_left_;
  std::vector<std::vector<const SafetensorsFile*>> shards_of_unit_;
  std::set<const SafetensorsFile*> countable_;  // whose removal frees space for the output
  std::vector<std::string> removed_;
  std::vector<std::string> never_removed_;
};

}  // namespace moepack
