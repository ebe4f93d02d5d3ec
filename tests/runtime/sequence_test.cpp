// Sequences of one engine: each as if it were alone, to the last bit, however they are interleaved,
// copied, saved and restored; and the error of one is none of the others'.
#include "runtime/model/sequence.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/model_dir.h"
#include "tests/support/converted_model.h"
#include "tests/support/reader_drill.h"
#include "tests/support/tiny_model.h"

namespace moepack::sequence_test {
namespace {

constexpr std::size_t kTokens = 300;  // more than a block of the KV cache

std::vector<std::int32_t> ids_of(std::size_t count, std::size_t factor) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>((i * factor + 31) % 288);
  }
  return ids;
}

// Keeps the logits of one sequence.
struct Collected {
  std::vector<float> rows;
  LogitsSink sink() {
    return [this](std::size_t, std::span<const float> row) {
      rows.insert(rows.end(), row.begin(), row.end());
      return Status::ok();
    };
  }
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class SequenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_ / "checkpoint", {});
    model_ = test::convert_for_test(dir_ / "checkpoint", dir_);
    ASSERT_FALSE(model_.empty());
    options_ = test::reference_options(model_);
    options_.sequences = 4;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
    for (const std::size_t factor : {977U, 41U}) {
      texts_.push_back(ids_of(kTokens, factor));
      alone_.emplace_back();
      ASSERT_OK_AND_ASSIGN(Sequence sequence, engine_->make_sequence());
      expect_ok({{&sequence, texts_.back(), 0, alone_.back().sink()}});
    }
    ASSERT_FALSE(same_bits(alone_[0].rows, alone_[1].rows));
  }

  void expect_ok(std::vector<Slice> slices) {
    for (const Status& status : engine_->forward(slices)) {
      EXPECT_TRUE(status.is_ok()) << status.message();
    }
  }
  std::span<const std::int32_t> part(std::size_t text, std::size_t first, std::size_t count) const {
    return std::span(texts_[text]).subspan(first, count);
  }
  // Runs what is left of a text and gives its logits.
  std::vector<float> rest_of(Sequence& sequence, std::size_t text) {
    Collected collected;
    expect_ok(
        {{&sequence, std::span(texts_[text]).subspan(sequence.position()), 0, collected.sink()}});
    return collected.rows;
  }
  // The logits of a text from token `first` on, as it runs alone.
  std::span<const float> alone_from(std::size_t text, std::size_t first) const {
    const std::size_t vocab = engine_->config().vocab_size;
    return std::span(alone_[text].rows).subspan(first * vocab);
  }

  test::TempDir dir_;
  std::filesystem::path model_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<std::int32_t>> texts_;
  std::vector<Collected> alone_;
};

TEST_F(SequenceTest, InterleavedTokenByToken) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
  Collected of_a;
  Collected of_b;
  for (std::size_t t = 0; t < kTokens; ++t) {
    expect_ok({{&a, part(0, t, 1), 0, of_a.sink()}});
    expect_ok({{&b, part(1, t, 1), 0, of_b.sink()}});
  }
  EXPECT_TRUE(same_bits(of_a.rows, alone_[0].rows));
  EXPECT_TRUE(same_bits(of_b.rows, alone_[1].rows));
}

// In one batch, in parts of unequal length, in either order, with chunks that cut the slices.
TEST_F(SequenceTest, BatchedTogether) {
  for (const std::uint32_t chunk : {7U, 64U, 512U}) {
    EngineOptions options = options_;
    options.chunk_tokens = chunk;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options));
    ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
    ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
    Collected of_a;
    Collected of_b;
    expect_ok({{&a, part(0, 0, 5), 0, of_a.sink()}, {&b, part(1, 0, 2), 0, of_b.sink()}});
    expect_ok({{&b, part(1, 2, 1), 0, of_b.sink()}, {&a, part(0, 5, 100), 0, of_a.sink()}});
    expect_ok({{&a, part(0, 105, kTokens - 105), 0, of_a.sink()},
               {&b, part(1, 3, kTokens - 3), 0, of_b.sink()}});
    EXPECT_TRUE(same_bits(of_a.rows, alone_[0].rows)) << chunk;
    EXPECT_TRUE(same_bits(of_b.rows, alone_[1].rows)) << chunk;
  }
}

