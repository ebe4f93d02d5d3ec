// What a conversion starts from: a HuggingFace checkpoint, or a model in GGUF form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convert/source/source_naming.h"
#include "convert/source/source_tensor.h"
#include "convert/source/tensor_names.h"
#include "formats/base/status.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/config/model_config.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {

// A small file that goes into the model directory beside the weights: copied, or made here.
struct Companion {
  std::string name;
  std::filesystem::path file;  // "": `text` is the contents
  std::string text;
};

class ModelSource {
 public:
  // `path`: a file or part that ends in .gguf, or what Checkpoint::open takes, with the same
  // `saved_headers`. Heads only. Errors: those of the two, and for GGUF those of gguf_config.h.
  static Result<ModelSource> open(const std::filesystem::path& path,
                                  const std::filesystem::path& saved_headers = {});
  static Result<ModelSource> of(GgufModel model);

  const ParsedConfig& config() const { return config_; }
  // The tensors' table for this model; never null.
  const Architecture& names() const { return *names_; }
  // kInvalidArgument, with `remedy`, unless it is of the family of `model_type`.
  Status check_family(std::string_view model_type, std::string_view remedy) const;
  SourceNaming naming() const;
  // What messages and reports call it: the checkpoint's directory, the GGUF's first part.
  std::filesystem::path path() const;
  // The name a person knows it by, which packs record.
  std::string name() const;
  std::uint64_t fingerprint() const;

  // One of the two is there. What they return lives as long as this object, also when it is moved.
  const Checkpoint* checkpoint() const { return checkpoint_.get(); }
  Checkpoint* checkpoint() { return checkpoint_.get(); }
  const GgufModel* gguf() const { return gguf_.get(); }
  // kUnsupported for a big-endian GGUF file, whose bytes cannot be used where they lie.
  Status check_usable_in_place() const;

  // In a fixed order; those that the source lacks go to `absent`, errors as has_companion. From
  // GGUF: rebuilt from the metadata, with the errors of that; chat templates but for the default
  // one are left out with a note. Costs the memory of the tokenizer's text.
  Result<std::vector<Companion>> companions(std::vector<std::string>& absent,
                                            std::vector<std::string>& notes) const;

 private:
  Result<std::vector<Companion>> rebuilt_companions(std::vector<std::string>& absent,
                                                    std::vector<std::string>& notes) const;
  Status open_checkpoint(const std::filesystem::path& path,
                         const std::filesystem::path& saved_headers);

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<GgufModel> gguf_;
  ParsedConfig config_;
  std::string config_text_;  // of a GGUF model
  const Architecture* names_ = nullptr;
};

}  // namespace moepack
