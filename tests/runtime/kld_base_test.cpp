#include "runtime/score/kld_base.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "formats/base/bytes.h"
#include "runtime/score/kl_scoring.h"
#include "tests/runtime/synthetic_forward.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::kld_base_test {
namespace {

using test::expect_error;
using test::synthetic_forward;
using test::synthetic_tokens;

const std::filesystem::path kPeer =
    std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/llama-perplexity";

template <typename T>
void append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  store_le(raw, value);
  bytes.append(raw, sizeof raw);
}

// Context 4, vocabulary 3, one window and so one row: .5, .25, .25 in steps of ln 2 / 100.
std::string small_file() {
  std::string bytes = "_logits_";
  for (const std::int32_t x : {4, 3, 1, 0, 2, 1, 2}) append(bytes, x);
  append(bytes, static_cast<float>(std::log(2.0) / 100.0));
  append(bytes, static_cast<float>(std::log(0.25)));
  for (const int code : {100, 0, 0, 0}) append(bytes, static_cast<std::uint16_t>(code));
  return bytes;
}

ByteSource in_memory(const std::string& bytes) {
  return ByteSource{.name = "base.kld",
                    .size = bytes.size(),
                    .read_at = [&bytes](std::uint64_t offset, std::span<std::byte> out) {
                      // Reads beyond `size` would be the reader's bug; at() shows them.
                      for (std::size_t i = 0; i < out.size(); ++i) {
                        out[i] = static_cast<std::byte>(bytes.at(offset + i));
                      }
                      return Status::ok();
                    }};
}

Status parse(const std::string& bytes) {
  MOE_ASSIGN_OR_RETURN(KldBaseReader reader, KldBaseReader::open(in_memory(bytes)));
  std::vector<float> row(reader.vocab_size());
  for (std::size_t r = 0; r < reader.rows(); ++r) MOE_RETURN_IF_ERROR(reader.read_row(r, row));
  return Status::ok();
}

