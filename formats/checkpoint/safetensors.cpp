#include "formats/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/json.h"

namespace moepack {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kDamaged = "the header is damaged; download or write the file again";
constexpr std::string_view kCutShort = "the file is cut short; download or copy it again";

// Collects the tensors of a header. Until check_tensors, `offset` and `size` of a TensorInfo hold
// the two data_offsets as they are written.
class HeaderVisitor final : public JsonVisitor {
 public:
  explicit HeaderVisitor(const std::string& file) : file_(file) {}

  std::vector<TensorInfo> take() { return std::move(tensors_); }

  Status on_null() override {
    if (state_ == State::kHeader && in_metadata_) return Status::ok();
    return on_other_scalar("null");
  }
  Status on_bool(bool /*value*/) override { return on_other_scalar("a boolean"); }
  Status on_number(double /*value*/) override {
    return on_other_scalar("a number that is no integer from 0 to 2^64-1");
  }

  Status on_unsigned(std::uint64_t value) override {
    if (state_ == State::kShape) {
      tensor_.shape.push_back(value);
      return Status::ok();
    }
    if (state_ != State::kOffsets) return on_other_scalar("a number");
    if (offsets_seen_ == 2) return error("data_offsets has more than two entries");
    (offsets_seen_ == 0 ? tensor_.offset : tensor_.size) = value;
    ++offsets_seen_;
    return Status::ok();
  }

  Status on_string(std::string& value) override {
    if (state_ == State::kMetadata) return Status::ok();
    if (state_ != State::kTensor || field_ != Field::kDtype) return on_other_scalar("a string");
    const auto dtype = dtype_from_name(value);
    if (!dtype.has_value()) {
      return make_error(StatusCode::kUnsupported, here(),
                        "dtype \"" + printable(value, 64) + "\" is not one of the format's");
    }
    tensor_.dtype = *dtype;
    return Status::ok();
  }

  Status begin_object() override {
    switch (state_) {
      case State::kDocument:
        state_ = State::kHeader;
        return Status::ok();
      case State::kHeader:
        state_ = in_metadata_ ? State::kMetadata : State::kTensor;
        seen_.fill(false);
        offsets_seen_ = 0;
        return Status::ok();
      default:
        return begin_nested("an object");
    }
  }

  Status end_object() override {
    switch (state_) {
      case State::kMetadata:
        state_ = State::kHeader;
        return Status::ok();
      case State::kTensor:
        state_ = State::kHeader;
        return finish_tensor();
      default:
        return end_nested();
    }
  }

  Status begin_array() override {
    if (state_ == State::kTensor && field_ == Field::kShape) {
      state_ = State::kShape;
      return Status::ok();
    }
    if (state_ == State::kTensor && field_ == Field::kOffsets) {
      state_ = State::kOffsets;
      return Status::ok();
    }
    return begin_nested("a list");
  }

  Status end_array() override {
    if (state_ != State::kShape && state_ != State::kOffsets) return end_nested();
    if (state_ == State::kOffsets && offsets_seen_ != 2) {
      return error("data_offsets has fewer than two entries");
    }
    state_ = State::kTensor;
    return Status::ok();
  }

  Status on_key(std::string& key) override {
    if (state_ == State::kHeader) {
      in_metadata_ = key == kMetadataKey;
      tensor_ = TensorInfo{};
      tensor_.name = std::move(key);
    } else if (state_ == State::kTensor) {
      field_ = field_of(key);
      if (field_ != Field::kIgnored) seen_.at(static_cast<std::size_t>(field_)) = true;
    }
    return Status::ok();
  }

 private:
  enum class State : std::uint8_t {
    kDocument,
    kHeader,    // between tensors
    kMetadata,  // in the value of __metadata__
    kTensor,    // in the object of one tensor
    kShape,
    kOffsets,
    kIgnored,  // in a field of a tensor that the format does not know
  };
  enum class Field : std::uint8_t { kDtype, kShape, kOffsets, kIgnored };

  static Field field_of(std::string_view key) {
    if (key == "dtype") return Field::kDtype;
    if (key == "shape") return Field::kShape;
    if (key == "data_offsets") return Field::kOffsets;
    return Field::kIgnored;
  }

  // Refuses a value of a kind that its place may not hold, unless the place is ignored.
  Status on_other_scalar(std::string_view kind) {
    if (state_ == State::kIgnored) return Status::ok();
    if (state_ == State::kTensor && field_ == Field::kIgnored) return Status::ok();
    return misplaced(kind);
  }

  Status begin_nested(std::string_view kind) {
    if (state_ == State::kIgnored) {
      ++ignored_depth_;
      return Status::ok();
    }
    if (state_ != State::kTensor || field_ != Field::kIgnored) return misplaced(kind);
    state_ = State::kIgnored;
    ignored_depth_ = 1;
    return Status::ok();
  }

