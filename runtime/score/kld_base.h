// The base file of llama-perplexity (--kl-divergence-base): the log-probabilities of one model at
// every scored position of a text, for another to be compared with. Little-endian:
//
//   offset 0    "_logits_"
//          8    int32 n_ctx, int32 n_vocab, int32 n_chunk
//         20    int32 tokens[n_chunk][n_ctx]
//   then        rows [n_chunk][n_ctx - 1 - n_ctx/2], each of 2 * (n_vocab rounded up to even, + 4)
//               bytes: float scale, float min_log_prob, uint16 codes[n_vocab], and one unused code
//               if n_vocab is odd
//
// The row of position n_ctx/2 + r gives ln p(i) = min_log_prob + scale * codes[i]. Logits more than
// 16 below the highest are stored as if 16 below it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "runtime/score/part_loop.h"

namespace moepack {

// Where a base file's bytes come from: a file, or memory in tests.
struct ByteSource {
  std::string name;  // for messages
  std::uint64_t size = 0;
  // Fills `out` from `offset` on; called only for ranges within `size`.
  std::function<Status(std::uint64_t offset, std::span<std::byte> out)> read_at;
};

// Reads row by row: memory is the token list and one row, however large the file (a vocabulary of
// 248k makes tens of gigabytes). Not thread-safe.
class KldBaseReader {
 public:
  // kCorrupt when the header contradicts itself or the file's size, or a token is no id.
  static Result<KldBaseReader> open(const std::filesystem::path& path);
  static Result<KldBaseReader> open(ByteSource source);

  std::size_t context() const { return context_; }
  std::size_t vocab_size() const { return vocab_size_; }
  std::size_t windows() const { return windows_; }
  std::size_t scores_per_window() const { return context_ - 1 - context_ / 2; }
  std::size_t rows() const { return windows_ * scores_per_window(); }
  // [windows * context]: the whole windows of the text that the file was made from.
  std::span<const std::int32_t> tokens() const { return tokens_; }

  // kInvalidArgument, saying what differs, unless the file fits a model with `vocab_size` logits.
  Status check_vocab(std::size_t vocab_size) const;
  // kInvalidArgument, saying what differs, unless the file was made with this context from a text
  // that starts with the same tokens (`tokens` may go on behind the file's windows).
  Status check_text(std::size_t context, std::span<const std::int32_t> tokens) const;

  // Reads the natural log-probabilities of row `row` < rows() into out [vocab_size]. kCorrupt when
  // its scale or minimum are no finite numbers of a distribution.
  Status read_row(std::size_t row, std::span<float> out, const PartLoop& loop = {});

 private:
  KldBaseReader() = default;
  Status read_header();
  Status read_tokens();

  ByteSource source_;
  std::size_t context_ = 0;
  std::size_t vocab_size_ = 0;
  std::size_t windows_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<std::byte> row_;
};

// Writes a base file row by row. It appears under its name only at commit(). Not thread-safe.
class KldBaseWriter {
 public:
  // `tokens`: [windows * context], at least one window; context >= 3; vocab_size >= 1.
  // kInvalidArgument when the numbers do not fit each other or the format's int32. `loop` shares
  // the work on a row; the bytes do not depend on it.
  static Result<KldBaseWriter> create(const std::filesystem::path& path, std::size_t context,
                                      std::size_t vocab_size, std::span<const std::int32_t> tokens,
                                      PartLoop loop = {});

  // Adds the next row from its logits [vocab_size]. kCorrupt for logits without a distribution.
  Status add(std::span<const float> logits);
  // kInvalidArgument while rows are missing.
  Status commit();

 private:
  KldBaseWriter(AtomicFile file, PartLoop loop) : file_(std::move(file)), loop_(std::move(loop)) {}
  AtomicFile file_;
  PartLoop loop_;
  std::size_t vocab_size_ = 0;
  std::uint64_t rows_left_ = 0;
  std::uint64_t offset_ = 0;
  std::vector<std::byte> row_;
};

}  // namespace moepack