TEST_F(SequenceTest, OnlyTheLogitsAskedForArrive) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
  Collected of_a;
  Collected of_b;
  expect_ok({{&a, texts_[0], kTokens - 1, of_a.sink()}, {&b, texts_[1], 40, of_b.sink()}});
  EXPECT_TRUE(same_bits(of_a.rows, alone_from(0, kTokens - 1)));
  EXPECT_TRUE(same_bits(of_b.rows, alone_from(1, 40)));
}

TEST_F(SequenceTest, CopiesGoTheirOwnWay) {
  for (const std::size_t length : {0U, 2U, 256U, 270U}) {
    ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
    expect_ok({{&a, part(0, 0, length), length, {}}});
    ASSERT_OK_AND_ASSIGN(Sequence copy, std::as_const(a).copy());
    EXPECT_EQ(copy.position(), length);
    expect_ok({{&copy, part(1, 0, 20), 20, {}}});
    EXPECT_TRUE(same_bits(rest_of(a, 0), alone_from(0, length))) << length;
    EXPECT_EQ(copy.position(), length + 20);
  }
}

// At, before and behind the borders of blocks of recurrent rows and of keys and values; token by
// token (reference) and in blocks (cpu).
TEST_F(SequenceTest, RewindingLeavesNoTrace) {
  for (const Backend backend : {Backend::kReference, Backend::kCpu}) {
    EngineOptions options = options_;
    options.backend = backend;
    options.activations =
        backend == Backend::kCpu ? ActivationType::kInt8 : ActivationType::kFloat32;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options));
    ASSERT_EQ(engine_->cut_tokens(), 1U);
    ASSERT_OK_AND_ASSIGN(Sequence whole, engine_->make_sequence());
    const std::vector<float> unbroken = rest_of(whole, 0);
    const std::size_t vocab = engine_->config().vocab_size;
    for (const std::size_t length : {0U, 1U, 15U, 16U, 17U, 100U, 256U, 270U}) {
      ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
      expect_ok({{&a, part(0, 0, length), length, {}}});
      ASSERT_OK_AND_ASSIGN(const StateSnapshot snapshot, a.snapshot());
      EXPECT_EQ(snapshot.position(), length);
      EXPECT_GT(snapshot.size_bytes(), 0U);
      expect_ok({{&a, part(1, 0, 29), 29, {}}});
      expect_ok({{&a, part(1, 29, 1), 1, {}}});
      ASSERT_OK_AND_ASSIGN(Sequence copy, a.copy_at(snapshot));
      EXPECT_EQ(copy.position(), length);
      ASSERT_OK(a.rewind(snapshot));
      EXPECT_EQ(a.position(), length);
      const auto expected = std::span(unbroken).subspan(length * vocab);
      EXPECT_TRUE(same_bits(rest_of(a, 0), expected)) << length;
      ASSERT_OK(a.rewind(snapshot));  // a second time
      EXPECT_TRUE(same_bits(rest_of(a, 0), expected)) << length;
      EXPECT_TRUE(same_bits(rest_of(copy, 0), expected)) << length;
    }
  }
}

TEST_F(SequenceTest, SnapshotsOfOtherSequencesAreRefused) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  expect_ok({{&a, part(0, 0, 20), 20, {}}});
  ASSERT_OK_AND_ASSIGN(const StateSnapshot at_20, a.snapshot());
  ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
  test::expect_error(b.rewind(at_20), StatusCode::kInvalidArgument, {"20 tokens", "seen 0"});
  test::expect_error(b.copy_at(at_20).status(), StatusCode::kInvalidArgument, {"20 tokens"});
  ASSERT_OK_AND_ASSIGN(const StateSnapshot again, a.make_snapshot(20, at_20.states()));
  EXPECT_EQ(again.position(), 20U);
  test::expect_error(a.make_snapshot(20, at_20.states().first(8)).status(), StatusCode::kCorrupt,
                     {"8 bytes"});
  test::expect_error(a.make_snapshot(100000, at_20.states()).status(), StatusCode::kCorrupt, {});
}

