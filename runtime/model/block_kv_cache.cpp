#include "runtime/model/block_kv_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"
#include "formats/base/file.h"
#include "runtime/model/byte_counts.h"
#include "runtime/store/out_of_memory.h"

namespace moepack {
namespace {

constexpr std::size_t kKvAlignment = 64;

// Where everything of one head lies in a block, in bytes.
struct HeadPlan {
  explicit HeadPlan(const KvShape& shape)
      : positions(std::clamp<std::uint64_t>(align_up(shape.context, kKvGroup), kKvGroup, kKvBlock)),
        values(capped_product(positions * kv_value_bytes(shape.format.encoding), shape.head_dim)),
        scales(capped_sum(values,
                          shape.value_in_key != 0
                              ? 0
                              : capped_product(positions * kv_value_bytes(shape.format.encoding),
                                               align_up(shape.head_dim, kKvGroup)))),
        bytes(capped_sum(scales,
                         shape.parts() * positions * kv_scale_bytes(shape.format.encoding))) {}

  std::uint64_t positions;  // room
  std::uint64_t values;     // keys begin at 0
  std::uint64_t scales;     // of keys, then of values
  std::uint64_t bytes;      // of all
  std::uint64_t stride() const { return align_up(bytes, kKvAlignment); }
};

enum class KvPart : std::uint8_t { kKeys, kValues };
constexpr std::array kParts{KvPart::kKeys, KvPart::kValues};

template <typename Element>
void copy_values_of(const KvBlock& block, std::size_t key_dim, std::size_t value_dim,
                    std::size_t seen, Element* to) {
  const auto* from = reinterpret_cast<const Element*>(block.keys);
  for (std::size_t first = 0; first < seen; first += kKvGroup) {
    for (std::size_t d = 0; d < align_up(value_dim, kKvGroup); ++d) {
      const Element* keys = from + first * key_dim + d * kKvGroup;
      Element* value = to + (d / kKvGroup * block.positions + first) * kKvGroup + d % kKvGroup;
      for (std::size_t i = 0; i < kKvGroup; ++i) {
        value[i * kKvGroup] = d < value_dim ? keys[i] : Element{};
      }
    }
  }
}

class BlockKvCache final : public KvCache, private KvBlocks {
 public:
  explicit BlockKvCache(const KvShape& shape)
      : shape_(shape), plan_(shape), block_bytes_(shape.heads * plan_.stride()) {}

  KvEncoding encoding() const override { return shape_.format.encoding; }
  const KvBlocks* blocks() const override { return this; }

  std::uint64_t encoded_bytes(std::uint64_t rows) const override {
    const std::uint64_t row = capped_sum(capped_product(shape_.width(), value_bytes()),
                                         shape_.heads * kv_scale_bytes(encoding()));
    return capped_product(rows, shape_.parts() * row);
  }
  std::uint64_t memory_bytes() const override { return blocks_.size() * block_bytes_; }

  KvBlock block(std::size_t head, std::size_t index) const override {
    const std::byte* at = blocks_[index].data() + head * plan_.stride();
    const auto* scales = reinterpret_cast<const float*>(at + plan_.scales);
    return {.encoding = encoding(),
            .positions = plan_.positions,
            .keys = at,
            .values = has_values() ? at + plan_.values : nullptr,
            .key_scales = scales,
            .value_scales = has_values() ? scales + plan_.positions : scales};
  }

  Status store(std::uint64_t position, std::size_t rows, const float* keys,
               const float* values) override {
    MOE_RETURN_IF_ERROR(reserve(position + rows));
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t head = 0; head < shape_.heads; ++head) {
        const std::size_t from = r * shape_.width() + head * shape_.head_dim;
        encode(KvPart::kKeys, position + r, head, keys + from);
        if (has_values()) encode(KvPart::kValues, position + r, head, values + from);
      }
    }
    return Status::ok();
  }

  Result<std::unique_ptr<KvCache>> copy(std::uint64_t rows) const override {
    auto other = std::make_unique<BlockKvCache>(shape_);
    MOE_RETURN_IF_ERROR(other->reserve(rows));
    for (std::size_t i = 0; i < other->blocks_.size(); ++i) {
      std::memcpy(other->blocks_[i].data(), blocks_[i].data(), block_bytes_);
    }
    return std::unique_ptr<KvCache>(std::move(other));
  }

  void save(std::uint64_t rows, std::span<std::byte> bytes) const override {
    std::byte* to = bytes.data();
    for_each_saved(rows, [&](const Place& place, std::size_t size) {
      std::memcpy(to, blocks_[place.block].data() + place.offset, size);
      to += size;
    });
  }

  Status load(std::uint64_t rows, std::span<const std::byte> bytes) override {
    MOE_RETURN_IF_ERROR(reserve(rows));
    const std::byte* from = bytes.data();
    for_each_saved(rows, [&](const Place& place, std::size_t size) {
      std::memcpy(memory(place), from, size);
      from += size;
    });
    return Status::ok();
  }

 private:
  std::uint64_t value_bytes() const { return kv_value_bytes(encoding()); }
  bool has_values() const { return shape_.value_in_key == 0; }
  std::span<const KvPart> parts() const { return std::span(kParts).first(shape_.parts()); }

  Status reserve(std::uint64_t rows) {
    constexpr std::string_view kWhat = "more keys and values of a layer";
    return or_out_of_memory(kWhat, block_bytes_, [&]() {
      while (blocks_.size() * plan_.positions < rows) {
        Result<AlignedBuffer> block = AlignedBuffer::allocate(block_bytes_, kKvAlignment);
        if (!block.is_ok()) return out_of_memory(kWhat, block_bytes_);
        // Padding of values is read, and what is not stored yet is multiplied and left out.
        std::memset(block.value().data(), 0, block_bytes_);
        blocks_.push_back(std::move(block).value());
      }
      return Status::ok();
    });
  }

