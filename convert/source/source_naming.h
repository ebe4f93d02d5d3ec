// What the tensors of a source are called there, for messages about those that are missing.
#pragma once

#include <cstdint>
#include <string>

#include "convert/source/tensor_names.h"
#include "formats/weights/expert_layout.h"

namespace moepack {

class SourceNaming {
 public:
  // `place`: the checkpoint's directory, or the GGUF file. `names` outlives the object.
  SourceNaming(std::string place, bool is_gguf, const Architecture& names)
      : place_(std::move(place)), is_gguf_(is_gguf), names_(names) {}

  const std::string& place() const { return place_; }
  const Architecture& names() const { return names_; }
  // Where the model's dimensions come from: "config.json".
  std::string configured_by() const { return is_gguf_ ? "the file's metadata" : "config.json"; }
  std::string resident(const ResidentRule& rule, std::uint32_t layer) const;
  std::string expert(std::uint32_t layer, std::uint32_t expert, Projection projection) const;

 private:
  std::string place_;
  bool is_gguf_;
  const Architecture& names_;
};

}  // namespace moepack