TEST_F(SequenceTest, SavedInOneEngineRestoredInAnother) {
  for (const std::size_t length : {0U, 1U, 256U, 270U}) {
    ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
    expect_ok({{&a, part(0, 0, length), length, {}}});
    ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes, a.save());
    EngineOptions other = options_;
    other.context = kTokens;  // another limit is no other model
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(other));
    ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
    expect_ok({{&b, part(1, 0, 33), 33, {}}});  // leaves no trace
    ASSERT_OK(b.restore(bytes));
    EXPECT_EQ(b.position(), length);
    ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> again, b.save());
    EXPECT_EQ(again, bytes);
    EXPECT_TRUE(same_bits(rest_of(b, 0), alone_from(0, length))) << length;
    b.reset();
    EXPECT_TRUE(same_bits(rest_of(b, 1), alone_[1].rows));
  }
}

TEST_F(SequenceTest, MemoryGrowsWithTheTokens) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  const std::uint64_t fresh = a.memory_bytes();
  expect_ok({{&a, part(0, 0, 1), 1, {}}});
  const std::uint64_t one = a.memory_bytes();
  expect_ok({{&a, part(0, 1, 256), 256, {}}});
  EXPECT_LT(fresh, one);
  EXPECT_LT(one, a.memory_bytes());
  EXPECT_LE(a.memory_bytes() * options_.sequences,
            engine_->memory_plan().key_value_bytes + engine_->memory_plan().recurrent_bytes);
}

TEST_F(SequenceTest, SlotsAreThosePlanned) {
  std::vector<Sequence> all;
  for (std::uint32_t i = 0; i < options_.sequences; ++i) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine_->make_sequence());
    all.push_back(std::move(sequence));
  }
  test::expect_error(engine_->make_sequence().status(), StatusCode::kInvalidArgument, {"4"});
  test::expect_error(all[0].copy().status(), StatusCode::kInvalidArgument, {"4"});
  all.pop_back();
  ASSERT_OK_AND_ASSIGN(Sequence copy, all[0].copy());
  all[1] = std::move(copy);
  EXPECT_OK(engine_->make_sequence());
}

TEST_F(SequenceTest, OutlivesItsEngine) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  engine_.reset();
  EXPECT_EQ(a.position(), 0U);
}

// What is refused before anything is computed leaves the sequence as it was.
TEST_F(SequenceTest, RefusedSlicesChangeNothing) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence c, engine_->make_sequence());
  expect_ok({{&a, part(0, 0, 10), 10, {}}});
  const std::vector<std::int32_t> bad{1, 2, -5};
  const std::vector<std::int32_t> long_text(options_.context + 1, 1);
  Collected of_b;
  const std::vector<Slice> slices{{&a, bad, 0, {}},
                                  {&b, part(1, 0, 50), 0, of_b.sink()},
                                  {&c, long_text, 0, {}},
                                  {&b, part(1, 0, 1), 0, {}}};
  const std::vector<Status> statuses = engine_->forward(slices);
  test::expect_error(statuses[0], StatusCode::kInvalidArgument, {"-5", "index 2"});
  EXPECT_OK(statuses[1]);
  test::expect_error(statuses[2], StatusCode::kInvalidArgument, {"context", "-c"});
  test::expect_error(statuses[3], StatusCode::kInvalidArgument, {"same sequence"});
  EXPECT_TRUE(same_bits(of_b.rows, std::span(alone_[1].rows).first(of_b.rows.size())));
  EXPECT_EQ(c.position(), 0U);
  EXPECT_TRUE(same_bits(rest_of(a, 0), alone_from(0, 10)));
}

