// The weights that a quantization starts from: the experts of a checkpoint, or of another pack of
// the same model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/pack/plan.h"
#include "convert/source/stored_matrix.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Of a layer with experts.
ExpertActivation expert_activation(const ModelConfig& config, std::uint32_t layer);

// Unchanging once it is open: const functions may be called from any number of threads.
class ExpertWeights {
 public:
  // `wanted` is the path of a checkpoint or GGUF file, or a pack of `model` as choose_pack takes
  // it.
  // "" stands for the checkpoint that the packs of `model` were made from, where it lies beside the
  // model or in the working directory under its recorded name and has the recorded fingerprint;
  // otherwise for the pack with most bits a weight. kInvalidArgument: the source is another
  // model's.
  static Result<ExpertWeights> open(const std::filesystem::path& model, const ModelConfig& config,
                                    const std::string& wanted);

  // One matrix of an expert, borrowed from this object.
  StoredMatrix of(std::uint32_t layer, std::uint32_t expert, Projection projection) const;
  // Compares an expert's record with its checksum; ok where there is none (checkpoints, packs of
  // other engines). kCorrupt with file, expert and offset. `buffer` is scratch that may be used for
  // the next call.
  Status check(std::uint32_t layer, std::uint32_t expert, std::vector<std::byte>& buffer) const;
  // A number that tells apart what the weights are read from. It is made from the headers of a
  // checkpoint, or from the manifest of a pack with its checksums.
  std::uint64_t digest() const;
  // The formats of the weights: "bf16".
  const std::string& formats() const { return formats_; }
  // Stored bytes of one expert.
  std::uint64_t bytes(std::uint32_t layer, std::uint32_t expert) const;

  // A description for people: "checkpoint ../small-moe (bf16)".
  const std::string& description() const { return description_; }
  // What the new pack records as its source: the checkpoint's name and fingerprint.
  const PackSource& source() const { return source_; }
  std::uint64_t page_size() const { return page_size_; }
  // The widest format among the experts' matrices, bits a weight with scales.
  double bits_per_weight() const { return bits_per_weight_; }

 private:
  struct Pack {
    PackManifest manifest;
    std::vector<std::unique_ptr<File>> files;  // [layers]; nullptr: no experts
  };
  static Result<ExpertWeights> of_checkpoint(const std::filesystem::path& path,
                                             const ModelConfig& config);
  static Result<ExpertWeights> of_pack(const std::filesystem::path& model, const std::string& name,
                                       const ModelConfig& config);

  std::unique_ptr<ModelSource> model_;
  std::unique_ptr<ConvertPlan> plan_;  // of model_
  std::unique_ptr<Pack> pack_;
  std::string description_;
  std::string formats_;
  PackSource source_;
  std::uint64_t page_size_ = kDefaultPageSize;
  double bits_per_weight_ = 0;
};

}  // namespace moepack
