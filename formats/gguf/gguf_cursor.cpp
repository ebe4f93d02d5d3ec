#include "formats/gguf/gguf_cursor.h"

#include <algorithm>
#include <array>

namespace moepack {
namespace {

constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 16;

}  // namespace

std::uint64_t load_number(const std::byte* at, std::size_t size, bool big_endian) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t place = big_endian ? size - 1 - i : i;
    value |= std::to_integer<std::uint64_t>(at[i]) << (8 * place);
  }
  return value;
}

Status GgufCursor::error(std::uint64_t offset, std::string_view what,
                         std::string_view remedy) const {
  return corrupt(Where{.file = file_.path(), .offset = offset}, what, remedy);
}

Status GgufCursor::cut_short(std::uint64_t wanted, std::string_view what) const {
  return error(position_,
               std::string(what) + " needs " + std::to_string(wanted) + " bytes, the file has " +
                   std::to_string(remaining()) + " more",
               "it is cut short or damaged; download or copy it again");
}

Status GgufCursor::read(std::span<std::byte> out, std::string_view what) {
  if (out.size() > remaining()) return cut_short(out.size(), what);
  if (out.size() > kWindowBytes) {
    MOE_RETURN_IF_ERROR(file_.read_at(position_, out));
    position_ += out.size();
    return Status::ok();
  }
  const bool inside =
      position_ >= window_begin_ && position_ + out.size() <= window_begin_ + window_.size();
  if (!inside) {
    window_.resize(std::min(kWindowBytes, remaining()));
    window_begin_ = position_;
    MOE_RETURN_IF_ERROR(file_.read_at(position_, window_));
  }
  const auto* begin = window_.data() + (position_ - window_begin_);
  std::copy(begin, begin + out.size(), out.begin());
  position_ += out.size();
  return Status::ok();
}

Result<std::uint64_t> GgufCursor::number(std::size_t size, std::string_view what) {
  std::array<std::byte, 8> bytes{};
  MOE_RETURN_IF_ERROR(read(std::span(bytes).first(size), what));
  return load_number(bytes.data(), size, big_endian_);
}

Result<std::uint32_t> GgufCursor::u32(std::string_view what) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t value, number(4, what));
  return static_cast<std::uint32_t>(value);
}

Result<std::string> GgufCursor::string(std::uint64_t max_bytes, std::string_view what) {
  const std::uint64_t start = position_;
  MOE_ASSIGN_OR_RETURN(const std::uint64_t length, u64(what));
  if (length > max_bytes) {
    return error(start, std::string(what) + " is " + std::to_string(length) +
                            " bytes long, at most " + std::to_string(max_bytes) + " are allowed");
  }
  if (length > remaining()) return cut_short(length, what);
  std::string text(length, '\0');
  MOE_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(text)), what));
  return text;
}

Status GgufCursor::skip(std::uint64_t bytes, std::string_view what) {
  if (bytes > remaining()) return cut_short(bytes, what);
  position_ += bytes;
  return Status::ok();
}

}  // namespace moepack
