#include "runtime/model/row_kv_cache.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "runtime/model/byte_counts.h"
#include "runtime/store/out_of_memory.h"

namespace moepack {
namespace {

constexpr std::size_t kKvAlignment = 64;
// Positions whose memory comes at once.
constexpr std::uint64_t kKvBlockRows = 256;

std::uint64_t kv_block_rows(const KvShape& shape) {
  return std::clamp<std::uint64_t>(shape.context, 1, kKvBlockRows);
}

// Memory of one block: rows of keys, then rows of values unless they are in the keys, each part
// aligned.
std::uint64_t kv_part_bytes(const KvShape& shape) {
  return align_up(kv_block_rows(shape) * shape.width() * sizeof(float), kKvAlignment);
}
std::uint64_t kv_block_bytes(const KvShape& shape) { return shape.parts() * kv_part_bytes(shape); }

class RowKvCache final : public KvCache, private KvRows {
 public:
  explicit RowKvCache(const KvShape& shape)
      : shape_(shape), block_rows_(kv_block_rows(shape)), block_bytes_(kv_block_bytes(shape)) {}

  KvEncoding encoding() const override { return KvEncoding::kFloat32; }
  const KvRows* rows() const override { return this; }
  std::uint64_t encoded_bytes(std::uint64_t rows) const override {
    return capped_product(capped_product(rows, shape_.width()), shape_.parts() * sizeof(float));
  }
  std::uint64_t memory_bytes() const override { return blocks_.size() * block_bytes_; }

  Status store(std::uint64_t position, std::size_t rows, const float* keys,
               const float* values) override {
    MOE_RETURN_IF_ERROR(reserve(position + rows));
    for_each_run(position, rows, [&](std::uint64_t at, std::size_t first, std::size_t count) {
      const std::size_t bytes = count * shape_.width() * sizeof(float);
      std::memcpy(key_row(at), keys + first * shape_.width(), bytes);
      if (has_values()) std::memcpy(value_row(at), values + first * shape_.width(), bytes);
    });
    return Status::ok();
  }

  void score(const Kernels& kernels, const float* query, std::size_t head, std::size_t seen,
             float scale, float* scores) const override {
    const std::size_t width = shape_.width();
    for_each_run(0, seen, [&](std::uint64_t at, std::size_t first, std::size_t count) {
      const float* key = key_row(at) + head * shape_.head_dim;
      for (std::size_t i = 0; i < count; ++i) {
        scores[first + i] = kernels.dot(query, key + i * width, shape_.head_dim) * scale;
      }
    });
  }

  void add_values(const Kernels& kernels, const float* weights, std::size_t head, std::size_t seen,
                  float* out) const override {
    const std::size_t width = shape_.width();
    for_each_run(0, seen, [&](std::uint64_t at, std::size_t first, std::size_t count) {
      const float* value = value_row(at) + head * shape_.head_dim;
      for (std::size_t i = 0; i < count; ++i) {
        kernels.axpy(weights[first + i], value + i * width, out, shape_.value_dim());
      }
    });
  }

  Result<std::unique_ptr<KvCache>> copy(std::uint64_t rows) const override {
    auto other = std::make_unique<RowKvCache>(shape_);
    MOE_RETURN_IF_ERROR(other->reserve(rows));
    for_each_run(0, rows, [&](std::uint64_t at, std::size_t, std::size_t count) {
      const std::size_t bytes = count * shape_.width() * sizeof(float);
      std::memcpy(other->key_row(at), key_row(at), bytes);
      if (has_values()) std::memcpy(other->value_row(at), value_row(at), bytes);
    });
    return std::unique_ptr<KvCache>(std::move(other));
  }

  void save(std::uint64_t rows, std::span<std::byte> bytes) const override {
    const std::size_t row_bytes = shape_.width() * sizeof(float);
    for_each_run(0, rows, [&](std::uint64_t at, std::size_t first, std::size_t count) {
      std::memcpy(bytes.data() + first * row_bytes, key_row(at), count * row_bytes);
      if (!has_values()) return;
      std::memcpy(bytes.data() + (rows + first) * row_bytes, value_row(at), count * row_bytes);
    });
  }

  Status load(std::uint64_t rows, std::span<const std::byte> bytes) override {
    const std::size_t row_bytes = shape_.width() * sizeof(float);
    MOE_RETURN_IF_ERROR(reserve(rows));
    for_each_run(0, rows, [&](std::uint64_t at, std::size_t first, std::size_t count) {
      std::memcpy(key_row(at), bytes.data() + first * row_bytes, count * row_bytes);
      if (!has_values()) return;
      std::memcpy(value_row(at), bytes.data() + (rows + first) * row_bytes, count * row_bytes);
    });
    return Status::ok();
  }

 private:
  bool has_values() const { return shape_.value_in_key == 0; }
  // Where the values of a block begin.
  std::uint64_t values_at() const { return has_values() ? block_bytes_ / 2 : 0; }

  Status reserve(std::uint64_t rows) {
    constexpr std::string_view kWhat = "more keys and values of a layer";
    return or_out_of_memory(kWhat, block_bytes_, [&]() {
      while (blocks_.size() * block_rows_ < rows) {
        Result<AlignedBuffer> block = AlignedBuffer::allocate(block_bytes_, kKvAlignment);
        if (!block.is_ok()) return out_of_memory(kWhat, block_bytes_);
        blocks_.push_back(std::move(block).value());
      }
      return Status::ok();
    });
  }

  // Calls body(position, rows before it, rows) for the parts of [position, position + rows) that
  // lie within one block.
  template <typename Body>
  void for_each_run(std::uint64_t position, std::size_t rows, const Body& body) const {
    for (std::size_t first = 0; first < rows;) {
      const std::uint64_t at = position + first;
      const std::size_t count =
          std::min<std::uint64_t>(rows - first, block_rows_ - at % block_rows_);
      body(at, first, count);
      first += count;
    }
  }

  float* key_row(std::uint64_t position) { return row(position, 0); }
  float* value_row(std::uint64_t position) { return row(position, values_at()); }
  const float* key_row(std::uint64_t position) const { return row(position, 0); }
  const float* value_row(std::uint64_t position) const { return row(position, values_at()); }
  float* row(std::uint64_t position, std::uint64_t part) {
    std::byte* block = blocks_[position / block_rows_].data() + part;
    return reinterpret_cast<float*>(block) + position % block_rows_ * shape_.width();
  }
  const float* row(std::uint64_t position, std::uint64_t part) const {
    const std::byte* block = blocks_[position / block_rows_].data() + part;
    return reinterpret_cast<const float*>(block) + position % block_rows_ * shape_.width();
  }

  KvShape shape_;
  std::uint64_t block_rows_;
  std::uint64_t block_bytes_;
  std::vector<AlignedBuffer> blocks_;
};

}  // namespace

std::unique_ptr<KvCache> make_row_kv_cache(const KvShape& shape) {
  return std::make_unique<RowKvCache>(shape);
}

std::uint64_t row_kv_cache_bytes(const KvShape& shape) {
  const std::uint64_t row =
      capped_product(capped_product(shape.heads, shape.head_dim), shape.parts());
  const std::uint64_t block = capped_product(row, kv_block_rows(shape) * sizeof(float));
  if (block >= kTooManyBytes) return kTooManyBytes;
  // The list of blocks may hold three times its size while it grows.
  const std::uint64_t blocks = capped_product(div_up(shape.context, kv_block_rows(shape)),
                                              kv_block_bytes(shape) + 3 * sizeof(AlignedBuffer));
  return capped_sum(blocks, sizeof(RowKvCache));
}

}  // namespace moepack
