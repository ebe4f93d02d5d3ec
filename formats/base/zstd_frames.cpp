#include "formats/base/zstd_frames.h"

#include <zstd.h>
#include <algorithm>
#include <string>

namespace moepack {
namespace {

constexpr int kWindowLogMax = 20;
constexpr std::size_t kInputBytes = std::size_t{256} << 10;
static_assert(kZstdFrameBytes == std::size_t{1} << kWindowLogMax);

}  // namespace

struct ZstdFrameEncoder::Impl {
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::vector<std::byte> frame;
};

ZstdFrameEncoder::ZstdFrameEncoder(int level) : impl_(std::make_unique<Impl>()) {
  impl_->frame.resize(ZSTD_compressBound(kZstdFrameBytes));
  if (impl_->context != nullptr) {
    (void)ZSTD_CCtx_setParameter(impl_->context.get(), ZSTD_c_compressionLevel, level);
  }
}

ZstdFrameEncoder::~ZstdFrameEncoder() = default;

Result<std::span<const std::byte>> ZstdFrameEncoder::encode(std::span<const std::byte> block) {
  if (impl_->context == nullptr) return Status(StatusCode::kIo, "zstd: out of memory");
  const std::size_t size = ZSTD_compress2(impl_->context.get(), impl_->frame.data(),
                                          impl_->frame.size(), block.data(), block.size());
  if (ZSTD_isError(size) != 0) {
    return Status(StatusCode::kIo, std::string("zstd: ") + ZSTD_getErrorName(size));
  }
  return std::span<const std::byte>(impl_->frame).first(size);
}

struct ZstdFrameReader::Impl {
  explicit Impl(const File& source) : file(source) {}

  const File& file;
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context{ZSTD_createDCtx(), ZSTD_freeDCtx};
  std::vector<std::byte> buffer;
  std::size_t taken = 0;       // bytes of the buffer that were decoded
  std::uint64_t offset = 0;    // of the buffer's end in the file
  bool frame_complete = true;  // nothing of the next frame was seen
};

ZstdFrameReader::ZstdFrameReader(const File& file) : impl_(std::make_unique<Impl>(file)) {
  if (impl_->context != nullptr) {
    (void)ZSTD_DCtx_setParameter(impl_->context.get(), ZSTD_d_windowLogMax, kWindowLogMax);
  }
}

ZstdFrameReader::~ZstdFrameReader() = default;

Status ZstdFrameReader::error(std::string_view what) const {
  const std::uint64_t at = impl_->offset - (impl_->buffer.size() - impl_->taken);
  return corrupt(Where{.file = impl_->file.path(), .offset = at}, what,
                 "the file is damaged; copy the calibration again or make it again");
}

// Decodes a little; `produced` bytes of `out` are filled. Without input left and in the middle of a
// frame: kCorrupt.
Status ZstdFrameReader::step(std::span<std::byte> out, std::size_t& produced) {
  Impl& s = *impl_;
  if (s.context == nullptr) return {StatusCode::kIo, "zstd: out of memory"};
  if (s.taken == s.buffer.size() && s.offset < s.file.size()) {
    s.buffer.resize(std::min<std::uint64_t>(kInputBytes, s.file.size() - s.offset));
    MOE_RETURN_IF_ERROR(s.file.read_at(s.offset, s.buffer));
    s.offset += s.buffer.size();
    s.taken = 0;
  }
  ZSTD_inBuffer in{s.buffer.data() + s.taken, s.buffer.size() - s.taken, 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  const bool at_end = in.size == 0;
  if (at_end && s.frame_complete) return error("its contents end here, more were expected");
  const std::size_t hint = ZSTD_decompressStream(s.context.get(), &to, &in);
  if (ZSTD_isError(hint) != 0) {
    return error(std::string("is no zstd frame that can be read here: ") + ZSTD_getErrorName(hint));
  }
  s.taken += in.pos;
  s.frame_complete = hint == 0;
  produced = to.pos;
  if (at_end && produced == 0 && !s.frame_complete) return error("ends within a zstd frame");
  return Status::ok();
}

Status ZstdFrameReader::read(std::span<std::byte> out) {
  while (!out.empty()) {
    std::size_t produced = 0;
    MOE_RETURN_IF_ERROR(step(out, produced));
    out = out.subspan(produced);
  }
  return Status::ok();
}

Status ZstdFrameReader::finish() {
  Impl& s = *impl_;
  while (!s.frame_complete) {
    std::byte more{};
    std::size_t produced = 0;
    MOE_RETURN_IF_ERROR(step({&more, 1}, produced));
    if (produced != 0) return error("holds more than its sizes say");
  }
  if (s.taken == s.buffer.size() && s.offset == s.file.size()) return Status::ok();
  return error("holds more than its sizes say");
}

}  // namespace moepack
