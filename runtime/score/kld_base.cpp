#include "runtime/score/kld_base.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/output_file.h"
#include "runtime/score/log_softmax.h"
#include "runtime/score/ranked_logits.h"

namespace moepack {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr std::uint64_t kHeaderBytes = 20;
constexpr std::size_t kRowHeadBytes = 8;  // scale, min_log_prob
constexpr std::size_t kMinContext = 3;
constexpr double kMaxCode = 65535.0;
constexpr float kLogitRange = 16.0F;
// Rounding may lift the likeliest token's log-probability this far above 0.
constexpr float kLogProbSlack = 1e-3F;

std::uint64_t row_bytes(std::uint64_t vocab_size) {
  return kRowHeadBytes + align_up(vocab_size, 2) * sizeof(std::uint16_t);
}

// The size of the whole file, or nullopt when it does not fit into 64 bits.
std::optional<std::uint64_t> file_bytes(std::uint64_t context, std::uint64_t vocab_size,
                                        std::uint64_t windows) {
  const auto rows = checked_mul(windows, context - 1 - context / 2);
  const auto token_bytes = checked_mul(windows, context * sizeof(std::int32_t));
  if (!rows || !token_bytes) return std::nullopt;
  const auto all_rows = checked_mul(*rows, row_bytes(vocab_size));
  const auto head = checked_add(*token_bytes, kHeaderBytes);
  if (!all_rows || !head) return std::nullopt;
  return checked_add(*head, *all_rows);
}

float lowest_logit(std::span<const float> logits, const PartLoop& loop) {
  std::vector<float> lowest(vocab_parts(logits.size()));
  for_each_vocab_part(logits.size(), loop,
                      [&](std::size_t part, std::size_t begin, std::size_t end) {
                        const std::span<const float> of_part = logits.subspan(begin, end - begin);
                        lowest[part] = *std::min_element(of_part.begin(), of_part.end());
                      });
  return *std::min_element(lowest.begin(), lowest.end());
}

}  // namespace

Result<KldBaseReader> KldBaseReader::open(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(File opened, File::open(path));
  const auto file = std::make_shared<File>(std::move(opened));
  return open(ByteSource{.name = file->path(),
                         .size = file->size(),
                         .read_at = [file](std::uint64_t offset, std::span<std::byte> out) {
                           return file->read_at(offset, out);
                         }});
}

Result<KldBaseReader> KldBaseReader::open(ByteSource source) {
  KldBaseReader reader;
  reader.source_ = std::move(source);
  MOE_RETURN_IF_ERROR(reader.read_header());
  MOE_RETURN_IF_ERROR(reader.read_tokens());
  return reader;
}

Status KldBaseReader::read_header() {
  const Where where{.file = source_.name};
  std::array<std::byte, kHeaderBytes> head;
  if (source_.size < head.size()) {
    return corrupt(where, "is too short for a base file of log-probabilities");
  }
  MOE_RETURN_IF_ERROR(source_.read_at(0, head));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt(where,
                   "is not a base file of log-probabilities (it does not start with "
                   "\"_logits_\")",
                   "make one with 'perplexity --kl-divergence-base FILE'");
  }
  const auto context = load_le<std::int32_t>(head.data() + 8);
  const auto vocab_size = load_le<std::int32_t>(head.data() + 12);
  const auto windows = load_le<std::int32_t>(head.data() + 16);
  if (context < static_cast<std::int32_t>(kMinContext) || vocab_size < 1 || windows < 1) {
    return corrupt(Where{.file = source_.name, .offset = 8},
                   "context " + std::to_string(context) + ", vocabulary " +
                       std::to_string(vocab_size) + ", " + std::to_string(windows) +
                       " windows cannot be");
  }
  context_ = static_cast<std::size_t>(context);
  vocab_size_ = static_cast<std::size_t>(vocab_size);
  windows_ = static_cast<std::size_t>(windows);
  const auto expected = file_bytes(context_, vocab_size_, windows_);
  if (!expected || *expected != source_.size) {
    const bool cut = !expected || source_.size < *expected;
    return corrupt(where,
                   "has " + std::to_string(source_.size) + " bytes, its header describes " +
                       (expected ? std::to_string(*expected) : "more than 2^64"),
                   cut ? "it is cut short; run the base model again" : "");
  }
  row_.resize(static_cast<std::size_t>(row_bytes(vocab_size_)));
  return Status::ok();
}

Status KldBaseReader::read_tokens() {
  tokens_.resize(windows_ * context_);
  MOE_RETURN_IF_ERROR(source_.read_at(kHeaderBytes, std::as_writable_bytes(std::span(tokens_))));
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] >= 0 && static_cast<std::size_t>(tokens_[i]) < vocab_size_) continue;
    return corrupt(Where{.file = source_.name, .offset = kHeaderBytes + i * sizeof(std::int32_t)},
                   "token id " + std::to_string(tokens_[i]) + " is outside the vocabulary of " +
                       std::to_string(vocab_size_));
  }
  return Status::ok();
}

Status KldBaseReader::check_vocab(std::size_t vocab_size) const {
  if (vocab_size == vocab_size_) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = source_.name},
                    "was made with a vocabulary of " + std::to_string(vocab_size_) +
                        ", this model has " + std::to_string(vocab_size),
                    "compare models of one vocabulary");
}