TEST_F(SequenceTest, FailingSinkEndsItsSequenceAlone) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
  std::size_t calls = 0;
  const LogitsSink failing = [&](std::size_t index, std::span<const float>) {
    ++calls;
    return index < 3 ? Status::ok() : invalid_argument("the reader went away");
  };
  Collected of_b;
  const std::vector<Slice> slices{{&a, texts_[0], 0, failing}, {&b, texts_[1], 0, of_b.sink()}};
  const std::vector<Status> statuses = engine_->forward(slices);
  test::expect_error(statuses[0], StatusCode::kInvalidArgument, {"went away"});
  EXPECT_EQ(calls, 4U);
  EXPECT_TRUE(same_bits(of_b.rows, alone_[1].rows));
  EXPECT_FALSE(a.copy().is_ok());
  EXPECT_FALSE(a.save().is_ok());
  const Slice more{&a, part(0, 0, 1), 0, {}};
  test::expect_error(engine_->forward(std::span(&more, 1))[0], StatusCode::kInvalidArgument,
                     {"ended", "went away", "reset"});
  a.reset();
  EXPECT_TRUE(same_bits(rest_of(a, 0), alone_[0].rows));
}

// ---- Experts that cannot be read ----

void flip_record(const std::filesystem::path& model, std::uint32_t layer, std::uint32_t expert) {
  ASSERT_OK_AND_ASSIGN(const ModelDir opened, open_model_dir(model, ""));
  const LayerEntry& entry = opened.pack.layers[layer];
  std::fstream file(opened.pack_path / entry.file, std::ios::binary | std::ios::in | std::ios::out);
  const auto at = static_cast<std::streamoff>(entry.experts[expert].offset);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good());
}

// Whatever expert of the last layer is damaged: together, each sequence ends or goes on as it does
// alone.
TEST_F(SequenceTest, UnreadableExpertEndsThoseThatChoseIt) {
  constexpr std::size_t kLength = 2;
  const std::uint32_t layer = engine_->config().num_layers - 1;
  std::size_t one_ended = 0;
  for (std::uint32_t expert = 0; expert < engine_->config().num_experts; ++expert) {
    flip_record(model_, layer, expert);
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
    std::vector<Status> wanted;
    for (std::size_t text = 0; text < 2; ++text) {
      ASSERT_OK_AND_ASSIGN(Sequence sequence, engine_->make_sequence());
      const Slice slice{&sequence, part(text, 0, kLength), 0, {}};
      wanted.push_back(engine_->forward(std::span(&slice, 1))[0]);
    }
    ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
    ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
    std::array<Collected, 2> rows;
    const std::vector<Slice> slices{{&a, part(0, 0, kLength), 0, rows[0].sink()},
                                    {&b, part(1, 0, kLength), 0, rows[1].sink()}};
    const std::vector<Status> statuses = engine_->forward(slices);
    for (std::size_t text = 0; text < 2; ++text) {
      EXPECT_EQ(statuses[text].message(), wanted[text].message()) << expert;
      if (!statuses[text].is_ok()) continue;
      EXPECT_TRUE(
          same_bits(rows[text].rows,
                    std::span(alone_[text].rows).first(kLength * engine_->config().vocab_size)));
    }
    if (statuses[0].is_ok() != statuses[1].is_ok()) ++one_ended;
    flip_record(model_, layer, expert);
  }
  EXPECT_GT(one_ended, 0U);
}

// ---- Activations that are not finite ----

