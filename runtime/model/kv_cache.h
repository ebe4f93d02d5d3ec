// The keys and values that a full-attention layer remembers of one sequence, in an encoding of
// their own: they come as float32 rows and are read only through products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "formats/base/status.h"
#include "runtime/model/kernels.h"

namespace moepack {

// How rows are encoded; the numbers stand in saved sequences and are never given away again.
enum class KvEncoding : std::uint32_t { kFloat32 = 0 };

struct KvShape {
  std::uint64_t heads = 0;     // K/V heads
  std::uint64_t head_dim = 0;  // floats of a head
  std::uint64_t context = 0;   // most positions

  std::uint64_t width() const { return heads * head_dim; }  // floats of a row
};

// store() is called from one thread while nothing else runs; score() and add_values() from any
// number of threads at once.
class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual KvEncoding encoding() const = 0;
  // Encoded bytes of `rows` rows, keys and values together.
  virtual std::uint64_t encoded_bytes(std::uint64_t rows) const = 0;
  // Memory that is held now, in bytes.
  virtual std::uint64_t memory_bytes() const = 0;

  // Encodes rows as positions [position, position + rows), over what stood there. keys (after norm
  // and RoPE) and values: float32 [rows, width]. Every position below `position` has been stored,
  // and position + rows is within the context. kIo when memory is short.
  virtual Status store(std::uint64_t position, std::size_t rows, const float* keys,
                       const float* values) = 0;

  // scores[s] = dot(query, key of `head` at s) * scale for s < seen. query: [head_dim].
  virtual void score(const Kernels& kernels, const float* query, std::size_t head, std::size_t seen,
                     float scale, float* scores) const = 0;
  // out += sum over s < seen, in order, of weights[s] * value of `head` at s. out: [head_dim].
  virtual void add_values(const Kernels& kernels, const float* weights, std::size_t head,
                          std::size_t seen, float* out) const = 0;

  // A cache of its own with the first `rows` positions. kIo when memory is short, as of load();
  // std::bad_alloc when there is none for the object itself.
  virtual Result<std::unique_ptr<KvCache>> copy(std::uint64_t rows) const = 0;
  // The first rows as encoded bytes, all keys before all values; `bytes` has encoded_bytes(rows).
  virtual void save(std::uint64_t rows, std::span<std::byte> bytes) const = 0;
  // The reverse, with any bytes of that size.
  virtual Status load(std::uint64_t rows, std::span<const std::byte> bytes) = 0;
};

// Keys and values as float32. Memory grows in blocks of positions as they are stored.
std::unique_ptr<KvCache> make_float_kv_cache(const KvShape& shape);
// Memory of such a cache whose context is full; at most kTooManyBytes.
std::uint64_t float_kv_cache_bytes(const KvShape& shape);

}  // namespace moepack