Status KldBaseReader::check_text(std::size_t context, std::span<const std::int32_t> tokens) const {
  const Where where{.file = source_.name};
  if (context != context_) {
    return make_error(StatusCode::kInvalidArgument, where,
                      "was made with a context of " + std::to_string(context_) + ", not " +
                          std::to_string(context),
                      "use -c " + std::to_string(context_));
  }
  if (tokens.size() < tokens_.size()) {
    return make_error(StatusCode::kInvalidArgument, where,
                      "was made from " + std::to_string(tokens_.size()) +
                          " tokens, this text has " + std::to_string(tokens.size()),
                      "use the text it was made from");
  }
  const auto differs = std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin()).first;
  if (differs == tokens_.end()) return Status::ok();
  const auto at = static_cast<std::size_t>(differs - tokens_.begin());
  return make_error(StatusCode::kInvalidArgument, where,
                    "was made from another text or tokenizer: token " + std::to_string(at) +
                        " is " + std::to_string(tokens_[at]) + " there and " +
                        std::to_string(tokens[at]) + " here",
                    "use the text it was made from");
}

Status KldBaseReader::read_row(std::size_t row, std::span<float> out, const PartLoop& loop) {
  if (row >= rows() || out.size() != vocab_size_) {
    return invalid_argument("row " + std::to_string(row) + " with " + std::to_string(out.size()) +
                            " entries was asked of a base file of " + std::to_string(rows()) +
                            " rows with " + std::to_string(vocab_size_));
  }
  const std::uint64_t offset =
      kHeaderBytes + tokens_.size() * sizeof(std::int32_t) + row * row_.size();
  MOE_RETURN_IF_ERROR(source_.read_at(offset, row_));
  const auto scale = load_le<float>(row_.data());
  const auto min_log_prob = load_le<float>(row_.data() + sizeof(float));
  const std::byte* codes = row_.data() + kRowHeadBytes;
  const Where where{.file = source_.name, .offset = offset};
  if (!std::isfinite(scale) || !std::isfinite(min_log_prob) || scale < 0.0F) {
    return corrupt(where, "row " + std::to_string(row) + " has no finite scale and minimum");
  }
  for_each_vocab_part(vocab_size_, loop, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto code = load_le<std::uint16_t>(codes + i * sizeof(std::uint16_t));
      out[i] = scale * static_cast<float>(code) + min_log_prob;
    }
  });
  if (out[static_cast<std::size_t>(highest_logit(out))] > kLogProbSlack) {
    return corrupt(where, "row " + std::to_string(row) + " holds a probability above 1");
  }
  return Status::ok();
}

Result<KldBaseWriter> KldBaseWriter::create(const std::filesystem::path& path, std::size_t context,
                                            std::size_t vocab_size,
                                            std::span<const std::int32_t> tokens, PartLoop loop) {
  constexpr std::size_t kMax = std::numeric_limits<std::int32_t>::max();
  if (context < kMinContext || context > kMax || vocab_size < 1 || vocab_size > kMax ||
      tokens.empty() || tokens.size() % context != 0 || tokens.size() / context > kMax) {
    return invalid_argument("a base file cannot hold context " + std::to_string(context) +
                            ", vocabulary " + std::to_string(vocab_size) + " and " +
                            std::to_string(tokens.size()) + " tokens");
  }
  for (const std::int32_t token : tokens) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocab_size) {
      return invalid_argument("token id " + std::to_string(token) + " is outside the model's " +
                                  std::to_string(vocab_size) + " logits",
                              "the tokens come from another tokenizer");
    }
  }
  const std::size_t windows = tokens.size() / context;
  std::array<std::byte, kHeaderBytes> head;
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  store_le(head.data() + 8, static_cast<std::int32_t>(context));
  store_le(head.data() + 12, static_cast<std::int32_t>(vocab_size));
  store_le(head.data() + 16, static_cast<std::int32_t>(windows));
  MOE_ASSIGN_OR_RETURN(AtomicFile file, create_output_file(path));
  MOE_RETURN_IF_ERROR(file.write_at(0, head));
  MOE_RETURN_IF_ERROR(file.write_at(kHeaderBytes, std::as_bytes(tokens)));
  KldBaseWriter writer(std::move(file), std::move(loop));
  writer.vocab_size_ = vocab_size;
  writer.rows_left_ = windows * (context - 1 - context / 2);
  writer.offset_ = kHeaderBytes + tokens.size_bytes();
  writer.row_.resize(static_cast<std::size_t>(row_bytes(vocab_size)));
  return writer;
}

Status KldBaseWriter::add(std::span<const float> logits) {
  if (logits.size() != vocab_size_) {
    return invalid_argument("a row of " + std::to_string(logits.size()) +
                            " logits in a base file of " + std::to_string(vocab_size_));
  }
  if (rows_left_ == 0) return invalid_argument("the base file has all its rows already");
  MOE_ASSIGN_OR_RETURN(const LogNormalizer norm, log_normalizer(logits, loop_));
  const auto max = static_cast<float>(norm.max);
  const float min = std::max(lowest_logit(logits, loop_), max - kLogitRange);
  const auto scale = static_cast<float>((double{max} - min) / kMaxCode);
  store_le(row_.data(), scale);
  store_le(row_.data() + sizeof(float), static_cast<float>(double{min} - norm.log_z));
  std::byte* codes = row_.data() + kRowHeadBytes;
  for_each_vocab_part(logits.size(), loop_, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const double steps = scale > 0.0F ? (double{logits[i]} - min) / double{scale} : 0.0;
      const double code = std::nearbyint(std::clamp(steps, 0.0, kMaxCode));
      store_le(codes + i * sizeof(std::uint16_t), static_cast<std::uint16_t>(code));
    }
  });
  MOE_RETURN_IF_ERROR(file_.write_at(offset_, row_));
  offset_ += row_.size();
  --rows_left_;
  return Status::ok();
}

Status KldBaseWriter::commit() {
  if (rows_left_ != 0) {
    return invalid_argument(std::to_string(rows_left_) + " rows of the base file are missing");
  }
  return file_.commit();
}

}  // namespace moepack
