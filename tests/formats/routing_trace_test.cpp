#include "formats/calibration/routing_trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <filesystem>
#include <fstream>
#include <random>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/calibration/trace_file.h"
#include "tests/support/memory_file.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::routing_trace_test {
namespace {

TraceModel two_sizes() {
  return {.name = "a model",
          .fingerprint = 0xfedcba9876543210,
          .num_layers = 3,
          .num_experts = 5,
          .experts_per_token = 2,
          .record_bytes = {5000, 9000},
          .size_of = {0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}};
}

// With everything that has a form of its own: numbers of several bytes, experts in any order, a
// layer that is left out, a layer without uses.
std::vector<TracePass> some_passes() {
  TracePass prompt{.tokens = 300, .head_us = 70000, .layers = {}};
  prompt.layers.push_back({.layer = 0,
                           .mix_us = 1,
                           .expert_us = 4000000000,
                           .wait_us = 200,
                           .read_us = 128,
                           .misses = 3,
                           .uses = {{4, 300}, {0, 1}, {3, 129}, {1, 170}}});
  prompt.layers.push_back({.layer = 2, .uses = {{2, 5}}});
  TracePass token{.tokens = 1, .head_us = 0, .layers = {}};
  token.layers.push_back({.layer = 1, .misses = 1, .uses = {{1, 1}, {2, 1}}});
  token.layers.push_back({.layer = 2, .uses = {}});
  return {prompt, token, TracePass{.tokens = 1, .head_us = 9, .layers = {}}};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string block_of(std::span<const TracePass> passes) {
  TraceBlock block;
  for (const TracePass& pass : passes) block.add(pass);
  return text_of(block.take());
}

struct ReadTrace {
  Status status;
  std::vector<TracePass> passes;
  std::uint64_t cut = 0;
};

ReadTrace read(std::string_view bytes) {
  const test::MemoryFile file(bytes);
  ReadTrace result;
  auto reader = TraceReader::open(file.path());
  result.status = reader.status();
  while (result.status.is_ok()) {
    const auto pass = reader.value().next();
    result.status = pass.status();
    if (!pass.is_ok() || pass.value() == nullptr) break;
    result.passes.push_back(*pass.value());
  }
  if (reader.is_ok()) result.cut = reader.value().cut_bytes();
  return result;
}

TEST(RoutingTrace, GivesBackWhatWasWritten) {
  test::TempDir dir;
  const std::vector<TracePass> passes = some_passes();
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, TraceWriter::create(dir / "t", two_sizes()));
    for (const TracePass& pass : passes) {
      ASSERT_OK(writer->add(pass));
      ASSERT_OK(writer->flush());
    }
    ASSERT_OK(writer->add(passes[0]));  // left to the destructor
  }
  ASSERT_OK_AND_ASSIGN(TraceReader reader, TraceReader::open(dir / "t"));
  EXPECT_EQ(reader.model(), two_sizes());
  for (const TracePass* expected : {&passes[0], &passes[1], &passes[2], &passes[0]}) {
    ASSERT_OK_AND_ASSIGN(const TracePass* const pass, reader.next());
    ASSERT_NE(pass, nullptr);
    EXPECT_EQ(*pass, *expected);
  }
  ASSERT_OK_AND_ASSIGN(const TracePass* const end, reader.next());
  EXPECT_EQ(end, nullptr);
  EXPECT_EQ(reader.cut_bytes(), 0U);
}

TEST(RoutingTrace, OneSizeOfRecordsNeedsNoList) {
  TraceModel model = two_sizes();
  model.record_bytes = {4096};
  model.size_of.clear();
  const std::vector<std::byte> head = trace_head(model);
  EXPECT_LT(head.size() + 2 * 15, trace_head(two_sizes()).size());
  ASSERT_OK_AND_ASSIGN(const TraceModel back, parse_trace_head(head, "t"));
  EXPECT_EQ(back, model);
  EXPECT_EQ(back.bytes_of(2, 4), 4096U);
  EXPECT_EQ(two_sizes().bytes_of(0, 1), 9000U);
  EXPECT_EQ(two_sizes().bytes_of(1, 1), 5000U);
}

// A dense layer takes no memory of a cache, and nothing may use it.
TEST(RoutingTrace, ALayerMayHaveNoExperts) {
  TraceModel model = two_sizes();
  model.record_bytes = {0, 9000};
  model.size_of = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  ASSERT_OK_AND_ASSIGN(const TraceModel back, parse_trace_head(trace_head(model), "t"));
  EXPECT_EQ(back, model);
  EXPECT_FALSE(back.has_experts(0));
  EXPECT_TRUE(back.has_experts(2));
  EXPECT_EQ(back.expert_layers(), 2U);
  EXPECT_EQ(two_sizes().expert_layers(), 3U);
  const TracePass pass{.tokens = 1, .head_us = 0, .layers = {{.layer = 0, .uses = {{1, 1}}}}};
  const std::string bytes = text_of(trace_head(model)) + block_of(std::span(&pass, 1));
  test::expect_error(read(bytes).status, StatusCode::kCorrupt, {"no experts", "offset"});
}

TEST(RoutingTrace, AHeadThatIsCutIsRefused) {
  test::drill_truncation(text_of(trace_head(two_sizes())), [](std::string_view bytes) {
    return parse_trace_head(std::as_bytes(std::span(bytes)), "t").status();
  });
}

