#include "convert/source/source_matrix.h"

#include <algorithm>

#include "convert/source/tensor_names.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

std::string module_name(const SourceTensor& codes) {
  const std::string whole = codes.name();
  std::string_view name = whole;
  return take_component_suffix(name) == Component::kCodes ? std::string(name) : whole;
}

TensorSlice slice_component(const SourceTensor& tensor, std::uint64_t matrix_bytes,
                            std::uint64_t index, std::uint64_t rows, std::uint64_t row_begin,
                            std::uint64_t row_count) {
  const std::uint64_t row_bytes = matrix_bytes / rows;
  return {.tensor = tensor,
          .begin = index * matrix_bytes + row_begin * row_bytes,
          .bytes = row_count * row_bytes};
}

}  // namespace

std::uint64_t SourceMatrix::bytes() const {
  std::uint64_t sum = 0;
  for (const TensorSlice& slice : slices) sum += slice.bytes;
  return sum;
}

std::uint64_t SourceMatrix::row_bytes(Component component) const {
  return matrix_bytes(format, 1, cols).value_or(MatrixBytes{})[component];
}

Status SourceMatrix::read_rows(Component component, std::uint64_t begin, std::uint64_t end,
                               std::span<std::byte> out) const {
  const std::uint64_t row = row_bytes(component);
  // `first`: of the tensors' rows.
  const auto read = [&](std::uint64_t first, std::span<std::byte> to) {
    if (encoded == nullptr) {
      const TensorSlice& slice = slices[component];
      return slice.tensor.read(slice.begin + first * row, to);
    }
    const std::uint64_t at = first_row + first;
    return encoded->encoding->read_rows(*encoded, component, at, at + to.size() / row, to);
  };
  out = out.first((end - begin) * row);
  if (runs == nullptr) return read(begin, out);
  return RowGather(*runs, row)
      .for_each_piece(begin * row, out.size(),
                      [&](std::uint64_t from, std::uint64_t at, std::uint64_t bytes) {
                        return read(from / row, out.subspan(at, bytes));
                      });
}

DeclaredFormats::DeclaredFormats(const Architecture& names, const ParsedConfig& config)
    : names_(&names), source_(config.source_quantization) {
  const std::optional<QuantizationConfig>& quantization = config.quantization;
  if (!quantization.has_value()) return;
  default_ = quantization->default_format;
  for (const QuantizationConfig::Entry& entry : quantization->overrides) {
    const auto canonical = canonical_name(names, entry.module);
    overrides_.insert_or_assign(canonical.value_or(entry.module), entry.format);
  }
}

Status DeclaredFormats::check(const ModuleForm& form) const {
  const SourceTensor& codes = form.tensors.codes();
  const WeightFormat& found = form.named;
  if (!default_.has_value()) return Status::ok();
  const std::string module = module_name(codes);
  const auto it = overrides_.find(canonical_name(*names_, module).value_or(module));
  const bool overridden = it != overrides_.end();
  // Without an override, modules that are not quantized are left out silently.
  const bool is_quantized = qformat_info(found.id).kind != QKind::kPlain;
  if (!overridden && !is_quantized) return Status::ok();
  const std::optional<WeightFormat> declared = overridden ? it->second : default_;
  const bool agrees = declared.has_value()
                          ? declared->id == found.id && declared->group_size == found.group_size
                          : !is_quantized;
  if (agrees) return Status::ok();
  return corrupt(codes.where(),
                 "its shapes give " + to_string(found) +
                     ", but the quantization block of config.json says " +
                     (declared.has_value() ? to_string(*declared) : std::string("not quantized")));
}

namespace {

// The share that `rows` of all rows have in a tensor of a module whose rows are made. Of the codes
// it is where these rows lie; of all else only its size means something.
TensorSlice slice_encoded(const ModuleForm& form, Component component, std::uint64_t first_row,
                          std::uint64_t rows) {
  const SourceTensor& tensor = form.tensors[component];
  if (!tensor) return {};
  if (form.encoding->only_moves) {
    const MatrixBytes row = matrix_bytes(form.format, 1, form.cols).value_or(MatrixBytes{});
    return {.tensor = tensor, .begin = 0, .bytes = rows * row[component]};
  }
  const std::uint64_t all = form.rows * form.matrices;
  const std::uint64_t row_bytes = tensor.size() / all;
  const bool is_codes = component == Component::kCodes;
  return {.tensor = tensor,
          .begin = is_codes ? first_row * row_bytes : 0,
          .bytes = rows == all ? tensor.size() : rows * row_bytes};
}

}  // namespace

SourceMatrix slice_matrix(const std::shared_ptr<const ModuleForm>& form, std::uint64_t index,
                          std::uint64_t row_begin, std::uint64_t row_count) {
  SourceMatrix matrix{.format = form->format, .rows = row_count, .cols = form->cols};
  if (form->encoding->read_rows != nullptr) {
    matrix.encoded = form;
    matrix.first_row = index * form->rows + row_begin;
    for (Component c : kAllComponents) {
      matrix.slices[c] = slice_encoded(*form, c, matrix.first_row, row_count);
    }
    return matrix;
  }
  const MatrixBytes bytes =
      matrix_bytes(form->format, form->rows, form->cols).value_or(MatrixBytes{});
  for (Component c : stored_components(form->format)) {
    matrix.slices[c] =
        slice_component(form->tensors[c], bytes[c], index, form->rows, row_begin, row_count);
  }
  return matrix;
}

SourceMatrix decoded_matrix(const SourceMatrix& matrix) {
  SourceMatrix decoded = matrix;
  decoded.format = {.id = QFormatId::kF32};
  auto form = std::make_shared<ModuleForm>(*matrix.encoded);
  form->format = decoded.format;
  decoded.encoded = std::move(form);
  return decoded;
}

SourceMatrix gather_rows(const SourceMatrix& whole, RowRuns runs) {
  SourceMatrix matrix = whole;
  matrix.rows = count_rows(runs);
  for (TensorSlice& slice : matrix.slices) {
    slice.bytes = slice.bytes / whole.rows * matrix.rows;
  }
  matrix.runs = std::make_shared<const RowRuns>(std::move(runs));
  return matrix;
}

}  // namespace moepack
