// Packs of the same model whose records can be taken over into another one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/job/record_stream.h"
#include "convert/report/quality_ledger.h"
#include "formats/base/file.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Unchanging once it is open: const functions may be called from any number of threads.
class ReusablePacks {
 public:
  struct Options {
    std::filesystem::path model;
    std::filesystem::path not_this;  // directory of the pack in the making
    // Packs with this recipe (PackReport::recipe) hold what quantizing would give; 0: none do.
    std::uint64_t recipe = 0;
    std::vector<std::string> named;  // taken whatever they hold, as choose_pack takes them
    std::uint64_t fingerprint = 0;   // of the weights' source; 0: unknown
  };
  // kInvalidArgument, kNotFound: a named pack is another model's, or not there.
  static Result<ReusablePacks> open(const Options& options, const ModelConfig& config);

  // The record of an expert.
  struct Record {
    std::uint32_t pack = 0;
    std::uint32_t expert = 0;
    std::uint32_t layer = 0;
  };
  // Finds the record of an expert in this layout, whatever the order of its rows; named packs come
  // first. False where no pack has one.
  bool find(std::uint32_t layer, std::uint32_t expert, const ExpertLayout& layout,
            Record& record) const;
  // Appends the record to `out` in the layout that was asked for, and compares it with its
  // checksum. kCorrupt with file, expert and offset.
  Status copy(const Record& record, const ExpertLayout& to, RecordStream& out) const;
  // What the ledger of the record's pack says of its layer, and that ledger; nullptr where there is
  // none.
  const LayerQuality* quality(const Record& record) const;
  const QualityLedger* ledger(const Record& record) const;

  // The packs of the recipe that could not be opened, in a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  // The named packs, told by everything that the bytes of a result depend on.
  std::string named_text() const;

 private:
  struct Pack {
    std::string name;  // of the directory
    bool is_named = false;
    PackManifest manifest;
    std::filesystem::path directory;
    QualityLedger ledger;
    bool has_ledger = false;
  };
  Status add(const Options& options, const std::string& name, bool is_named,
             const ModelConfig& config);

  std::vector<std::unique_ptr<Pack>> packs_;
  std::vector<std::string> notes_;
};

}  // namespace moepack
