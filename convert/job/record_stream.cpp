#include "convert/job/record_stream.h"

#include <algorithm>
#include <cstring>

namespace moepack {

Result<std::span<std::byte>> RecordStream::append(std::size_t size) {
  if (used_ + size > buffer_.size()) {
    const std::size_t larger = std::max(used_ + size, kBlockBytes + kBlockBytes / 4);
    MOE_ASSIGN_OR_RETURN(AlignedBuffer grown, AlignedBuffer::allocate(larger, kDirectUnit));
    std::copy_n(buffer_.data(), used_, grown.data());
    buffer_ = std::move(grown);
  }
  const std::span<std::byte> added = buffer_.span().subspan(used_, size);
  used_ += size;
  return added;
}

Status RecordStream::flush(std::size_t size) {
  const std::span<const std::byte> block = buffer_.span().first(size);
  sum_.add(block);
  MOE_RETURN_IF_ERROR(file_.write_at(offset_, block));
  offset_ += size;
  used_ -= size;
  std::memmove(buffer_.data(), buffer_.data() + size, used_);
  return Status::ok();
}

Result<std::uint64_t> RecordStream::finish() {
  if (used_ > 0) MOE_RETURN_IF_ERROR(flush(used_));
  return sum_.finish();
}

}  // namespace moepack