template <typename T>
std::string with(std::string bytes, std::size_t offset, T value) {
  store_le(bytes.data() + offset, value);
  return bytes;
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(KldBaseReader, ReadsHeaderTokensAndProbabilities) {
  const std::string bytes = small_file();
  ASSERT_EQ(bytes.size(), 20U + 16U + 16U);
  ASSERT_OK_AND_ASSIGN(KldBaseReader reader, KldBaseReader::open(in_memory(bytes)));
  EXPECT_EQ(reader.context(), 4U);
  EXPECT_EQ(reader.vocab_size(), 3U);
  EXPECT_EQ(reader.windows(), 1U);
  EXPECT_EQ(reader.rows(), 1U);
  EXPECT_EQ(std::vector<std::int32_t>(reader.tokens().begin(), reader.tokens().end()),
            (std::vector<std::int32_t>{0, 2, 1, 2}));
  std::vector<float> row(3);
  ASSERT_OK(reader.read_row(0, row));
  EXPECT_NEAR(row[0], std::log(0.5), 1e-6);
  EXPECT_NEAR(row[1], std::log(0.25), 1e-6);
  EXPECT_NEAR(row[2], std::log(0.25), 1e-6);
  EXPECT_FALSE(reader.read_row(1, row).is_ok());
  row.resize(2);
  EXPECT_FALSE(reader.read_row(0, row).is_ok());
}

TEST(KldBaseReader, RefusesEveryTruncationAndAnExtraByte) {
  test::drill_truncation(small_file(), [](std::string_view b) { return parse(std::string(b)); });
}

TEST(KldBaseReader, SaysWhatIsWrong) {
  const std::string good = small_file();
  ASSERT_OK(parse(good));
  const auto corrupt = StatusCode::kCorrupt;
  expect_error(parse(with(good, 0, 'x')), corrupt, {"base.kld", "_logits_"});
  for (const std::size_t offset : {8U, 12U, 16U}) {
    expect_error(parse(with(good, offset, std::int32_t{0})), corrupt, {"base.kld", "offset 8"});
    expect_error(parse(with(good, offset, std::int32_t{-5})), corrupt, {"base.kld", "offset 8"});
  }
  expect_error(parse(with(good, 8, std::int32_t{2})), corrupt, {"context 2"});
  expect_error(parse(with(good, 24, std::int32_t{3})), corrupt, {"token id 3", "offset 24"});
  expect_error(parse(with(good, 24, std::int32_t{-1})), corrupt, {"token id -1"});
  for (const float bad : {NAN, INFINITY, -1.0F}) {
    expect_error(parse(with(good, 36, bad)), corrupt, {"row 0", "offset 36"});
  }
  expect_error(parse(with(good, 40, static_cast<float>(NAN))), corrupt, {"row 0"});
  expect_error(parse(with(good, 40, 1.0F)), corrupt, {"above 1"});
  expect_error(parse(good.substr(0, 50)), corrupt, {"50 bytes", "52", "cut short"});
}

TEST(KldBaseReader, HugeNumbersAllocateNothing) {
  const auto max = std::numeric_limits<std::int32_t>::max();
  std::string bytes = small_file();
  for (const std::size_t offset : {8U, 12U, 16U}) bytes = with(bytes, offset, max);
  // 2^31 windows of 2^30 rows of 2^32 bytes: more than 64 bits.
  expect_error(parse(bytes), StatusCode::kCorrupt, {"52 bytes", "2^64"});
  for (const std::size_t offset : {8U, 12U, 16U}) {
    expect_error(parse(with(small_file(), offset, max)), StatusCode::kCorrupt, {"52 bytes"});
  }
}

TEST(KldBaseReader, RefusesAnotherModelOrText) {
  const std::string bytes = small_file();
  ASSERT_OK_AND_ASSIGN(KldBaseReader reader, KldBaseReader::open(in_memory(bytes)));
  const auto wrong = StatusCode::kInvalidArgument;
  EXPECT_OK(reader.check_vocab(3));
  expect_error(reader.check_vocab(4), wrong, {"base.kld", "3", "4"});
  EXPECT_OK(reader.check_text(4, std::vector<std::int32_t>{0, 2, 1, 2, 2, 2}));
  expect_error(reader.check_text(8, std::vector<std::int32_t>{0, 2, 1, 2}), wrong, {"-c 4"});
  expect_error(reader.check_text(4, std::vector<std::int32_t>{0, 2, 1}), wrong, {"3"});
  expect_error(reader.check_text(4, std::vector<std::int32_t>{0, 2, 0, 2}), wrong,
               {"token 2 is 1 there and 0 here"});
  expect_error(score_against_base(reader, 0, synthetic_forward(1)).status(), wrong,
               {"vocabulary of 3", "11"});
}

TEST(KldBaseReader, MissingFile) {
  test::TempDir dir;
  expect_error(KldBaseReader::open(dir / "none.kld").status(), StatusCode::kNotFound, {"none.kld"});
}

TEST(KldBase, ReadsThePeersFile) {
  ASSERT_OK_AND_ASSIGN(KldBaseReader reader, KldBaseReader::open(kPeer / "base.kld"));
  const auto logits = test::read_golden<float>(kPeer / "logits.f32");
  ASSERT_EQ(reader.context(), 4U);
  ASSERT_EQ(reader.vocab_size(), 4096U);
  ASSERT_EQ(reader.rows(), 2U);
  EXPECT_EQ(std::vector<std::int32_t>(reader.tokens().begin(), reader.tokens().end()),
            (std::vector<std::int32_t>{2, 2008, 2296, 388, 82, 2008, 13, 859}));
  std::vector<float> row(4096);
  double nll = 0.0;
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_OK(reader.read_row(r, row));
    double sum = 0.0;
    for (const float log_prob : row) sum += std::exp(double{log_prob});
    EXPECT_NEAR(sum, 1.0, 1e-3);
    const float* of_row = logits.data() + r * 4096;
    const auto top = std::max_element(of_row, of_row + 4096) - of_row;
    for (std::size_t i = 0; i < 4096; ++i) {
      const float expected = std::max(of_row[i] - of_row[top], -16.0F);
      EXPECT_NEAR(row[i] - row[static_cast<std::size_t>(top)], expected, 2e-4) << i;
    }
    nll -= double{row[static_cast<std::size_t>(reader.tokens()[r * 4 + 3])]};
    EXPECT_NEAR(std::exp(nll / static_cast<double>(r + 1)), r == 0 ? 2890.6795 : 87.7062,
                r == 0 ? 0.5 : 0.02);
  }
}

