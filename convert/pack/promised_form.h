// In which format a module's weights will be stored, told by config.json and the names of its
// tensors alone: for plans of checkpoints whose shards are not there.
#pragma once

#include <cstdint>
#include <optional>

#include "convert/pack/target_format.h"
#include "formats/config/model_config.h"
#include "formats/weights/component.h"

namespace moepack {

// Which tensors of a module an index names.
struct NamedComponents {
  Components<bool> has{};
  bool is_packed = false;  // the codes are called weight_packed
};

// Of a module with scales that a method other than MLX's quantized, whose matrix is [rows, cols].
// nullopt: the names leave open how many bits its codes have.
std::optional<SourceForm> promised_form(const NamedComponents& named,
                                        const SourceQuantization& declared, std::uint64_t rows,
                                        std::uint64_t cols);
// The form in which a matrix in `format` is kept: `format` where it fits, else decoded.
SourceForm form_where_it_fits(const WeightFormat& format, std::uint64_t rows, std::uint64_t cols);

}  // namespace moepack
