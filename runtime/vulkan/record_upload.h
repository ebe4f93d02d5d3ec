// Brings bytes of the host into device memory, many at once: threads copy them into memory that the
// device reads, while it takes what they copied before. Rows of experts come into the device's
// order (device_rows.h) on the way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/weights/expert_layout.h"
#include "runtime/model/thread_pool.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/device_arena.h"

namespace moepack {

struct UploadItem {
  std::span<const std::byte> bytes = {};
  const ExpertLayout* layout = nullptr;  // of a record; null: the bytes are copied as they are
  DeviceRange to = {};
};

// One thread at a time; the device outlives it.
class RecordUpload {
 public:
  // More threads than this copy no faster than memory gives.
  static constexpr std::size_t kMostThreads = 8;
  // Memory of the host for items of at most `most_bytes`.
  static std::uint64_t host_bytes(std::uint64_t most_bytes);

  // `threads` >= 1 counts the caller. Host memory is taken at the first upload to device memory
  // that the host does not see.
  RecordUpload(VulkanDevice& device, std::uint64_t most_bytes, std::size_t threads);
  ~RecordUpload();
  RecordUpload(const RecordUpload&) = delete;
  RecordUpload& operator=(const RecordUpload&) = delete;

  // Items of at most `most_bytes` each, and of what the device gives in one piece. When it returns
  // their bytes may go, and what is submitted to the device from then on sees them there, though
  // the device may still be taking them. Nothing that was submitted before uses these ranges any
  // more. kIo when memory is short; any other error is final for the device.
  Status upload(std::span<const UploadItem> items);

 private:
  // A piece of host memory, and what the device was told to take of it.
  struct Lot {
    DeviceBuffer memory;
    std::optional<CommandList> list;
    std::uint64_t submission = 0;  // done with it
  };
  // What a thread copies at once.
  struct Piece {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
    const WeightFormat* format = nullptr;  // of whole rows; null: the bytes stay as they are
    Component component = Component::kCodes;
    std::size_t row_bytes = 0;
  };

  std::size_t count_for_lot(std::span<const UploadItem> items) const;
  Status upload_lot(std::span<const UploadItem> items);
  Status prepare(Lot& lot);
  void add_pieces(const UploadItem& item, std::byte* to);
  void add_bytes(std::span<const std::byte> bytes, std::byte* to);
  void add_rows(const ProjectionLayout& matrix, Component component, const std::byte* from,
                std::byte* to);
  static void copy(const Piece& piece);

  VulkanDevice& device_;
  const std::uint64_t lot_bytes_;
  ThreadPool pool_;
  std::array<Lot, 2> lots_;
  std::size_t next_lot_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace moepack