TEST(KldBase, WritesThePeersFileAgainFromItsLogits) {
  test::TempDir dir;
  const std::string expected = read_bytes(kPeer / "base.kld");
  const auto logits = test::read_golden<float>(kPeer / "logits.f32");
  const std::vector<std::int32_t> tokens = {2, 2008, 2296, 388, 82, 2008, 13, 859};
  ASSERT_OK_AND_ASSIGN(KldBaseWriter writer,
                       KldBaseWriter::create(dir / "ours.kld", 4, 4096, tokens));
  ASSERT_OK(writer.add(std::span(logits).first(4096)));
  ASSERT_OK(writer.add(std::span(logits).last(4096)));
  ASSERT_OK(writer.commit());
  const std::string got = read_bytes(dir / "ours.kld");
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(got.substr(0, 52), expected.substr(0, 52));
  for (std::size_t row = 52; row < got.size(); row += 8 + 2 * 4096) {
    for (const std::size_t at : {row, row + 4}) {  // scale and minimum, to float rounding
      const auto peer = load_le<float>(expected.data() + at);
      EXPECT_NEAR(load_le<float>(got.data() + at), peer, 2e-7 * std::abs(peer));
    }
    std::size_t different = 0;  // where the peer's float division rounds the other way
    for (std::size_t i = 0; i < 4096; ++i) {
      const auto ours = load_le<std::uint16_t>(got.data() + row + 8 + 2 * i);
      const auto peer = load_le<std::uint16_t>(expected.data() + row + 8 + 2 * i);
      EXPECT_LE(std::abs(int{ours} - int{peer}), 1) << i;
      different += ours != peer ? 1 : 0;
    }
    EXPECT_LE(different, 20U);
  }
}

TEST(KldBaseWriter, OddVocabularyAndClippingByteForByte) {
  test::TempDir dir;
  const std::vector<std::int32_t> tokens = {0, 2, 1, 2};
  ASSERT_OK_AND_ASSIGN(KldBaseWriter writer, KldBaseWriter::create(dir / "b.kld", 4, 3, tokens));
  ASSERT_OK(writer.add(std::vector<float>{-1.0F, 0.0F, -20.0F}));
  ASSERT_OK(writer.commit());
  std::string expected = "_logits_";
  for (const std::int32_t x : {4, 3, 1, 0, 2, 1, 2}) append(expected, x);
  append(expected, 16.0F / 65535.0F);
  append(expected, static_cast<float>(-16.0 - std::log(1.0 + std::exp(-1.0) + std::exp(-20.0))));
  // 15/16 of the range, all of it, clipped, padding.
  for (const int code : {61439, 65535, 0, 0}) append(expected, static_cast<std::uint16_t>(code));
  EXPECT_EQ(read_bytes(dir / "b.kld"), expected);
}

TEST(KldBaseWriter, EqualLogitsAndZeroProbabilities) {
  test::TempDir dir;
  const std::vector<std::int32_t> tokens = {0, 1, 1, 0, 1, 0, 1, 0};
  ASSERT_OK_AND_ASSIGN(KldBaseWriter writer, KldBaseWriter::create(dir / "b.kld", 4, 2, tokens));
  ASSERT_OK(writer.add(std::vector<float>{7, 7}));
  ASSERT_OK(writer.add(std::vector<float>{7, -INFINITY}));
  ASSERT_OK(writer.commit());
  ASSERT_OK_AND_ASSIGN(KldBaseReader reader, KldBaseReader::open(dir / "b.kld"));
  std::vector<float> row(2);
  ASSERT_OK(reader.read_row(0, row));
  EXPECT_NEAR(row[0], std::log(0.5), 1e-6);
  EXPECT_EQ(row[0], row[1]);
  ASSERT_OK(reader.read_row(1, row));
  EXPECT_NEAR(row[0], 0.0, 1e-5);
  EXPECT_NEAR(row[1], -16.0, 1e-5);
}

