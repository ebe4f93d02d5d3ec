#include "convert/source/source_encoding.h"

#include <algorithm>
#include <array>

#include "formats/weights/format_json.h"

namespace moepack {

Status SourceModule::add(Component component, const SourceTensor& tensor) {
  SourceTensor& slot = (*this)[component];
  if (slot) {
    return corrupt(tensor.where(), "means the same as tensor " + printable(slot.name()),
                   "remove one of the two");
  }
  slot = tensor;
  return Status::ok();
}

bool ModuleForm::is_decoded() const {
  return encoding->read_rows != nullptr && !encoding->only_moves && format.id == QFormatId::kF32;
}

std::span<const SourceEncoding* const> source_encodings() {
  static constexpr std::array<const SourceEncoding*, 4> kEncodings{
      &kPlainEncoding, &kMlxAffineEncoding, &kFp8Encoding, &kPackedIntegerEncoding};
  return kEncodings;
}

std::optional<SourceSuffix> take_source_suffix(std::string_view& name) {
  for (const SourceEncoding* encoding : source_encodings()) {
    for (const SourceSuffix& known : encoding->suffixes) {
      if (!name.ends_with(known.suffix)) continue;
      name.remove_suffix(known.suffix.size());
      return known;
    }
  }
  return std::nullopt;
}

Status source_shape_error(const SourceTensor& tensor, std::span<const std::uint64_t> expected) {
  return corrupt(tensor.where(), "shape " + shape_text(tensor.shape()) + ", but " +
                                     std::string(tensor.configured_by()) + " gives " +
                                     shape_text(expected));
}

Status check_float_scales(const SourceTensor& scales) {
  if (plain_qformat(scales.dtype()).has_value()) return Status::ok();
  return unsupported(scales.where(), "scales of dtype " + scales.type_name() +
                                         " cannot be converted, only F32, BF16 and F16");
}

bool same_outer_shape(const SourceTensor& tensor, std::span<const std::uint64_t> shape) {
  const auto found = tensor.shape();
  return found.size() == shape.size() && !found.empty() &&
         std::equal(found.begin(), found.end() - 1, shape.begin());
}

Result<ModuleForm> recognise_module(const SourceModule& module,
                                    std::span<const std::uint64_t> shape,
                                    const SourceQuantization& declared) {
  const SourceTensor& codes = module.codes();
  for (const SourceEncoding* encoding : source_encodings()) {
    if (!encoding->detects(module)) continue;
    ModuleForm form{.encoding = encoding, .tensors = module, .format = {}};
    form.rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
    form.cols = shape.back();
    MOE_RETURN_IF_ERROR(encoding->check(shape, declared, form));
    return form;
  }
  return unsupported(codes.where(), "dtype " + codes.type_name() + " cannot be converted");
}

}  // namespace moepack
