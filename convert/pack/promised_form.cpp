#include "convert/pack/promised_form.h"

#include <bit>

#include "formats/weights/float_blocks.h"

namespace moepack {
namespace {

// Floats are taken for bf16.
SourceForm decoded_source() { return {.format = {.id = QFormatId::kBf16}, .is_decoded = true}; }

// The only declared width; nullopt when there are several or none.
std::optional<QFormatId> only_width(const SourceQuantization& declared) {
  if (!std::has_single_bit(declared.code_widths)) return std::nullopt;
  return affine_qformat(static_cast<std::uint32_t>(std::countr_zero(declared.code_widths)));
}

std::optional<SourceForm> affine_form(const SourceQuantization& declared, DType scales,
                                      std::uint64_t rows, std::uint64_t cols) {
  if (!std::has_single_bit(declared.code_widths)) return std::nullopt;
  const auto id = only_width(declared);
  if (!id.has_value() || !is_valid_group_size(declared.group_size)) return decoded_source();
  return form_where_it_fits({.id = *id, .group_size = declared.group_size, .scale_type = scales},
                            rows, cols);
}

// Bytes with a scale for each row.
SourceForm int8_form(std::uint64_t rows, std::uint64_t cols) {
  for (std::uint32_t group : {128U, 64U, 32U}) {
    const SourceForm form =
        form_where_it_fits({.id = QFormatId::kQ8, .group_size = group}, rows, cols);
    if (!form.is_decoded) return form;
  }
  return decoded_source();
}

}  // namespace

SourceForm form_where_it_fits(const WeightFormat& format, std::uint64_t rows, std::uint64_t cols) {
  if (matrix_bytes(format, rows, cols).has_value()) return {.format = format};
  return decoded_source();
}

std::optional<SourceForm> promised_form(const NamedComponents& named,
                                        const SourceQuantization& declared, std::uint64_t rows,
                                        std::uint64_t cols) {
  const auto block = [&](QFormatId id) { return form_where_it_fits({.id = id}, rows, cols); };
  if (declared.method == "mxfp4") return block(QFormatId::kMxfp4);
  if (declared.method == "awq") return decoded_source();
  if (declared.method == "gptq") {
    if (!declared.symmetric || declared.any_order) return decoded_source();
    return affine_form(declared, DType::kF16, rows, cols);
  }
  if (named.has[Component::kGlobalScale]) return block(QFormatId::kNvfp4Scaled);
  if (named.has[Component::kZeros] || named.has[Component::kOrder]) return decoded_source();
  if (named.is_packed && declared.code_widths == 0) return block(QFormatId::kMxfp4);
  if (named.is_packed) return affine_form(declared, DType::kBf16, rows, cols);
  if (declared.code_widths != 0) return int8_form(rows, cols);
  if (declared.block_cols % kF8Weights != 0) return decoded_source();
  return block(QFormatId::kF8E4M3);
}

}  // namespace moepack
