#include "formats/gguf/gguf_writer.h"

#include <cstring>
#include <optional>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/output_file.h"
#include "formats/gguf/gguf.h"

namespace moepack {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kFixedBytes = 24;  // magic, version, two counts

template <typename T>
void append_number(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_string(std::string& out, std::string_view text) {
  append_number<std::uint64_t>(out, text.size());
  out += text;
}

Status refuse_key(std::string_view key, std::string_view what) {
  return invalid_argument("GGUF key " + printable(key, 128) + " " + std::string(what));
}

Status refuse_tensor(std::string_view name, std::string_view what) {
  return invalid_argument("GGUF tensor " + printable(name, 128) + " " + std::string(what));
}

// Bytes of a tensor; nullopt on overflow.
std::optional<std::uint64_t> tensor_bytes(const GgmlType& type,
                                          std::span<const std::uint64_t> shape) {
  std::optional<std::uint64_t> blocks = shape.back() / type.block_values;
  for (std::uint64_t dimension : shape.first(shape.size() - 1)) {
    if (blocks.has_value()) blocks = checked_mul(*blocks, dimension);
  }
  return blocks.has_value() ? checked_mul(*blocks, type.block_bytes) : std::nullopt;
}

}  // namespace

Status GgufOutput::write_at(const GgufOutputTensor& tensor, std::uint64_t begin,
                            std::span<const std::byte> data) {
  if (begin > tensor.size || data.size() > tensor.size - begin) {
    return refuse_tensor(tensor.name, "has " + std::to_string(tensor.size) + " bytes, " +
                                          std::to_string(data.size()) + " at " +
                                          std::to_string(begin) + " do not belong to it");
  }
  return file_.write_at(data_start_ + tensor.offset + begin, data);
}

Status GgufHead::begin_key(std::string_view key, GgufValueType type) {
  if (key.empty() || key.size() > kMaxGgufKeyBytes) {
    return refuse_key(key, "has " + std::to_string(key.size()) + " bytes");
  }
  if (!key_names_.emplace(key).second) return refuse_key(key, "stands twice");
  append_string(keys_, key);
  append_number(keys_, static_cast<std::uint32_t>(type));
  return Status::ok();
}

Status GgufHead::begin_list(std::string_view key, GgufValueType element, std::size_t count) {
  if (count > kMaxGgufArrayElements) {
    return refuse_key(key, "has " + std::to_string(count) + " elements");
  }
  MOE_RETURN_IF_ERROR(begin_key(key, GgufValueType::kArray));
  append_number(keys_, static_cast<std::uint32_t>(element));
  append_number<std::uint64_t>(keys_, count);
  return Status::ok();
}

#define MOE_ADD_NUMBER(type, value_type)                            \
  Status GgufHead::add(std::string_view key, type value) {          \
    MOE_RETURN_IF_ERROR(begin_key(key, GgufValueType::value_type)); \
    append_number(keys_, value);                                    \
    return Status::ok();                                            \
  }
MOE_ADD_NUMBER(std::uint8_t, kU8)
MOE_ADD_NUMBER(std::int8_t, kI8)
MOE_ADD_NUMBER(std::uint16_t, kU16)
MOE_ADD_NUMBER(std::int16_t, kI16)
MOE_ADD_NUMBER(std::uint32_t, kU32)
MOE_ADD_NUMBER(std::int32_t, kI32)
MOE_ADD_NUMBER(std::uint64_t, kU64)
MOE_ADD_NUMBER(std::int64_t, kI64)
MOE_ADD_NUMBER(float, kF32)
MOE_ADD_NUMBER(double, kF64)
#undef MOE_ADD_NUMBER

Status GgufHead::add(std::string_view key, bool value) {
  MOE_RETURN_IF_ERROR(begin_key(key, GgufValueType::kBool));
  keys_ += value ? '\1' : '\0';
  return Status::ok();
}

Status GgufHead::add(std::string_view key, std::string_view value) {
  if (value.size() > kMaxGgufStringBytes) {
    return refuse_key(key, "has " + std::to_string(value.size()) + " bytes");
  }
  MOE_RETURN_IF_ERROR(begin_key(key, GgufValueType::kString));
  append_string(keys_, value);
  return Status::ok();
}

Status GgufHead::add_list(std::string_view key, std::span<const std::uint32_t> values) {
  MOE_RETURN_IF_ERROR(begin_list(key, GgufValueType::kU32, values.size()));
  for (std::uint32_t value : values) append_number(keys_, value);
  return Status::ok();
}

Status GgufHead::add_list(std::string_view key, std::span<const std::int32_t> values) {
  MOE_RETURN_IF_ERROR(begin_list(key, GgufValueType::kI32, values.size()));
  for (std::int32_t value : values) append_number(keys_, value);
  return Status::ok();
}

Status GgufHead::add_list(std::string_view key, std::span<const float> values) {
  MOE_RETURN_IF_ERROR(begin_list(key, GgufValueType::kF32, values.size()));
  for (float value : values) append_number(keys_, value);
  return Status::ok();
}

Status GgufHead::add_list(std::string_view key, const std::vector<bool>& values) {
  MOE_RETURN_IF_ERROR(begin_list(key, GgufValueType::kBool, values.size()));
  for (bool value : values) keys_ += value ? '\1' : '\0';
  return Status::ok();
}

Status GgufHead::add_list(std::string_view key, std::span<const std::string> values) {
  for (const std::string& value : values) {
    if (value.size() > kMaxGgufStringBytes) {
      return refuse_key(key, "has a string of " + std::to_string(value.size()) + " bytes");
    }
  }
  MOE_RETURN_IF_ERROR(begin_list(key, GgufValueType::kString, values.size()));
  for (const std::string& value : values) append_string(keys_, value);
  return Status::ok();
}

Status GgufHead::add_tensor(std::string_view name, const GgmlType& type,
                            std::vector<std::uint64_t> shape) {
  if (name.empty() || name.size() > kMaxGgufTensorName) {
    return refuse_tensor(name, "has a name of " + std::to_string(name.size()) +
                                   " bytes, not 1 to " + std::to_string(kMaxGgufTensorName));
  }
  if (shape.empty() || shape.size() > kMaxGgufDimensions) {
    return refuse_tensor(name, "has " + std::to_string(shape.size()) + " dimensions, not 1 to 4");
  }
  for (std::uint64_t dimension : shape) {
    if (dimension == 0) return refuse_tensor(name, "has a dimension of 0");
  }
  if (shape.back() % type.block_values != 0) {
    return refuse_tensor(name, "has rows of " + std::to_string(shape.back()) +
                                   ", no whole number of blocks of " + ggml_type_name(type));
  }
  const std::optional<std::uint64_t> bytes = tensor_bytes(type, shape);
  const auto end = bytes.has_value() ? checked_add(data_size_, *bytes) : std::nullopt;
  // The limit is far below where padding and the head could overflow.
  if (!end.has_value() || *end > (std::uint64_t{1} << 62)) {
    return refuse_tensor(name, "is too large");
  }
  if (!tensor_names_.emplace(name).second) return refuse_tensor(name, "stands twice");
  tensors_.push_back({.name = std::string(name),
                      .type = type,
                      .shape = std::move(shape),
                      .offset = data_size_,
                      .size = *bytes});
  data_size_ = align_up(*end, kGgufAlignment);
  return Status::ok();
}

std::string GgufHead::infos() const {
  std::string out;
  for (const GgufOutputTensor& tensor : tensors_) {
    append_string(out, tensor.name);
    append_number(out, static_cast<std::uint32_t>(tensor.shape.size()));
    // The contiguous dimension comes first in the file.
    for (std::size_t i = tensor.shape.size(); i-- > 0;) append_number(out, tensor.shape[i]);
    append_number(out, tensor.type.id);
    append_number(out, tensor.offset);
  }
  return out;
}

std::uint64_t GgufHead::data_start(std::uint64_t info_bytes) const {
  const std::uint64_t end = kFixedBytes + keys_.size() + info_bytes;
  return tensors_.empty() ? end : align_up(end, kGgufAlignment);
}

std::uint64_t GgufHead::file_size() const { return data_start(infos().size()) + data_size_; }

Result<GgufOutput> GgufHead::create(const std::filesystem::path& path) const {
  std::string head(kGgufMagic);
  append_number(head, kVersion);
  append_number<std::uint64_t>(head, tensors_.size());
  append_number<std::uint64_t>(head, key_names_.size());
  const std::string tensor_infos = infos();
  const std::uint64_t start = data_start(tensor_infos.size());
  MOE_ASSIGN_OR_RETURN(AtomicFile file, create_output_file(path));
  MOE_RETURN_IF_ERROR(file.resize(start + data_size_));
  std::uint64_t at = 0;
  for (const std::string_view part :
       {std::string_view(head), std::string_view(keys_), std::string_view(tensor_infos)}) {
    MOE_RETURN_IF_ERROR(file.write_at(at, std::as_bytes(std::span(part))));
    at += part.size();
  }
  return GgufOutput(std::move(file), start);
}

}  // namespace moepack
