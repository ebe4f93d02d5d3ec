#include "formats/gguf/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "formats/base/bytes.h"
#include "formats/base/file_blocks.h"

namespace moepack {
namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::string_view kDamaged = "the file is damaged; download or make it again";
constexpr std::uint64_t kMaxDimension = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxNameBytes = 63;
constexpr std::uint64_t kMinAlignment = 8;
// The shortest key-value pair (a key of one byte, a value of one), and the shortest tensor entry
// (no dimensions).
constexpr std::uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;

Status check_count(const GgufCursor& cursor, std::uint64_t count, std::uint64_t max,
                   std::uint64_t min_bytes, const std::string& what) {
  const std::uint64_t at = cursor.position() - 8;
  if (count > kMaxDimension) {
    return cursor.error(at, "the number of " + what + " is negative", kDamaged);
  }
  if (count > cursor.remaining() / min_bytes) {
    return cursor.error(at,
                        "the file would have " + std::to_string(count) + " " + what + ", its " +
                            std::to_string(cursor.remaining()) + " further bytes cannot hold them",
                        "it is cut short or damaged; download or copy it again");
  }
  if (count > max) {
    return cursor.error(at, "the file has " + std::to_string(count) + " " + what + ", at most " +
                                std::to_string(max) + " are read");
  }
  return Status::ok();
}

// Reads the entry of a tensor: name, dimensions, type, and the offset as it is stored, relative to
// the data section. It remembers where the entry's type and offset stand, for later errors.
class TensorEntry {
 public:
  TensorEntry(GgufCursor& cursor, GgufTensorInfo& tensor) : cursor_(cursor), tensor_(tensor) {}

  Status read(std::uint64_t index, std::uint64_t count) {
    const std::string number = std::to_string(index + 1) + " of " + std::to_string(count);
    const std::uint64_t start = cursor_.position();
    MOE_ASSIGN_OR_RETURN(tensor_.name,
                         cursor_.string(kMaxNameBytes, "the name of tensor " + number));
    if (tensor_.name.empty()) {
      return cursor_.error(start, "tensor " + number + " has an empty name", kDamaged);
    }
    MOE_RETURN_IF_ERROR(read_shape());
    MOE_RETURN_IF_ERROR(read_type());
    MOE_ASSIGN_OR_RETURN(tensor_.offset, cursor_.u64("the offset of tensor " + number));
    return Status::ok();
  }

 private:
  Status error(std::uint64_t offset, std::string_view what) const {
    return corrupt({.file = cursor_.file().path(), .tensor = tensor_.name, .offset = offset}, what,
                   kDamaged);
  }

  Status read_shape() {
    const std::uint64_t start = cursor_.position();
    MOE_ASSIGN_OR_RETURN(const std::uint32_t dimensions, cursor_.u32("the number of dimensions"));
    if (dimensions > kMaxDimensions) {
      return error(start, "has " + std::to_string(dimensions) + " dimensions, at most 4 exist");
    }
    std::uint64_t product = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const std::uint64_t at = cursor_.position();
      MOE_ASSIGN_OR_RETURN(const std::uint64_t dimension, cursor_.u64("a dimension"));
      if (dimension == 0) return error(at, "dimension " + std::to_string(i) + " is zero");
      if (dimension > kMaxDimension) {
        return error(at, "dimension " + std::to_string(i) + " is negative");
      }
      const auto grown = checked_mul(product, dimension);
      if (!grown.has_value() || *grown >= kMaxDimension) {
        return error(start, "the number of elements overflows 63 bits");
      }
      product = *grown;
      tensor_.shape.insert(tensor_.shape.begin(), dimension);
    }
    elements_ = product;
    return Status::ok();
  }

  Status read_type() {
    const std::uint64_t start = cursor_.position();
    MOE_ASSIGN_OR_RETURN(const std::uint32_t id, cursor_.u32("the type"));
    const auto type = find_ggml_type(id);
    if (!type.has_value()) {
      return unsupported(
          {.file = cursor_.file().path(), .tensor = tensor_.name, .offset = start},
          "has type " + std::to_string(id) + ", which is " + describe_unknown_ggml_type(id),
          "use a file with ggml's own types");
    }
    tensor_.type = *type;
    const std::uint64_t row = tensor_.shape.empty() ? 1 : tensor_.shape.back();
    if (row % type->block_values != 0) {
      return error(start, "has rows of " + std::to_string(row) + " elements, no multiple of the " +
                              std::to_string(type->block_values) + " in a block of " +
                              ggml_type_name(*type));
    }
    const auto bytes = checked_mul(elements_ / type->block_values, type->block_bytes);
    if (!bytes.has_value()) return error(start, "its size in bytes overflows 64 bits");
    tensor_.size = *bytes;
    return Status::ok();
  }

  GgufCursor& cursor_;
  GgufTensorInfo& tensor_;
  std::uint64_t elements_ = 1;
};

}  // namespace

bool has_gguf_magic(const File& file) {
  std::array<char, kGgufMagic.size()> magic{};
  return file.size() >= magic.size() &&
         file.read_at(0, std::as_writable_bytes(std::span(magic))).is_ok() &&
         std::string_view(magic.data(), magic.size()) == kGgufMagic;
}

