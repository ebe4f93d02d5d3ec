// How both manifests write a weight format and the stored shapes that follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/json_fields.h"
#include "formats/weights/qformat.h"

namespace moepack {

// The members without braces: `"format": "q4", "group_size": 64, "scale_dtype": "BF16"`; plain
// formats have the first alone, and `"row_order": "panels16"` stands behind them where rows do not
// follow each other.
std::string format_members(const WeightFormat& format);
// Reads those members of `fields` and refuses unknown formats by name. Other members are left to
// the caller.
Result<WeightFormat> parse_format_members(const JsonFields& fields);

// The shape of a component as manifests and safetensors state it, for a tensor with the logical
// shape `shape` whose last dimension is the input: affine codes count 32-bit words, blocks bytes,
// scales and biases groups.
std::vector<std::uint64_t> component_shape(const WeightFormat& format, Component component,
                                           std::span<const std::uint64_t> shape);
// The logical last dimension of a stored one; nullopt when it is no whole number of codes or
// blocks.
std::optional<std::uint64_t> logical_inputs(const WeightFormat& format, std::uint64_t stored);
// "[2, 3]"
std::string shape_text(std::span<const std::uint64_t> shape);
// kCorrupt unless `key` holds exactly these dimensions.
Status expect_shape(const JsonFields& fields, std::string_view key,
                    std::span<const std::uint64_t> expected);

}  // namespace moepack