void overwrite_resident(const std::filesystem::path& model, const std::string& name,
                        std::uint64_t first, std::uint64_t count) {
  ASSERT_OK_AND_ASSIGN(const ModelDir opened, open_model_dir(model, ""));
  ResidentManifest residents = opened.residents;
  const auto tensor = std::find_if(residents.tensors.begin(), residents.tensors.end(),
                                   [&](const ResidentTensor& t) { return t.name == name; });
  ASSERT_NE(tensor, residents.tensors.end());
  ASSERT_OK_AND_ASSIGN(std::string data,
                       read_text_file(model / kResidentDataName, std::uint64_t{1} << 30));
  std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(tensor->offsets.codes() + first), count,
              '\xff');
  ASSERT_OK(write_text_file(model / kResidentDataName, data));
  residents.checksum = checksum(std::as_bytes(std::span(data)));
  ASSERT_OK(write_resident_manifest(model, residents));
}

// The embedding of one id is NaN: a text without it does not notice the one that has it.
TEST_F(SequenceTest, NotFiniteEndsItsSequenceAlone) {
  constexpr std::int32_t kBroken = 287;
  std::replace(texts_[1].begin(), texts_[1].end(), kBroken, 5);
  const std::uint64_t row = engine_->config().hidden_size * 2;  // bf16
  overwrite_resident(model_, "model.embed_tokens", kBroken * row, row);
  for (const bool reference : {true, false}) {
    EngineOptions options = reference ? options_ : test::fast_options(model_);
    options.sequences = options_.sequences;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options));
    ASSERT_OK_AND_ASSIGN(Sequence alone, engine_->make_sequence());
    const std::vector<float> wanted = rest_of(alone, 1);
    ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
    ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
    std::vector<std::int32_t> broken(part(0, 0, 40).begin(), part(0, 0, 40).end());
    broken[17] = kBroken;
    Collected of_b;
    const std::vector<Slice> slices{{&a, broken, 0, {}}, {&b, texts_[1], 0, of_b.sink()}};
    const std::vector<Status> statuses = engine_->forward(slices);
    test::expect_error(statuses[0], StatusCode::kCorrupt, {"layer 0, token 17", "not finite"});
    EXPECT_OK(statuses[1]);
    EXPECT_FALSE(a.status().is_ok());
    ASSERT_EQ(of_b.rows.size(), wanted.size());
    if (reference) {
      EXPECT_TRUE(same_bits(of_b.rows, wanted));
    }
  }
}

TEST_F(SequenceTest, NotFiniteInALaterLayerIsNamed) {
  overwrite_resident(model_, "model.layers.2.post_attention_layernorm", 0, 2);
  ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  test::expect_error(engine_->forward(texts_[0], 0, ignore), StatusCode::kCorrupt,
                     {"layer 2, token 0", "not finite"});
}

// Keys and values in every encoding: a saved sequence goes on with the bits of one that was never
// saved, and only in the encoding that it was saved in.
TEST_F(SequenceTest, SavedInTheirEncoding) {
  constexpr std::array kEncodings{KvEncoding::kFloat32, KvEncoding::kBfloat16, KvEncoding::kFp8,
                                  KvEncoding::kFloat16};
  std::vector<std::vector<std::byte>> saved;
  for (const KvEncoding encoding : kEncodings) {
    EngineOptions options = test::fast_options(model_);
    options.sequences = 2;
    options.kv_encoding = encoding;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options));
    ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
    ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
    expect_ok({{&a, part(0, 0, 150), 150, {}}});
    ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes, a.save());
    ASSERT_OK(b.restore(bytes));
    EXPECT_TRUE(same_bits(rest_of(a, 0), rest_of(b, 0)));
    for (const std::vector<std::byte>& other : saved) {
      test::expect_error(b.restore(other), StatusCode::kInvalidArgument, {"--kv-cache-type"});
    }
    saved.push_back(bytes);
  }
  EngineOptions options = options_;
  options.kv_encoding = KvEncoding::kBfloat16;
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"reference", "bf16", "--kv-cache-type f32"});
}

// ---- Bytes from outside ----

class SavedSequenceTest : public SequenceTest {
 protected:
  void SetUp() override {
    SequenceTest::SetUp();
    ASSERT_OK_AND_ASSIGN(Sequence made, engine_->make_sequence());
    sequence_.emplace(std::move(made));
    expect_ok({{&*sequence_, part(0, 0, 3), 3, {}}});
    ASSERT_OK_AND_ASSIGN(bytes_, sequence_->save());
  }