  // A byte of the cache.
  struct Place {
    std::size_t block = 0;
    std::uint64_t offset = 0;
  };
  std::byte* memory(const Place& place) { return blocks_[place.block].data() + place.offset; }

  Place scale_place(KvPart part, std::uint64_t position, std::size_t head) const {
    const std::uint64_t first = part == KvPart::kKeys ? 0 : plan_.positions;
    const std::uint64_t index = first + position % plan_.positions;
    return {position / plan_.positions,
            head * plan_.stride() + plan_.scales + index * sizeof(float)};
  }
  // Element 0 of the head at this position.
  Place first_element(KvPart part, std::uint64_t position, std::size_t head) const {
    const std::uint64_t at = position % plan_.positions;
    const std::uint64_t group = at / kKvGroup * kKvGroup;
    const std::uint64_t offset = part == KvPart::kKeys
                                     ? (group * shape_.head_dim + at % kKvGroup) * value_bytes()
                                     : plan_.values + at * kKvGroup * value_bytes();
    return {position / plan_.positions, head * plan_.stride() + offset};
  }
  // Calls body(first dimension, dimensions, offset behind element 0, offset between elements) for
  // the parts of a head whose elements lie at equal distances.
  template <typename Body>
  void for_each_run(KvPart part, const Body& body) const {
    const std::size_t count = shape_.head_dim;
    if (part == KvPart::kKeys) return body(0, count, 0, kKvGroup * value_bytes());
    for (std::size_t d = 0; d < count; d += kKvGroup) {
      body(d, std::min(kKvGroup, count - d), d * plan_.positions * value_bytes(), value_bytes());
    }
  }

  template <typename Element, typename Encode>
  void put(KvPart part, std::uint64_t position, std::size_t head, const float* from,
           const Encode& encoded) {
    std::byte* const first = memory(first_element(part, position, head));
    for_each_run(part,
                 [&](std::size_t dim, std::size_t count, std::uint64_t offset, std::uint64_t step) {
                   std::byte* at = first + offset;
                   for (std::size_t i = 0; i < count; ++i, at += step) {
                     const Element element = encoded(from[dim + i]);
                     std::memcpy(at, &element, sizeof(element));
                   }
                 });
  }

  void encode(KvPart part, std::uint64_t position, std::size_t head, const float* from) {
    switch (encoding()) {
      case KvEncoding::kFloat32:
        return put<float>(part, position, head, from, [](float value) { return value; });
      case KvEncoding::kBfloat16:
        return put<std::uint16_t>(part, position, head, from, f32_to_bf16);
      case KvEncoding::kFloat16:
        return put<std::uint16_t>(part, position, head, from, f32_to_f16);
      case KvEncoding::kFp8:
        break;
    }
    const float scale = e4m3_scale(from, shape_.head_dim);
    std::memcpy(memory(scale_place(part, position, head)), &scale, sizeof(scale));
    put<std::uint8_t>(part, position, head, from,
                      [scale](float value) { return e4m3_code(value, scale); });
  }

  // Calls body(place, bytes) for every element of the first rows in the order of saved sequences:
  // the keys of all positions, their scales, then the same of the values.
  template <typename Body>
  void for_each_saved(std::uint64_t rows, const Body& body) const {
    for (const KvPart part : parts()) {
      for (std::uint64_t position = 0; position < rows; ++position) {
        for (std::size_t head = 0; head < shape_.heads; ++head) {
          const Place first = first_element(part, position, head);
          for_each_run(
              part, [&](std::size_t, std::size_t count, std::uint64_t offset, std::uint64_t step) {
                for (std::size_t i = 0; i < count; ++i) {
                  body({first.block, first.offset + offset + i * step}, value_bytes());
                }
              });
        }
      }
      if (kv_scale_bytes(encoding()) == 0) continue;
      for (std::uint64_t position = 0; position < rows; ++position) {
        for (std::size_t head = 0; head < shape_.heads; ++head) {
          body(scale_place(part, position, head), sizeof(float));
        }
      }
    }
  }

  KvShape shape_;
  HeadPlan plan_;
  std::uint64_t block_bytes_;
  std::vector<AlignedBuffer> blocks_;
};

}  // namespace

void copy_values(const KvBlock& block, std::size_t key_dim, std::size_t value_dim, std::size_t seen,
                 std::byte* to) {
  switch (kv_value_bytes(block.encoding)) {
    case 1:
      return copy_values_of(block, key_dim, value_dim, seen, reinterpret_cast<std::uint8_t*>(to));
    case 2:
      return copy_values_of(block, key_dim, value_dim, seen, reinterpret_cast<std::uint16_t*>(to));
    default:
      return copy_values_of(block, key_dim, value_dim, seen, reinterpret_cast<std::uint32_t*>(to));
  }
}

std::unique_ptr<KvCache> make_block_kv_cache(const KvShape& shape) {
  return std::make_unique<BlockKvCache>(shape);
}

std::uint64_t block_kv_cache_bytes(const KvShape& shape) {
  const HeadPlan plan(shape);
  const std::uint64_t block = capped_product(shape.heads, plan.stride());
  if (block >= kTooManyBytes) return kTooManyBytes;
  // The list of blocks may hold three times its size while it grows.
  const std::uint64_t blocks =
      capped_product(div_up(shape.context, plan.positions), block + 3 * sizeof(AlignedBuffer));
  return capped_sum(blocks, sizeof(BlockKvCache));
}

}  // namespace moepack
