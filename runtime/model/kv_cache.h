// The keys and values that an attention layer remembers of one sequence, in an encoding of their
// own: they come as float32 rows, and are read through products (KvRows) or in blocks (KvBlocks).
// Latent attention remembers one compressed row a token: it is the key of every head, and its
// first values are the value, which therefore is not stored again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "formats/base/status.h"
#include "runtime/model/kernels.h"
#include "runtime/model/kv_encoding.h"

namespace moepack {

// Where what is remembered lies.
enum class KvLayout : std::uint8_t {
  kRows,    // position after position, all heads together; float32 alone
  kBlocks,  // as the attention kernels take it (attention_kernels.h), head after head in each block
};

struct KvFormat {
  KvEncoding encoding = KvEncoding::kFloat32;
  KvLayout layout = KvLayout::kRows;
};
// How `kernels` want to read keys and values: kRows when they have no kernels of attention.
KvFormat kv_format(const Kernels& kernels, KvEncoding encoding);

struct KvShape {
  std::uint64_t heads = 0;     // K/V heads
  std::uint64_t head_dim = 0;  // floats of a head's key, and of its value
  std::uint64_t context = 0;   // most positions
  KvFormat format;
  // 0: values are stored beside the keys. Else a head's value is the first so many floats of its
  // key, and store() reads no values.
  std::uint64_t value_in_key = 0;

  std::uint64_t width() const { return heads * head_dim; }  // floats of a row
  std::uint64_t value_dim() const { return value_in_key == 0 ? head_dim : value_in_key; }
  std::uint64_t parts() const { return value_in_key == 0 ? 2 : 1; }  // keys and values, or keys
};

// Reading float32 rows through products. From any number of threads at once.
class KvRows {
 public:
  virtual ~KvRows() = default;
  // scores[s] = dot(query, key of `head` at s) * scale for s < seen. query: [head_dim].
  virtual void score(const Kernels& kernels, const float* query, std::size_t head, std::size_t seen,
                     float scale, float* scores) const = 0;
  // out += sum over s < seen, in order, of weights[s] * value of `head` at s. out: [value_dim].
  virtual void add_values(const Kernels& kernels, const float* weights, std::size_t head,
                          std::size_t seen, float* out) const = 0;
};

// Reading encoded blocks. From any number of threads at once.
class KvBlocks {
 public:
  virtual ~KvBlocks() = default;
  // Block `index` of `head`: positions [index * kKvBlock, (index + 1) * kKvBlock), of which the
  // first has been stored. Valid until the next store(). With values in keys it has none, and its
  // value_scales are the keys'.
  virtual KvBlock block(std::size_t head, std::size_t index) const = 0;
};

// store() is called from one thread while nothing else runs.
class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual KvEncoding encoding() const = 0;
  // The one of the two that the layout has; the other is null.
  virtual const KvRows* rows() const { return nullptr; }
  virtual const KvBlocks* blocks() const { return nullptr; }
  // Encoded bytes of `rows` rows, all that is stored of them, as save() writes them.
  virtual std::uint64_t encoded_bytes(std::uint64_t rows) const = 0;
  // Memory that is held now, in bytes.
  virtual std::uint64_t memory_bytes() const = 0;

  // Encodes rows as positions [position, position + rows), over what stood there. keys (after norm
  // and RoPE) and values: float32 [rows, width]; values may be null where they are in the keys.
  // Every position below `position` has been stored, and position + rows is within the context.
  // kIo when memory is short.
  virtual Status store(std::uint64_t position, std::size_t rows, const float* keys,
                       const float* values) = 0;

  // A cache of its own with the first `rows` positions. kIo when memory is short, as of load();
  // std::bad_alloc when there is none for the object itself.
  virtual Result<std::unique_ptr<KvCache>> copy(std::uint64_t rows) const = 0;
  // The first rows as encoded bytes (docs/sequence-format.md), the same in every layout; `bytes`
  // has encoded_bytes(rows).
  virtual void save(std::uint64_t rows, std::span<std::byte> bytes) const = 0;
  // The reverse, with any bytes of that size.
  virtual Status load(std::uint64_t rows, std::span<const std::byte> bytes) = 0;
};

// An empty cache. Its memory grows in blocks of positions as they are stored.
std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape);
// Memory of such a cache whose context is full; at most kTooManyBytes.
std::uint64_t kv_cache_bytes(const KvShape& shape);

}  // namespace moepack
