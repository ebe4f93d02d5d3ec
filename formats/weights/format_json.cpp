#include "formats/weights/format_json.h"

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"

namespace moepack {

std::string format_members(const WeightFormat& format) {
  std::string text = "\"format\": " + json_quote(qformat_info(format.id).name);
  if (is_affine(format)) {
    text += ", \"group_size\": " + std::to_string(format.group_size);
    text += ", \"scale_dtype\": " + json_quote(dtype_name(format.scale_type));
  }
  if (format.row_order != RowOrder::kRows) {
    text += ", \"row_order\": " + json_quote(row_order_name(format.row_order));
  }
  return text;
}

namespace {

// Absent: rows one after the other.
Status parse_row_order(const JsonFields& fields, WeightFormat& format) {
  if (!fields.has("row_order")) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const std::string name, fields.string("row_order"));
  const auto order = row_order_from_name(name);
  if (!order.has_value()) {
    return fields.error("row_order", "\"" + printable(name) + "\" is not an order known here",
                        "a newer moepack may have written it");
  }
  if (*order != RowOrder::kRows && !has_panels(format)) {
    return fields.error("row_order", "does not belong to format " + to_string(format));
  }
  format.row_order = *order;
  return Status::ok();
}

}  // namespace

Result<WeightFormat> parse_format_members(const JsonFields& fields) {
  MOE_ASSIGN_OR_RETURN(const std::string name, fields.string("format"));
  const auto id = qformat_from_name(name);
  if (!id.has_value()) {
    return fields.error("format", "\"" + printable(name) + "\" is not a weight format known here",
                        "a newer moepack may have written it");
  }
  WeightFormat format{.id = *id};
  if (!is_affine(format)) {
    for (std::string_view key : {"group_size", "scale_dtype"}) {
      if (fields.has(key)) return fields.error(key, "does not belong to format " + name);
    }
    MOE_RETURN_IF_ERROR(parse_row_order(fields, format));
    return format;
  }
  MOE_ASSIGN_OR_RETURN(format.group_size, fields.number32("group_size"));
  if (!is_valid_group_size(format.group_size)) {
    return fields.error("group_size",
                        "is " + std::to_string(format.group_size) + ", must be 32, 64 or 128");
  }
  MOE_ASSIGN_OR_RETURN(const std::string scale, fields.string("scale_dtype"));
  const auto scale_type = dtype_from_name(scale);
  if (scale_type != DType::kBf16 && scale_type != DType::kF16) {
    return fields.error("scale_dtype", "\"" + printable(scale) + "\" must be BF16 or F16");
  }
  format.scale_type = *scale_type;
  MOE_RETURN_IF_ERROR(parse_row_order(fields, format));
  return format;
}

namespace {

// Elements of a row of codes that stand for `inputs` inputs.
std::uint64_t stored_inputs(const QFormatInfo& info, std::uint64_t inputs) {
  switch (info.kind) {
    case QKind::kPlain:
      return inputs;
    case QKind::kAffine:
      return inputs / 32 * info.bits;
    case QKind::kBlock:
      return inputs / info.block_values * info.block_bytes;
  }
  return inputs;
}

}  // namespace

std::vector<std::uint64_t> component_shape(const WeightFormat& format, Component component,
                                           std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> stored(shape.begin(), shape.end());
  const bool is_codes = component == Component::kCodes;
  stored.back() = is_codes ? stored_inputs(qformat_info(format.id), stored.back())
                           : stored.back() / format.group_size;
  return stored;
}

std::optional<std::uint64_t> logical_inputs(const WeightFormat& format, std::uint64_t stored) {
  const QFormatInfo& info = qformat_info(format.id);
  std::uint64_t per = 1;
  std::uint64_t of = 1;
  if (info.kind == QKind::kAffine) {
    per = 32;
    of = info.bits;
  } else if (info.kind == QKind::kBlock) {
    per = info.block_values;
    of = info.block_bytes;
  }
  const auto product = checked_mul(stored, per);
  if (!product.has_value() || *product % of != 0) return std::nullopt;
  return *product / of;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::uint64_t dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dimension);
  }
  return text + "]";
}

Status expect_shape(const JsonFields& fields, std::string_view key,
                    std::span<const std::uint64_t> expected) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array(key));
  bool same = list->size() == expected.size();
  for (std::size_t i = 0; same && i < expected.size(); ++i) {
    const nlohmann::json& dimension = (*list)[i];
    same = dimension.is_number_unsigned() && dimension.get<std::uint64_t>() == expected[i];
  }
  if (same) return Status::ok();
  return fields.error(key, "is " + printable(list->dump(-1, ' ', true), 64) +
                               ", but the format and the model's dimensions give " +
                               shape_text(expected));
}

}  // namespace moepack
