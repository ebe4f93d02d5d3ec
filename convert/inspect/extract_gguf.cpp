#include "convert/inspect/extract_gguf.h"

#include <algorithm>

#include "convert/inspect/nearest_names.h"
#include "formats/gguf/gguf_model.h"
#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

// Elements read at a time: whole blocks of every type, half a mebibyte once decoded.
constexpr std::uint64_t kPieceElements = std::uint64_t{1} << 17;

// Calls use(bytes, elements) for the pieces of the tensor in order.
template <typename Use>
Status for_each_piece(const GgufTensor& tensor, const Use& use) {
  const GgmlType& type = tensor.info->type;
  const std::uint64_t piece = kPieceElements / type.block_values * type.block_bytes;
  std::vector<std::byte> buffer(std::min(piece, tensor.info->size));
  for (std::uint64_t at = 0; at < tensor.info->size; at += piece) {
    const std::span<std::byte> part =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), tensor.info->size - at));
    MOE_RETURN_IF_ERROR(tensor.read(at, part));
    MOE_RETURN_IF_ERROR(use(part, part.size() / type.block_bytes * type.block_values));
  }
  return Status::ok();
}

Status write_decoded(const GgufTensor& tensor, QFormatId format, const ByteSink& sink) {
  std::vector<float> values;
  return for_each_piece(tensor, [&](std::span<const std::byte> bytes, std::uint64_t elements) {
    values.resize(elements);
    // Blocks follow each other without a gap, so any run of them is a row.
    const QMatrixView view{.format = {.id = format},
                           .rows = 1,
                           .cols = elements,
                           .data = affine_components<const std::byte*>(bytes.data())};
    decode_row(view, 0, values);
    return sink(std::as_bytes(std::span<const float>(values)));
  });
}

const GgufTensor* find_tensor(const GgufModel& model, const std::string& name) {
  const GgufTensor* tensor = model.find(name);
  return tensor != nullptr ? tensor : model.find(name + ".weight");
}

}  // namespace

Result<ExtractedTensor> extract_gguf_tensor(const ExtractOptions& options, const ByteSink& sink) {
  MOE_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(options.path));
  const GgufTensor* tensor = find_tensor(model, options.tensor);
  if (tensor == nullptr) {
    NearestNames nearest(options.tensor);
    for (const GgufTensor& other : model.tensors()) nearest.add(other.info->name);
    return no_such_tensor(options.path.string(), options.tensor, nearest, {});
  }
  MOE_RETURN_IF_ERROR(tensor->check_readable());
  const GgufTensorInfo& info = *tensor->info;
  ExtractedTensor out{.name = info.name,
                      .dtype = std::string(dtype_name(info.type.storage)),
                      .shape = info.shape,
                      .bytes = info.size,
                      .file = tensor->part->file().path(),
                      .offset = info.offset};
  if (!options.as_f32) {
    // Blocks are bytes to whoever reads them.
    if (info.type.block_values > 1) {
      out.shape.back() = out.shape.back() / info.type.block_values * info.type.block_bytes;
    }
    MOE_RETURN_IF_ERROR(for_each_piece(
        *tensor, [&](std::span<const std::byte> bytes, std::uint64_t) { return sink(bytes); }));
    return out;
  }
  if (!info.type.format.has_value()) {
    return unsupported(tensor->where(),
                       "type " + ggml_type_name(info.type) + " cannot be decoded to float32",
                       "leave out --f32 for the stored bytes");
  }
  out.dtype = dtype_name(DType::kF32);
  out.bytes = info.size / info.type.block_bytes * info.type.block_values * sizeof(float);
  MOE_RETURN_IF_ERROR(write_decoded(*tensor, *info.type.format, sink));
  return out;
}

}  // namespace moepack
