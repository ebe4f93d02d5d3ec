#include "runtime/vulkan/stage_port.h"

#include <algorithm>
#include <cstring>

#include "runtime/vulkan/path_steps.h"
#include "shaders/copy_words_args.h"

namespace moepack {
namespace {

void record_words(const PathParts& parts, CommandList& list, std::uint64_t from, std::uint64_t to,
                  std::uint64_t words) {
  constexpr std::uint32_t kCopyThreads = 256;
  constexpr std::uint32_t kMostCopyGroups = 512;
  list.dispatch(parts.kernels.get("copy_words", {kCopyThreads}),
                shader::CopyWordsArgs{.from = from, .to = to, .count = count32(words)},
                {std::min(groups_of(words, kCopyThreads), kMostCopyGroups), 1, 1});
}

}  // namespace

Result<StagePort> StagePort::create(VulkanDevice& device, const StagePlace& place,
                                    std::uint64_t rows, std::uint32_t hidden_size) {
  StagePort port;
  port.hidden_size_ = hidden_size;
  port.clear_at_ = rows * hidden_size * sizeof(float);
  const std::uint64_t clear_bytes = rows * sizeof(std::uint32_t);
  if (!place.is_first) {
    MOE_ASSIGN_OR_RETURN(port.input_,
                         device.allocate(port.clear_at_ + clear_bytes, MemoryKind::kUpload));
    std::memset(port.input_.mapped() + port.clear_at_, 0xff, clear_bytes);
  }
  if (!place.is_last) {
    MOE_ASSIGN_OR_RETURN(port.output_, device.allocate(port.clear_at_, MemoryKind::kReadback));
  }
  return port;
}

void StagePort::record_in(const PathParts& parts, CommandList& list,
                          const BatchShape& shape) const {
  record_words(parts, list, input_.address(), parts.scratch.hidden, shape.rows * hidden_size_);
  record_words(parts, list, input_.address() + clear_at_, parts.scratch.row_error, shape.rows);
  list.barrier();
}

void StagePort::record_out(const PathParts& parts, CommandList& list,
                           const BatchShape& shape) const {
  record_words(parts, list, parts.scratch.hidden, output_.address(), shape.rows * hidden_size_);
}

std::span<float> StagePort::in(std::size_t rows) const {
  return {reinterpret_cast<float*>(input_.mapped()), rows * hidden_size_};
}

std::span<const float> StagePort::out(std::size_t rows) const {
  return {reinterpret_cast<const float*>(output_.mapped()), rows * hidden_size_};
}

}  // namespace moepack