Status GgufFile::read_counts(GgufCursor& cursor, std::uint64_t& tensors, std::uint64_t& keys) {
  std::array<std::byte, 4> magic{};
  MOE_RETURN_IF_ERROR(cursor.read(magic, "the magic number"));
  if (std::memcmp(magic.data(), kGgufMagic.data(), magic.size()) != 0) {
    return cursor.error(0, "does not begin with the four letters GGUF",
                        "it is no GGUF file, or its start is damaged");
  }
  MOE_ASSIGN_OR_RETURN(version_, cursor.u32("the version"));
  // Read in the wrong byte order, a small version has its bits on top. Source: ggml's gguf.cpp.
  is_big_endian_ = version_ != 0 && (version_ & 0xffffU) == 0;
  if (is_big_endian_) {
    cursor.set_big_endian(true);
    version_ = __builtin_bswap32(version_);
  }
  if (version_ != 2 && version_ != 3) {
    return unsupported({.file = cursor.file().path(), .offset = 4},
                       "is GGUF version " + std::to_string(version_) + "; 2 and 3 are read",
                       version_ == 1 ? "make the file again with a current llama.cpp"
                                     : "the file is damaged, or of a newer program");
  }
  MOE_ASSIGN_OR_RETURN(tensors, cursor.u64("the number of tensors"));
  MOE_RETURN_IF_ERROR(check_count(cursor, tensors, kMaxGgufTensors, kMinTensorBytes, "tensors"));
  MOE_ASSIGN_OR_RETURN(keys, cursor.u64("the number of keys"));
  return check_count(cursor, keys, kMaxGgufKeys, kMinKeyBytes, "keys");
}

Status GgufFile::read_alignment() {
  const GgufEntry* entry = metadata_.find(kAlignmentKey);
  if (entry == nullptr) return Status::ok();
  const Where where{.file = file_->path(), .offset = entry->offset};
  if (entry->type != GgufValueType::kU32) {
    return corrupt(where,
                   "key general.alignment is of type " +
                       std::string(gguf_value_type_name(entry->type)) + ", must be u32",
                   kDamaged);
  }
  MOE_ASSIGN_OR_RETURN(alignment_, metadata_.number(kAlignmentKey));
  if (!std::has_single_bit(alignment_) || alignment_ < kMinAlignment) {
    return corrupt(where,
                   "key general.alignment is " + std::to_string(alignment_) +
                       ", must be a power of two from 8 on",
                   kDamaged);
  }
  return Status::ok();
}

// `starts` tells where each tensor's entry stands in the file.
Status GgufFile::place_tensors(std::span<const std::uint64_t> starts, std::uint64_t data_start) {
  std::uint64_t expected = 0;  // relative to the data section; stays below the file's size
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    GgufTensorInfo& tensor = tensors_[i];
    const Where entry{.file = file_->path(), .tensor = tensor.name, .offset = starts[i]};
    if (tensor.offset != expected) {
      return corrupt(entry,
                     "its data is said to begin at " + std::to_string(tensor.offset) +
                         " of the data section, must be " + std::to_string(expected) +
                         ", the next multiple of " + std::to_string(alignment_) +
                         " behind the tensor before",
                     kDamaged);
    }
    const auto begin = checked_add(data_start, expected);
    const auto end = begin.has_value() ? checked_add(*begin, tensor.size) : std::nullopt;
    if (!end.has_value() || *end > file_->size()) {
      return corrupt(entry,
                     "its " + std::to_string(tensor.size) + " bytes from offset " +
                         (begin.has_value() ? std::to_string(*begin) : "2^64") +
                         " on go beyond the end of the file at byte " +
                         std::to_string(file_->size()),
                     "the file is cut short; download or copy it again");
    }
    tensor.offset = *begin;
    // No overflow: the sum is at most a file's size, below 2^63, and the alignment is a u32.
    expected = align_up(expected + tensor.size, alignment_);
  }
  return Status::ok();
}

Status GgufFile::read_tensors(GgufCursor& cursor, std::uint64_t count) {
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < count; ++i) {
    starts.push_back(cursor.position());
    GgufTensorInfo tensor;
    MOE_RETURN_IF_ERROR(TensorEntry(cursor, tensor).read(i, count));
    tensors_.push_back(std::move(tensor));
  }
  std::vector<std::uint32_t> by_name(tensors_.size());
  std::iota(by_name.begin(), by_name.end(), 0U);
  std::stable_sort(by_name.begin(), by_name.end(), [&](std::uint32_t a, std::uint32_t b) {
    return tensors_[a].name < tensors_[b].name;
  });
  const auto twice = std::adjacent_find(
      by_name.begin(), by_name.end(),
      [&](std::uint32_t a, std::uint32_t b) { return tensors_[a].name == tensors_[b].name; });
  if (twice != by_name.end()) {
    const std::uint32_t second = *std::next(twice);
    return corrupt(
        {.file = file_->path(), .tensor = tensors_[second].name, .offset = starts[second]},
        "the tensor stands twice", kDamaged);
  }
  return place_tensors(starts, align_up(cursor.position(), alignment_));
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(File opened, File::open(path));
  GgufFile result;
  result.file_ = std::make_shared<const File>(std::move(opened));
  GgufCursor cursor(*result.file_);
  std::uint64_t tensors = 0;
  std::uint64_t keys = 0;
  MOE_RETURN_IF_ERROR(result.read_counts(cursor, tensors, keys));
  MOE_ASSIGN_OR_RETURN(result.metadata_, GgufMetadata::parse(result.file_, cursor, keys));
  MOE_RETURN_IF_ERROR(result.read_alignment());
  MOE_RETURN_IF_ERROR(result.read_tensors(cursor, tensors));
  std::vector<std::byte> buffer;
  MOE_ASSIGN_OR_RETURN(result.header_checksum_,
                       checksum_of_range(*result.file_, 0, cursor.position(), buffer));
  return result;
}

}  // namespace moepack