// What a killed run left: all whole blocks, whatever the length.
TEST(RoutingTrace, CanBeReadUpToTheLastWholeBlock) {
  const std::vector<TracePass> passes = some_passes();
  const std::string head = text_of(trace_head(two_sizes()));
  const std::string first = block_of(std::span(passes).first(2));
  const std::string second = block_of(std::span(passes).subspan(2));
  const std::string whole = head + first + second;
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    const ReadTrace result = read(whole.substr(0, n));
    if (n < head.size()) {
      ASSERT_FALSE(result.status.is_ok()) << n;
      ASSERT_EQ(result.status.message().find('\n'), std::string::npos);
      continue;
    }
    ASSERT_TRUE(result.status.is_ok()) << n << ": " << result.status.message();
    const std::size_t blocks = n == whole.size() ? 2 : n >= head.size() + first.size() ? 1 : 0;
    ASSERT_EQ(result.passes.size(), blocks == 2 ? 3U : blocks == 1 ? 2U : 0U) << n;
    const std::size_t end =
        head.size() + (blocks > 0 ? first.size() : 0) + (blocks > 1 ? second.size() : 0);
    ASSERT_EQ(result.cut, n - end);
  }
  test::expect_error(read(whole + std::string(16, '\0')).status, StatusCode::kCorrupt,
                     {"a block of lengths that none has", std::to_string(whole.size())});
}

// Every byte counts: another one is an error, or ends the file where its block is.
TEST(RoutingTrace, ADamagedByteIsNeverRead) {
  const std::vector<TracePass> passes = some_passes();
  const std::string head = text_of(trace_head(two_sizes()));
  const std::string whole = head + block_of(passes);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      const ReadTrace result = read(bytes);
      if (!result.status.is_ok()) {
        ASSERT_EQ(result.status.message().find('\n'), std::string::npos);
        continue;
      }
      // The length of the block alone may lead beyond the end.
      ASSERT_TRUE(at >= head.size() && at < head.size() + 4) << "byte " << at;
      ASSERT_TRUE(result.passes.empty());
      ASSERT_GT(result.cut, 0U);
    }
  }
}

// A block whose checksum is right but whose numbers no run can have.
void expect_refused(const TracePass& pass, std::string_view message) {
  const std::string bytes = text_of(trace_head(two_sizes())) + block_of(std::span(&pass, 1));
  test::expect_error(read(bytes).status, StatusCode::kCorrupt, {message, "offset"});
}

TEST(RoutingTrace, NumbersBeyondTheModelAreRefused) {
  const auto of_layer = [](TraceLayer layer, std::uint32_t tokens = 1) {
    return TracePass{.tokens = tokens, .head_us = 0, .layers = {std::move(layer)}};
  };
  expect_refused(of_layer({.layer = 3, .uses = {{0, 1}}}), "a layer that the model does not have");
  expect_refused(of_layer({.layer = 0, .uses = {{5, 1}}}),
                 "an expert that the model does not have");
  expect_refused(of_layer({.layer = 0, .uses = {{1, 1}, {1, 1}}}), "an expert twice");
  expect_refused(of_layer({.layer = 0, .uses = {{0, 3}}}, 2), "more tokens than the pass");
  expect_refused(of_layer({.layer = 0, .misses = 2, .uses = {{0, 1}}}), "misses more");
  expect_refused(of_layer({.layer = 0, .uses = {{0, 1}}}, 0), "a pass of no tokens");
  // An id below zero.
  expect_refused(of_layer({.layer = 0, .uses = {{0xffffffff, 1}}}), "an expert that the model");
}

TEST(RoutingTrace, HeadsOfNoModelAreRefused) {
  const auto expect_head = [](const TraceModel& model, std::string_view message) {
    test::expect_error(parse_trace_head(trace_head(model), "t").status(), StatusCode::kCorrupt,
                       {"t: ", message});
  };
  TraceModel model = two_sizes();
  model.experts_per_token = 6;
  expect_head(model, "experts a token");
  model = two_sizes();
  model.record_bytes = {0, 1};
  expect_head(model, "some experts have no record");
  model.size_of.assign(15, 0);
  expect_head(model, "no layer with experts");
  model.size_of.clear();
  model.record_bytes = {0};
  expect_head(model, "a size that no expert");
  model.record_bytes = {(std::uint64_t{1} << 40) + 1};
  expect_head(model, "a size that no expert");
  model = two_sizes();
  model.size_of[14] = 2;
  expect_head(model, "a size of a record that it does not state");
  model = two_sizes();
  model.size_of.pop_back();
  expect_head(model, "another length than it states");
  std::vector<std::byte> other = trace_head(two_sizes());
  other[8] = std::byte{2};
  test::expect_error(parse_trace_head(other, "t").status(), StatusCode::kUnsupported,
                     {"version 2", "version 1"});
  test::expect_error(read("{}").status, StatusCode::kCorrupt, {"no trace of routing", "--trace"});
}

TEST(RoutingTrace, IsWrittenToRegularFilesAlone) {
  test::TempDir dir;
  EXPECT_FALSE(TraceWriter::create(dir.path(), two_sizes()).is_ok());
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(TraceWriter::create(dir / "pipe", two_sizes()).is_ok());
  std::ofstream(dir / "old") << std::string(100000, 'x');
  ASSERT_OK(TraceWriter::create(dir / "old", two_sizes()));
  EXPECT_EQ(std::filesystem::file_size(dir / "old"), trace_head(two_sizes()).size());
  // A device that is always full.
  EXPECT_FALSE(TraceWriter::create("/dev/full", two_sizes()).is_ok());
}

}  // namespace
}  // namespace moepack::routing_trace_test
