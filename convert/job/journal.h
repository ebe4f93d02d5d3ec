// What an unfinished conversion has finished so far: the contents of kUnfinishedMarker.
//
// A text file, one record a line: XXH3-64 of the rest as 16 hex digits, a space, a JSON object. The
// first line states what is being made and by which command (formats/unfinished_work.h), each later
// one a file that is complete and synced:
//   {"journal": 1, "command": "convert", "plan": "9c1f…", "what": "Qwen3.5-35B-A3B, experts q4 g64,
//   …"}
//   {"resident": "19d7…"}                     XXH3-64 of model_weights.bin
//   {"layer": 3, "checksums": "fc6b…0a12…"}   of the records, 16 digits each
//   {"prediction": "fc6b…0a12…"}              of the tensors of prediction.bin, 16 digits each
// the first two also with "not_finite": [names of source tensors whose values are not all numbers],
//   {"removing": "model-00001-of-00003.safetensors"}   a source shard, before it is removed
//   {"complete": true}                        everything, manifests included
// Lines are appended and synced; a torn last line, as a crash leaves it, counts as absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/unfinished_work.h"

namespace moepack {

class ConversionJournal {
 public:
  // An empty one, to which nothing can be added.
  ConversionJournal() = default;
  // Reads what `fd` (open for reading and writing, kept open by the caller) holds; the file may be
  // empty. `file` names it in errors. A damaged line ends the journal there.
  static Result<ConversionJournal> open(int fd, const std::string& file);
  // What stands in the file `path`, to be looked at alone: nothing can be added. Without a file it
  // is empty.
  static Result<ConversionJournal> look(const std::filesystem::path& path);

  // True when nothing is recorded, not even the plan.
  bool is_empty() const { return !plan_.has_value(); }
  // Digest of the plan that the recorded work belongs to, and what it was in words.
  std::uint64_t plan() const { return plan_.value_or(0); }
  const std::string& what() const { return what_; }
  std::optional<std::uint64_t> resident_checksum() const { return resident_; }
  // nullptr when prediction.bin is not recorded.
  const std::vector<std::uint64_t>* prediction_checksums() const {
    return prediction_.has_value() ? &*prediction_ : nullptr;
  }
  // nullptr when the layer is not recorded.
  const std::vector<std::uint64_t>* layer_checksums(std::uint32_t layer) const;
  std::size_t layers_done() const { return layers_.size(); }
  // Base names of source shards that were removed, or were about to be.
  const std::set<std::string>& removed_shards() const { return removed_; }
  // Names of source tensors whose values are not all numbers.
  const std::set<std::string>& not_finite() const { return not_finite_; }
  // Nothing is left to do but to remove the marker.
  bool is_complete() const { return complete_; }

  // Forgets everything and states a new plan of a conversion, a quantization or an overlay.
  Status start(WorkKind work, std::uint64_t plan, const std::string& what);
  // Each appends one line and syncs it; the change to this object comes last.
  Status add_resident(std::uint64_t checksum, const std::vector<std::string>& not_finite = {});
  Status add_layer(std::uint32_t layer, std::vector<std::uint64_t> checksums,
                   const std::vector<std::string>& not_finite = {});
  Status add_prediction(std::vector<std::uint64_t> checksums);
  Status add_removal(const std::string& shard);
  Status add_completion();
  // A recorded file is not there any more. Only in memory: the record stays and is found wanting
  // again.
  void forget_resident() { resident_.reset(); }
  void forget_prediction() { prediction_.reset(); }
  void forget_layer(std::uint32_t layer) { layers_.erase(layer); }

 private:
  ConversionJournal(int fd, std::string file) : fd_(fd), file_(std::move(file)) {}
  Status read_lines();
  bool apply(const std::string& json_text);
  Status append(const std::string& json_text);
  Status cut(std::uint64_t size);

  int fd_ = -1;
  std::string file_;
  std::uint64_t size_ = 0;  // bytes of whole lines
  std::optional<std::uint64_t> plan_;
  std::string what_;
  std::optional<std::uint64_t> resident_;
  std::optional<std::vector<std::uint64_t>> prediction_;
  std::map<std::uint32_t, std::vector<std::uint64_t>> layers_;
  std::set<std::string> removed_;
  std::set<std::string> not_finite_;
  bool complete_ = false;
};

}  // namespace moepack