  Status end_nested() {
    if (state_ == State::kIgnored && --ignored_depth_ == 0) state_ = State::kTensor;
    return Status::ok();
  }

  Status misplaced(std::string_view kind) const {
    switch (state_) {
      case State::kDocument:
        return error("the header is " + std::string(kind) + ", not a JSON object");
      case State::kHeader:
        return error("the header's entry is " + std::string(kind) + ", not an object");
      case State::kMetadata:
        return error("__metadata__ holds " + std::string(kind) + "; it may hold only strings");
      case State::kShape:
        return error("shape holds " + std::string(kind) + "; it may hold only whole numbers");
      case State::kOffsets:
        return error("data_offsets holds " + std::string(kind) +
                     "; it may hold only whole numbers");
      default:
        return error(std::string(field_ == Field::kDtype   ? "dtype"
                                 : field_ == Field::kShape ? "shape"
                                                           : "data_offsets") +
                     " is " + std::string(kind));
    }
  }

  Status finish_tensor() {
    constexpr std::array<std::string_view, 3> kNames{"dtype", "shape", "data_offsets"};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (!seen_.at(i)) return error(std::string(kNames.at(i)) + " is missing");
    }
    tensors_.push_back(std::move(tensor_));
    return Status::ok();
  }

  Where here() const { return {.file = file_, .tensor = tensor_.name, .offset = position()}; }
  Status error(std::string_view what) const { return corrupt(here(), what, kDamaged); }

  const std::string& file_;
  std::vector<TensorInfo> tensors_;
  TensorInfo tensor_;
  State state_ = State::kDocument;
  Field field_ = Field::kIgnored;
  bool in_metadata_ = false;
  int offsets_seen_ = 0;
  int ignored_depth_ = 0;
  std::array<bool, 3> seen_{};
};

std::string shape_text(const TensorInfo& tensor) {
  constexpr std::size_t kShown = 8;
  std::string text = std::string(dtype_name(tensor.dtype)) + " [";
  for (std::size_t i = 0; i < std::min(tensor.shape.size(), kShown); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(tensor.shape[i]);
  }
  return text + (tensor.shape.size() > kShown ? ", ...]" : "]");
}

// The bits of the whole tensor, or nullopt on overflow. Factors are multiplied left to right and
// none is skipped, so that a zero cannot hide an overflow before it.
std::optional<std::uint64_t> tensor_bits(const TensorInfo& tensor) {
  std::optional<std::uint64_t> product = 1;
  for (std::uint64_t dimension : tensor.shape) {
    product = checked_mul(*product, dimension);
    if (!product.has_value()) return std::nullopt;
  }
  return checked_mul(*product, dtype_bits(tensor.dtype));
}

// Checks 6 to 9 of one tensor, whose data must begin at `expected_begin` of the data section.
Status check_tensor(const TensorInfo& tensor, std::uint64_t expected_begin,
                    std::uint64_t data_start, const std::string& file) {
  const std::uint64_t begin = tensor.offset;
  const std::uint64_t end = tensor.size;
  const Where where{.file = file, .tensor = tensor.name, .offset = checked_add(data_start, begin)};
  if (end < begin) {
    return corrupt(where,
                   "data_offsets end at " + std::to_string(end) + ", before their begin " +
                       std::to_string(begin),
                   kDamaged);
  }
  if (begin != expected_begin) {
    return corrupt(where,
                   std::string("data_offsets begin at ") + std::to_string(begin) + ", " +
                       (begin < expected_begin ? "inside the tensor before, which ends at "
                                               : "behind a hole, the tensor before ends at ") +
                       std::to_string(expected_begin),
                   kDamaged);
  }
  const auto bits = tensor_bits(tensor);
  if (!bits.has_value()) {
    return corrupt(where, "the size of " + shape_text(tensor) + " overflows 64 bits", kDamaged);
  }
  if (*bits % 8 != 0) {
    return corrupt(where, shape_text(tensor) + " does not fill whole bytes", kDamaged);
  }
  if (*bits / 8 != end - begin) {
    return corrupt(where,
                   shape_text(tensor) + " needs " + std::to_string(*bits / 8) +
                       " bytes, data_offsets span " + std::to_string(end - begin),
                   kDamaged);
  }
  return Status::ok();
}