  Status restore(std::vector<std::byte> bytes) { return sequence_->restore(bytes); }
  // With the checksum put right, as somebody who means it would.
  Status restore_changed(std::size_t at, std::byte value) {
    std::vector<std::byte> changed = bytes_;
    changed[at] = value;
    const std::uint64_t sum = checksum(std::span(changed).first(changed.size() - sizeof sum));
    std::memcpy(changed.data() + changed.size() - sizeof sum, &sum, sizeof sum);
    return restore(std::move(changed));
  }

  std::optional<Sequence> sequence_;
  std::vector<std::byte> bytes_;
};

TEST_F(SavedSequenceTest, EveryCutIsRefused) {
  const std::string text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  test::drill_truncation(
      text,
      [&](std::string_view cut) {
        return sequence_->restore(std::as_bytes(std::span(cut.data(), cut.size())));
      },
      {.step = 97});
}

TEST_F(SavedSequenceTest, WrongHeadersAreNamed) {
  test::expect_error(restore_changed(0, std::byte{'X'}), StatusCode::kCorrupt, {"no saved"});
  test::expect_error(restore_changed(8, std::byte{9}), StatusCode::kUnsupported, {"version 9"});
  test::expect_error(restore_changed(12, std::byte{7}), StatusCode::kUnsupported, {"encoding 7"});
  test::expect_error(restore_changed(12, std::byte{1}), StatusCode::kInvalidArgument,
                     {"bf16", "f32", "--kv-cache-type bf16"});
  test::expect_error(restore_changed(16, bytes_[16] ^ std::byte{1}), StatusCode::kInvalidArgument,
                     {"another model"});
  test::expect_error(restore_changed(24, std::byte{4}), StatusCode::kCorrupt, {"4 tokens"});
  test::expect_error(restore_changed(25, std::byte{255}), StatusCode::kInvalidArgument,
                     {"context", "-c"});
  test::expect_error(restore_changed(31, std::byte{255}), StatusCode::kInvalidArgument,
                     {"context"});
  test::expect_error(restore_changed(39, std::byte{255}), StatusCode::kCorrupt, {"bytes"});
  // The sequence is as it was.
  EXPECT_EQ(sequence_->position(), 3U);
  EXPECT_TRUE(same_bits(rest_of(*sequence_, 0), alone_from(0, 3)));
}

// The two backends keep recurrent states in different forms; each names the one that reads the
// other.
TEST_F(SavedSequenceTest, TheOtherBackendIsNamed) {
  const EngineOptions fast = test::fast_options(model_);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> cpu, Engine::open(fast));
  ASSERT_OK_AND_ASSIGN(Sequence other, cpu->make_sequence());
  test::expect_error(other.restore(bytes_), StatusCode::kUnsupported, {"--backend reference"});
  const std::vector<Slice> slices{{&other, part(0, 0, 19), 19, {}}};
  ASSERT_OK(cpu->forward(slices)[0]);
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes, other.save());
  test::expect_error(sequence_->restore(bytes), StatusCode::kUnsupported, {"--backend cpu"});
  EXPECT_OK(other.restore(bytes));
}

TEST_F(SavedSequenceTest, EveryDamagedByteIsRefused) {
  for (std::size_t at = 0; at < bytes_.size(); at += at < 64 ? 1 : 193) {
    std::vector<std::byte> changed = bytes_;
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(restore(std::move(changed)).is_ok()) << at;
  }
}

TEST_F(SavedSequenceTest, OtherWeightsAreAnotherModel) {
  overwrite_resident(model_, "model.embed_tokens", 0, 2);
  ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
  ASSERT_OK_AND_ASSIGN(Sequence other, engine_->make_sequence());
  test::expect_error(other.restore(bytes_), StatusCode::kInvalidArgument, {"another model"});
}

}  // namespace
}  // namespace moepack::sequence_test
