#include "formats/calibration/npy.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDimensions = 32;  // NumPy's

struct Fields {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

// A cursor over the literal. Every function returns false where the text is something else.
class LiteralParser {
 public:
  explicit LiteralParser(std::string_view text) : text_(text) {}

  bool parse(Fields& fields) {
    if (!take('{')) return false;
    while (!take('}')) {
      std::string key;
      if (!string(key) || !take(':') || !value(key, fields)) return false;
      if (take(',')) continue;
      if (!take('}')) return false;
      break;
    }
    skip_spaces();
    return at_ == text_.size();
  }
  std::size_t position() const { return at_; }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool string(std::string& out) {
    skip_spaces();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_ + 1, end - at_ - 1);
    if (out.find('\\') != std::string::npos) return false;
    at_ = end + 1;
    return true;
  }
  bool number(std::uint64_t& out) {
    skip_spaces();
    const std::size_t begin = at_;
    out = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      const auto tens = checked_mul(out, 10);
      const auto sum = tens.has_value() ? checked_add(*tens, digit) : std::nullopt;
      if (!sum.has_value()) return false;
      out = *sum;
    }
    return at_ > begin && (text_[begin] != '0' || at_ == begin + 1);
  }
  // Reads (), (3,), (3, 4) or (3, 4,); a lone (3) is a number in Python.
  bool tuple(std::vector<std::uint64_t>& out) {
    if (!take('(')) return false;
    while (!take(')')) {
      std::uint64_t dimension = 0;
      if (out.size() == kMaxDimensions || !number(dimension)) return false;
      out.push_back(dimension);
      if (take(',')) continue;
      return out.size() > 1 && take(')');
    }
    return true;
  }
  bool value(const std::string& key, Fields& fields) {
    if (key == "descr" && !fields.descr.has_value()) return string(fields.descr.emplace());
    if (key == "shape" && !fields.shape.has_value()) return tuple(fields.shape.emplace());
    if (key != "fortran_order" || fields.fortran_order.has_value()) return false;
    fields.fortran_order = take_word("True");
    return *fields.fortran_order || take_word("False");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// Where the literal stands in the file.
struct Literal {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  // with the padding and the newline
};

Result<Literal> find_literal(std::span<const std::byte> head, std::uint64_t file_size,
                             const std::string& file) {
  constexpr std::size_t kVersionAt = 6;
  constexpr std::size_t kLengthAt = 8;
  const Where start{.file = file, .offset = 0};
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(kMagic)) {
    return corrupt(start, "this is no .npy file: it does not begin with \\x93NUMPY");
  }
  const auto cut_short = [&](std::uint64_t at) {
    return corrupt(Where{.file = file, .offset = at}, "the file ends inside its header",
                   "write it again");
  };
  if (head.size() < kLengthAt) return cut_short(head.size());
  const auto major = static_cast<unsigned>(head[kVersionAt]);
  const auto minor = static_cast<unsigned>(head[kVersionAt + 1]);
  if ((major != 1 && major != 2) || minor != 0) {
    return unsupported(Where{.file = file, .offset = kVersionAt},
                       "version " + std::to_string(major) + "." + std::to_string(minor) +
                           " of .npy is not read, only 1.0 and 2.0",
                       "save it with numpy.save");
  }
  Literal literal;
  literal.begin = kLengthAt + (major == 1 ? 2 : 4);
  if (head.size() < literal.begin) return cut_short(head.size());
  literal.size = major == 1 ? load_le<std::uint16_t>(head.data() + kLengthAt)
                            : load_le<std::uint32_t>(head.data() + kLengthAt);
  if (literal.begin + literal.size > kMaxNpyHead) {
    return corrupt(Where{.file = file, .offset = kLengthAt},
                   "the header is said to have " + std::to_string(literal.size) + " bytes");
  }
  if (literal.begin + literal.size > std::min<std::uint64_t>(file_size, head.size())) {
    return cut_short(std::min<std::uint64_t>(file_size, head.size()));
  }
  return literal;
}

Result<NpyArray> array_of(const Fields& fields, const Where& where) {
  if (!fields.descr || !fields.fortran_order || !fields.shape) {
    return corrupt(where, "the header lacks one of descr, fortran_order and shape");
  }
  NpyArray array;
  if (*fields.descr == "<f4") {
    array.dtype = DType::kF32;
  } else if (*fields.descr == "<f8") {
    array.dtype = DType::kF64;
  } else {
    return unsupported(where, "its type is '" + printable(*fields.descr, 32) + "'",
                       "save it as little-endian float32 or float64");
  }
  if (*fields.fortran_order) {
    return unsupported(where, "it is stored in Fortran order",
                       "save it with numpy.ascontiguousarray");
  }
  array.shape = *fields.shape;
  std::optional<std::uint64_t> elements = 1;
  for (std::uint64_t dimension : array.shape) {
    if (elements.has_value()) elements = checked_mul(*elements, dimension);
  }
  if (!elements.has_value()) return corrupt(where, "the shape has more than 2^64 elements");
  array.elements = *elements;
  return array;
}

}  // namespace

Result<NpyArray> parse_npy_header(std::span<const std::byte> head, std::uint64_t file_size,
                                  const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const Literal literal, find_literal(head, file_size, file));
  std::string_view text(reinterpret_cast<const char*>(head.data()) + literal.begin, literal.size);
  if (!text.ends_with('\n')) {
    return corrupt(Where{.file = file, .offset = literal.begin + literal.size},
                   "the header does not end in a newline");
  }
  text.remove_suffix(1);
  Fields fields;
  LiteralParser parser(text);
  if (!parser.parse(fields)) {
    return corrupt(Where{.file = file, .offset = literal.begin + parser.position()},
                   "the header is not what numpy.save writes");
  }
  const Where where{.file = file, .offset = literal.begin};
  MOE_ASSIGN_OR_RETURN(NpyArray array, array_of(fields, where));
  array.data_offset = literal.begin + literal.size;
  const auto bytes = checked_mul(array.elements, dtype_bits(array.dtype) / 8);
  if (!bytes.has_value() || *bytes != file_size - array.data_offset) {
    return corrupt(
        where,
        "the shape and the file's size, " + std::to_string(file_size) + " bytes, do not agree",
        "the file is cut short or damaged; write it again");
  }
  return array;
}

Result<NpyFile> NpyFile::open(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(File file, File::open(path));
  std::vector<std::byte> head(std::min(file.size(), kMaxNpyHead));
  MOE_RETURN_IF_ERROR(file.read_at(0, head));
  MOE_ASSIGN_OR_RETURN(NpyArray array, parse_npy_header(head, file.size(), file.path()));
  return NpyFile(std::move(file), std::move(array));
}

Status NpyFile::read(std::span<float> out) const {
  if (out.size() != array_.elements) return invalid_argument("the array has another size");
  if (array_.dtype == DType::kF32) {
    return file_.read_at(array_.data_offset, std::as_writable_bytes(out));
  }
  constexpr std::uint64_t kBlock = (std::uint64_t{1} << 20) / sizeof(double);
  std::vector<double> block(std::min(kBlock, array_.elements));
  for (std::uint64_t begin = 0; begin < out.size(); begin += kBlock) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(kBlock, out.size() - begin));
    MOE_RETURN_IF_ERROR(
        file_.read_at(array_.data_offset + begin * sizeof(double), std::as_writable_bytes(part)));
    std::transform(part.begin(), part.end(), out.begin() + static_cast<std::ptrdiff_t>(begin),
                   [](double v) { return static_cast<float>(v); });
  }
  return Status::ok();
}

}  // namespace moepack