// Checks 6 to 10; turns offsets into absolute ones and ends into sizes.
Status check_tensors(std::vector<TensorInfo>& tensors, std::uint64_t data_start,
                     std::uint64_t file_size, const std::string& file) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.size, a.name) < std::tie(b.offset, b.size, b.name);
  });
  const std::uint64_t data_size = file_size - data_start;
  std::uint64_t end = 0;
  const TensorInfo* first_cut = nullptr;
  for (const TensorInfo& tensor : tensors) {
    MOE_RETURN_IF_ERROR(check_tensor(tensor, end, data_start, file));
    end = tensor.size;
    if (end > data_size && first_cut == nullptr) first_cut = &tensor;
  }
  if (first_cut != nullptr) {
    return corrupt({.file = file,
                    .tensor = first_cut->name,
                    .offset = checked_add(data_start, first_cut->offset)},
                   "the tensor ends " + std::to_string(first_cut->size - data_size) +
                       " bytes beyond the end of the file at byte " + std::to_string(file_size),
                   kCutShort);
  }
  if (end < data_size) {
    return corrupt({.file = file, .offset = data_start + end},
                   std::to_string(data_size - end) + " bytes after the last tensor belong to none",
                   "download or write the file again");
  }
  for (TensorInfo& tensor : tensors) {
    tensor.size -= tensor.offset;
    tensor.offset += data_start;
  }
  return Status::ok();
}

// Checks 2 and 3.
Status check_header_length(std::uint64_t length, std::uint64_t file_size, const std::string& file) {
  const Where where{.file = file, .offset = 0};
  if (length > kMaxSafetensorsHeader) {
    return corrupt(where,
                   "the header would be " + std::to_string(length) +
                       " bytes long, the format allows " + std::to_string(kMaxSafetensorsHeader),
                   "this is no safetensors file, or its first bytes are damaged");
  }
  if (kLengthBytes + length > file_size) {
    return corrupt(where,
                   "the header needs " + std::to_string(length) + " bytes, the file holds " +
                       std::to_string(file_size - std::min(file_size, kLengthBytes)) +
                       " after its length",
                   kCutShort);
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t file_size,
                                                         const std::string& file) {
  MOE_RETURN_IF_ERROR(check_header_length(header.size(), file_size, file));
  // The JSON reader would skip a byte order mark, which the format does not allow.
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || header[first] != '{') {
    return corrupt({.file = file, .offset = kLengthBytes + (first == header.npos ? 0 : first)},
                   "the header is not a JSON object",
                   "this is no safetensors file, or it is damaged");
  }
  HeaderVisitor visitor(file);
  MOE_RETURN_IF_ERROR(visit_json(header, {.file = file, .offset = kLengthBytes}, visitor));
  std::vector<TensorInfo> tensors = visitor.take();
  MOE_RETURN_IF_ERROR(check_tensors(tensors, kLengthBytes + header.size(), file_size, file));
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::read_header(File file, std::uint64_t file_size,
                                                     bool has_data) {
  if (file_size < kLengthBytes) {
    return corrupt(
        {.file = file.path()},
        "is " + std::to_string(file_size) + " bytes long, too short for a safetensors file",
        kCutShort);
  }
  std::array<std::byte, kLengthBytes> length_bytes{};
  MOE_RETURN_IF_ERROR(file.read_at(0, length_bytes));
  const auto length = load_le<std::uint64_t>(length_bytes.data());
  MOE_RETURN_IF_ERROR(check_header_length(length, std::min(file_size, file.size()), file.path()));

  std::string header(length, '\0');
  const auto header_bytes = std::as_writable_bytes(std::span(header));
  MOE_RETURN_IF_ERROR(file.read_at(kLengthBytes, header_bytes));
  ChecksumStream sum;
  sum.add(length_bytes);
  sum.add(header_bytes);

  SafetensorsFile result(std::move(file), file_size, has_data);
  MOE_ASSIGN_OR_RETURN(result.tensors_,
                       parse_safetensors_header(header, file_size, result.file_.path()));
  result.header_checksum_ = sum.finish();
  return result;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(File file, File::open(path));
  const std::uint64_t size = file.size();
  return read_header(std::move(file), size, true);
}

Result<SafetensorsFile> SafetensorsFile::open_saved_header(const std::filesystem::path& copy) {
  MOE_ASSIGN_OR_RETURN(File file, File::open(copy));
  if (file.size() < kLengthBytes) {
    return corrupt({.file = file.path()}, "is too short for a shard's saved header");
  }
  std::array<std::byte, kLengthBytes> size_bytes{};
  MOE_RETURN_IF_ERROR(file.read_at(file.size() - kLengthBytes, size_bytes));
  return read_header(std::move(file), load_le<std::uint64_t>(size_bytes.data()), false);
}

Status SafetensorsFile::save_header(const std::filesystem::path& copy) const {
  std::array<std::byte, kLengthBytes> number{};
  MOE_RETURN_IF_ERROR(file_.read_at(0, number));
  std::vector<std::byte> header(kLengthBytes + load_le<std::uint64_t>(number.data()));
  MOE_RETURN_IF_ERROR(file_.read_at(0, header));
  store_le(number.data(), file_size_);
  MOE_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::create(copy));
  MOE_RETURN_IF_ERROR(out.write_at(0, header));
  MOE_RETURN_IF_ERROR(out.write_at(header.size(), number));
  return out.commit();
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorInfo& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace moepack
