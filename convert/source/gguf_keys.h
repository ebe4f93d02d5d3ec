// The metadata of a GGUF model as the settings of one architecture: ARCHITECTURE.block_count and so
// on.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/limits.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {

// The keys of one architecture. Borrows the model. Errors name the file, the key and its offset.
class GgufKeys {
 public:
  GgufKeys(const GgufModel& model, std::string_view architecture)
      : model_(model), metadata_(model.metadata()), prefix_(std::string(architecture) + ".") {}

  bool has(std::string_view key) const { return metadata_.has(prefix_ + std::string(key)); }
  Result<std::uint64_t> number(std::string_view key) const {
    // Some writers give one value a layer, 0 for layers that have no such thing.
    MOE_ASSIGN_OR_RETURN(const std::vector<std::int64_t> values, numbers(key));
    std::int64_t agreed = 0;
    for (std::int64_t value : values) {
      if (value == 0) continue;
      if (value < 0) return error(key, "holds a negative number");
      if (agreed != 0 && agreed != value) return error(key, "differs from layer to layer");
      agreed = value;
    }
    return static_cast<std::uint64_t>(agreed);
  }
  Result<std::uint64_t> number(std::string_view key, std::uint64_t fallback) const {
    if (!has(key)) return fallback;
    return number(key);
  }
  // A size of the model: from 1 to `most`.
  Result<std::uint64_t> dimension(std::string_view key,
                                  std::uint64_t most = kMaxModelDimension) const {
    MOE_ASSIGN_OR_RETURN(const std::uint64_t value, number(key));
    if (value >= 1 && value <= most) return value;
    return error(key, "is " + std::to_string(value) + ", not from 1 to " + std::to_string(most));
  }
  Result<double> real(std::string_view key) const {
    MOE_ASSIGN_OR_RETURN(const double value, metadata_.real(prefix_ + std::string(key)));
    if (std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max())) return value;
    return error(key, "is no finite float32");  // NaN too
  }
  Result<std::string> text(std::string_view key) const {
    return metadata_.string(prefix_ + std::string(key));
  }
  Result<std::vector<std::int64_t>> numbers(std::string_view key) const {
    const GgufEntry* entry = metadata_.find(prefix_ + std::string(key));
    if (entry != nullptr && entry->count > kMaxValues) {
      return error(key, "is a list of " + std::to_string(entry->count) + " values");
    }
    return metadata_.numbers(prefix_ + std::string(key));
  }
  // Ok when the key is absent or holds `expected`.
  // Also 0, "not set", passes.
  Status require_number(std::string_view key, std::uint64_t expected) const {
    MOE_ASSIGN_OR_RETURN(const std::uint64_t value, number(key, expected));
    if (value == expected || value == 0) return Status::ok();
    return unsupported(Where{.file = file()},
                       "key " + prefix_ + std::string(key) + " is " + std::to_string(value) +
                           ", which asks for a computation that is not known here");
  }
  Status require_text(std::string_view key, std::string_view expected) const {
    if (!has(key)) return Status::ok();
    MOE_ASSIGN_OR_RETURN(const std::string value, metadata_.string(prefix_ + std::string(key)));
    if (value == expected) return Status::ok();
    return unsupported(Where{.file = file()},
                       "key " + prefix_ + std::string(key) + " is " + printable(value) +
                           ", which asks for a computation that is not known here");
  }
  Status error(std::string_view key, const std::string& what) const {
    Where where{.file = file()};
    const GgufEntry* entry = metadata_.find(prefix_ + std::string(key));
    if (entry != nullptr) where.offset = entry->offset;
    return corrupt(where, "key " + prefix_ + std::string(key) + " " + what);
  }
  const std::string& file() const { return model_.parts().front().file().path(); }
  const GgufModel& model() const { return model_; }

 private:
  // Of a list with one entry a layer.
  static constexpr std::uint64_t kMaxValues = 1U << 16;

  const GgufModel& model_;
  const GgufMetadata& metadata_;
  std::string prefix_;
};

}  // namespace moepack