TEST(KldBaseWriter, AppearsOnlyWhenComplete) {
  test::TempDir dir;
  const std::vector<std::int32_t> tokens = {0, 1, 1, 0, 1, 0, 1, 0};
  {
    ASSERT_OK_AND_ASSIGN(KldBaseWriter writer, KldBaseWriter::create(dir / "b.kld", 4, 2, tokens));
    ASSERT_OK(writer.add(std::vector<float>{7, 7}));
    expect_error(writer.commit(), StatusCode::kInvalidArgument, {"1 rows", "missing"});
    expect_error(writer.add(std::vector<float>{7, 7, 7}), StatusCode::kInvalidArgument, {"3", "2"});
    expect_error(writer.add(std::vector<float>{7, NAN}), StatusCode::kCorrupt, {"token 1"});
    ASSERT_OK(writer.add(std::vector<float>{7, 7}));
    expect_error(writer.add(std::vector<float>{7, 7}), StatusCode::kInvalidArgument, {"all its"});
    EXPECT_FALSE(std::filesystem::exists(dir / "b.kld"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(KldBaseWriter, RefusesWhatTheFormatCannotHold) {
  test::TempDir dir;
  const auto path = dir / "b.kld";
  const auto wrong = StatusCode::kInvalidArgument;
  using Tokens = std::vector<std::int32_t>;
  expect_error(KldBaseWriter::create(path, 4, 3, Tokens{0, 1, 2}).status(), wrong, {"3 tokens"});
  expect_error(KldBaseWriter::create(path, 4, 3, Tokens{}).status(), wrong, {"0 tokens"});
  expect_error(KldBaseWriter::create(path, 2, 3, Tokens{0, 1}).status(), wrong, {"context 2"});
  expect_error(KldBaseWriter::create(path, 4, 3, Tokens{0, 1, 2, 3}).status(), wrong,
               {"token id 3"});
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// Written from one model, compared with another: the 16 bits cost little, and the row order and the
// windows are the same on both ways.
TEST(KldBase, ComparesThroughTheFileAsInMemory) {
  test::TempDir dir;
  const auto tokens = synthetic_tokens();
  ASSERT_OK_AND_ASSIGN(const PerplexityReport ppl,
                       write_kld_base(dir / "b.kld", tokens, {.context = 8}, test::kSyntheticVocab,
                                      synthetic_forward(1)));
  EXPECT_NEAR(ppl.ppl, 86.73860587165576, 1e-9);
  ASSERT_OK_AND_ASSIGN(KldBaseReader reader, KldBaseReader::open(dir / "b.kld"));
  EXPECT_OK(reader.check_text(8, tokens));
  EXPECT_EQ(reader.rows(), 15U);
  ASSERT_OK_AND_ASSIGN(const KlReport report, score_against_base(reader, 0, synthetic_forward(2)));
  EXPECT_EQ(report.summary.tokens_scored, 15U);
  EXPECT_NEAR(report.summary.kld.value, 3.0269531289304834, 1e-4);
  EXPECT_NEAR(report.summary.ppl.value, 52.62970304956751, 1e-9);
  EXPECT_NEAR(report.summary.ppl_base.value, 86.73860587165576, 1e-2);
  EXPECT_NEAR(report.summary.same_top.value, 2.0 / 15.0, 1e-12);
  ASSERT_OK_AND_ASSIGN(const KlReport two, score_against_base(reader, 2, synthetic_forward(2)));
  EXPECT_EQ(two.summary.tokens_scored, 6U);
  ASSERT_OK_AND_ASSIGN(const KlReport itself, score_against_base(reader, 0, synthetic_forward(1)));
  EXPECT_NEAR(itself.summary.kld.value, 0.0, 1e-5);
}

TEST(KldBase, AFailedRunLeavesNoFile) {
  test::TempDir dir;
  int calls = 0;
  const WindowForward failing = [&calls](std::span<const std::int32_t> tokens, std::size_t first,
                                         const LogitsSink& sink) {
    if (++calls == 3) return invalid_argument("no such layer");
    return synthetic_forward(1)(tokens, first, sink);
  };
  expect_error(write_kld_base(dir / "b.kld", synthetic_tokens(), {.context = 8},
                              test::kSyntheticVocab, failing)
                   .status(),
               StatusCode::kInvalidArgument, {"no such layer"});
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  expect_error(
      write_kld_base(dir / "b.kld", synthetic_tokens(), {.context = 8, .all_positions = true},
                     test::kSyntheticVocab, synthetic_forward(1))
          .status(),
      StatusCode::kInvalidArgument, {"second half"});
}

}  // namespace
}  // namespace moepack::kld_base_test
