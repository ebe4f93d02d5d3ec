// Output does not depend, to the last bit, on how the work was cut: threads, chunks of the prompt,
// what the expert cache held; with the reference backend, and with inputs of 8 bits on the cpu. And
// no prompt leaves a trace in the next.
#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "tests/runtime/store/reader_ways.h"
#include "tests/support/converted_model.h"
#include "tests/support/latent_model.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::invariance_test {
namespace {

std::vector<std::int32_t> some_ids(std::size_t count, std::size_t vocab) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>((i * 977 + 31) % vocab);
  }
  return ids;
}

std::vector<float> all_logits(Engine& engine, std::span<const std::int32_t> ids) {
  std::vector<float> logits;
  const Status status = engine.forward(ids, 0, [&](std::size_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
  return logits;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Writes in place, as a program does that opens the file again.
void write_file(const std::filesystem::path& file, const std::vector<std::byte>& bytes) {
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

// Inverts every byte of the file and gives what was there.
std::vector<std::byte> flip_file(const std::filesystem::path& file) {
  std::vector<std::byte> before(std::filesystem::file_size(file));
  std::ifstream(file, std::ios::binary)
      .read(reinterpret_cast<char*>(before.data()), static_cast<std::streamsize>(before.size()));
  std::vector<std::byte> after = before;
  for (std::byte& b : after) b = ~b;
  write_file(file, after);
  return before;
}

// The demo checkpoint, and tiny ones whose hidden size, expert width and number of experts are
// awkward and whose records are no multiple of the page.
enum class Subject { kDemo, kTinyBf16, kTinyMlx3Bit, kLatent, kGemma4 };

class Invariance : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    checkpoint_ = test::demo_mlx_model();
    if (GetParam() == Subject::kLatent) {
      checkpoint_ = dir_ / "checkpoint";
      test::write_latent_model(checkpoint_);
    } else if (GetParam() == Subject::kGemma4) {
      checkpoint_ = test::gemma4_model();
    } else if (GetParam() != Subject::kDemo) {
      checkpoint_ = dir_ / "checkpoint";
      test::TinyModelOptions tiny;
      if (GetParam() == Subject::kTinyMlx3Bit) {
        tiny.layout = test::TinyLayout::kMlx;
        tiny.bits = 3;
      }
      test::write_tiny_model(checkpoint_, tiny);
    }
    model_ = test::convert_for_test(checkpoint_, dir_);
    ASSERT_FALSE(model_.empty());
    options_ = test::reference_options(model_);
    ASSERT_OK_AND_ASSIGN(const ParsedConfig config, read_model_config(model_ / "config.json"));
    ids_ = some_ids(70, config.model.vocab_size);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options_));
    expected_ = all_logits(*engine, ids_);
  }

  void expect_same(const EngineOptions& options) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
    EXPECT_TRUE(same_bits(all_logits(*engine, ids_), expected_));
  }

  test::TempDir dir_;
  std::filesystem::path checkpoint_;
  std::filesystem::path model_;
  EngineOptions options_;
  std::vector<std::int32_t> ids_;
  std::vector<float> expected_;
};

TEST_P(Invariance, Threads) {
  for (std::uint32_t threads : {1U, 3U, 8U}) {
    EngineOptions options = options_;
    options.threads = threads;
    expect_same(options);
  }
}

TEST_P(Invariance, PromptChunks) {
  for (std::uint32_t chunk : {1U, 2U, 7U, 64U}) {
    EngineOptions options = options_;
    options.chunk_tokens = chunk;
    expect_same(options);
  }
}

// The cpu backend with inputs of one byte or two: one order of sums for any number of tokens and
// threads, at every level that this machine has.
TEST_P(Invariance, BytesAsInputs) {
  EngineOptions options = options_;
  options.backend = Backend::kCpu;
  options.kv_encoding = KvEncoding::kBfloat16;
  for (const CpuLevel level : kCpuLevels) {
    if (level == CpuLevel::kScalar || !has_cpu_level(level)) continue;
    options.cpu_level = level;
    for (const ActivationType activations : {ActivationType::kInt8, ActivationType::kInt16}) {
      options.activations = activations;
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> first, Engine::open(options));
      expected_ = all_logits(*first, ids_);
      for (std::uint32_t chunk : {1U, 2U, 7U, 64U}) {
        options.chunk_tokens = chunk;
        options.threads = 1 + chunk % 3;
        expect_same(options);
      }
    }
  }
}

// Experts whose rows are in panels: the bits of rows, whatever computes with them.
TEST_P(Invariance, RowOrder) {
  // Plain floats have no panels.
  if (GetParam() != Subject::kDemo && GetParam() != Subject::kTinyMlx3Bit) return;
  ConvertOptions convert;
  convert.row_order = RowOrder::kPanels;
  const test::TempDir other;
  const std::filesystem::path panels = test::convert_for_test(checkpoint_, other, convert);
  ASSERT_FALSE(panels.empty());
  std::vector<EngineOptions> kinds{options_};
  for (const ActivationType activations :
       {ActivationType::kFloat32, ActivationType::kInt8, ActivationType::kInt16}) {
    for (const CpuLevel level : kCpuLevels) {
      if (!has_cpu_level(level)) continue;
      kinds.push_back(options_);
      kinds.back().backend = Backend::kCpu;
      kinds.back().cpu_level = level;
      kinds.back().activations = activations;
    }
  }
  for (EngineOptions options : kinds) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{20}}) {
      const std::span ids = std::span(ids_).first(count);
      options.model = model_;
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> rows, Engine::open(options));
      options.model = panels;
      options.threads = 3;
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
      EXPECT_TRUE(same_bits(all_logits(*engine, ids), all_logits(*rows, ids)))
          << engine->kernels_name() << ' ' << activation_type_name(options.activations);
    }
  }
}

TEST_P(Invariance, CacheSize) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options_));
  const MemoryPlan plan = engine->memory_plan();
  ASSERT_LT(plan.cache_floor_bytes, plan.pack_bytes) << "the budget must force evictions";
  EngineOptions small = options_;
  small.cache_bytes = plan.cache_floor_bytes;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> starved, Engine::open(small));
  EXPECT_TRUE(same_bits(all_logits(*starved, ids_), expected_));
  const std::uint64_t first_misses = starved->expert_stats().misses;
  starved->reset();
  EXPECT_TRUE(same_bits(all_logits(*starved, ids_), expected_));
  EXPECT_GT(starved->expert_stats().misses, first_misses) << "nothing was evicted";
}

// What is read ahead for the next layer, rightly or wrongly, changes no bit.
TEST_P(Invariance, Lookahead) {
  for (const std::uint32_t chunk : {1U, 5U, 64U}) {
    for (const std::uint32_t lookahead : {1U, 3U, 64U}) {
      EngineOptions options = options_;
      options.chunk_tokens = chunk;
      options.store.lookahead = lookahead;
      options.threads = 3;
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
      EXPECT_TRUE(same_bits(all_logits(*engine, ids_), expected_));
      EXPECT_GT(engine->expert_stats().ahead_reads, 0U) << chunk;
    }
  }
}

// What it would change is refused; left to the program it is off there, and on where not all fit.
TEST_P(Invariance, LookaheadChangesNeitherRoutingNorTraces) {
  EngineOptions options = options_;
  options.backend = Backend::kCpu;
  options.car = {.always = 1, .among = 4};
  options.store.lookahead = 2;
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"--lookahead", "--car"});
  options.store.is_lookahead_automatic = true;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> routed, Engine::open(options));
  EXPECT_EQ(routed->options().store.lookahead, 0U);
  options.car = {};
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> whole, Engine::open(options));
  EXPECT_EQ(whole->options().store.lookahead, 0U);
  options.cache_bytes = whole->memory_plan().cache_floor_bytes;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> starved, Engine::open(options));
  const std::uint32_t used = starved->config().experts_per_token;
  EXPECT_EQ(starved->options().store.lookahead, used * 3 / 8);
  options.store.trace = dir_ / "trace";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> traced, Engine::open(options));
  EXPECT_EQ(traced->options().store.lookahead, 0U);
}

// Whichever way records are read, from one disk or two, with room for all experts or for few.
TEST_P(Invariance, WaysOfReading) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> first, Engine::open(options_));
  const std::uint64_t floor = first->memory_plan().cache_floor_bytes;
  const test::TempDir second;
  for (const auto& entry : std::filesystem::directory_iterator(model_ / kDefaultPackName)) {
    std::filesystem::copy(entry.path(), second / entry.path().filename());
  }
  for (const test::ReaderWay& way : test::reader_ways()) {
    if (!way.can_be_had()) continue;
    for (const std::uint64_t budget : {std::uint64_t{0}, floor}) {
      for (const bool is_mirrored : {false, true}) {
        EngineOptions options = options_;
        options.cache_bytes = budget;
        options.store.io = way.mode;
        options.store.engine = way.engine;
        if (is_mirrored) options.store.pack_directories = {second.path()};
        ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
        EXPECT_EQ(engine->io_choice().mode, way.mode);
        EXPECT_EQ(engine->io_choice().engine, way.engine);
        EXPECT_TRUE(same_bits(all_logits(*engine, ids_), expected_)) << way;
        engine->reset();
        EXPECT_TRUE(same_bits(all_logits(*engine, ids_), expected_)) << way << ", again";
      }
    }
  }
}

// A layer that lies on the other disk alone is read there.
TEST_P(Invariance, LayersOnTwoDisks) {
  const test::TempDir second;
  const std::string file = layer_file_name(1);
  std::filesystem::copy(model_ / kDefaultPackName / file, second / file);
  std::filesystem::remove(model_ / kDefaultPackName / file);
  test::expect_error(Engine::open(options_).status(), StatusCode::kNotFound, {file});
  EngineOptions options = options_;
  options.store.pack_directories = {second.path()};
  expect_same(options);
}

// Somebody overwrites records that have been compared with their checksums: an error, and no other
// token.
TEST_P(Invariance, APackThatIsOverwrittenIsFoundOut) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> first, Engine::open(options_));
  const std::uint64_t floor = first->memory_plan().cache_floor_bytes;
  const std::filesystem::path file = model_ / kDefaultPackName / layer_file_name(2);
  for (const test::ReaderWay& way : test::reader_ways()) {
    if (!way.can_be_had()) continue;
    EngineOptions options = options_;
    options.cache_bytes = floor;
    options.store.io = way.mode;
    options.store.engine = way.engine;
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
    EXPECT_TRUE(same_bits(all_logits(*engine, ids_), expected_)) << way;
    const std::vector<std::byte> before = flip_file(file);
    engine->reset();
    const Status status =
        engine->forward(ids_, 0, [](std::size_t, std::span<const float>) { return Status::ok(); });
    test::expect_error(status, StatusCode::kCorrupt, {"layer_02.bin", "checksum"});
    write_file(file, before);
  }
}

TEST_P(Invariance, CacheBelowTheFloorIsRefused) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options_));
  EngineOptions tiny = options_;
  tiny.cache_bytes = engine->memory_plan().cache_floor_bytes - 1;
  test::expect_error(Engine::open(tiny).status(), StatusCode::kInvalidArgument, {"--cache-mb"});
}

TEST_P(Invariance, TokenByTokenEqualsOnePrompt) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options_));
  std::vector<float> logits;
  for (const std::int32_t id : ids_) {
    const std::vector<float> row = all_logits(*engine, std::span(&id, 1));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(same_bits(logits, expected_));
}

TEST_P(Invariance, ResetForgetsEverything) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options_));
  (void)all_logits(*engine, some_ids(33, engine->config().vocab_size));
  engine->reset();
  EXPECT_EQ(engine->position(), 0U);
  EXPECT_TRUE(same_bits(all_logits(*engine, ids_), expected_));
}

TEST_P(Invariance, ContextAndVocabularyAreChecked) {
  EngineOptions options = options_;
  options.context = 8;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  test::expect_error(engine->forward(ids_, 0, ignore), StatusCode::kInvalidArgument, {"context"});
  engine->reset();
  const std::vector<std::int32_t> bad{1, 1 << 20};
  test::expect_error(engine->forward(bad, 0, ignore), StatusCode::kInvalidArgument,
                     {"1048576", "index 1"});
}

TEST_P(Invariance, DamagedRecordIsNamedAtItsFirstRead) {
  ASSERT_OK_AND_ASSIGN(const PackManifest pack, read_pack_manifest(model_ / "packed_experts"));
  const auto at = static_cast<std::streamoff>(pack.layers[2].experts[5].offset + 100);
  {
    std::fstream bytes(model_ / "packed_experts" / "layer_02.bin",
                       std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(at);
    const auto old = static_cast<char>(bytes.get());
    bytes.seekp(at);
    bytes.put(static_cast<char>(old ^ 4));
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options_));
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  const std::vector<std::int32_t> ids = some_ids(400, engine->config().vocab_size);
  test::expect_error(engine->forward(ids, 0, ignore), StatusCode::kCorrupt,
                     {"layer_02.bin", "expert 5", "checksum"});
}

// The families' small checkpoints: layers without experts, routers of sigmoids, biases, sinks and
// windows. Chunks, threads and what the cache held leave no trace.
class FamilyInvariance : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_one_result(EngineOptions options) {
    std::vector<float> expected;
    for (const std::uint32_t chunk : {64U, 1U, 7U}) {
      options.chunk_tokens = chunk;
      options.threads = 1 + chunk % 3;
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
      const std::vector<float> logits =
          all_logits(*engine, some_ids(300, engine->config().vocab_size));
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(same_bits(logits, expected)) << engine->kernels_name() << ", chunk " << chunk;
    }
  }
};

TEST_P(FamilyInvariance, ChunksAndThreads) {
  MOE_REQUIRE_MODEL(checkpoint, std::string(GetParam()));
  const test::TempDir dir;
  const std::filesystem::path model = test::convert_for_test(checkpoint, dir);
  ASSERT_FALSE(model.empty());
  expect_one_result(test::reference_options(model));
  expect_one_result(test::fast_options(model));
  EngineOptions options = test::fast_options(model);
  options.activations = ActivationType::kInt8;
  options.kv_encoding = KvEncoding::kFp8;
  expect_one_result(options);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyInvariance,
                         ::testing::Values("families/mixtral", "families/glm4_moe",
                                           "families/minimax_m2", "families/gpt_oss", "gemma4"),
                         [](const auto& family) {
                           return std::filesystem::path(family.param).filename().string();
                         });

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         ::testing::Values(Subject::kDemo, Subject::kTinyBf16,
                                           Subject::kTinyMlx3Bit, Subject::kLatent,
                                           Subject::kGemma4),
                         [](const ::testing::TestParamInfo<Subject>& subject) {
                           switch (subject.param) {
                             case Subject::kDemo:
                               return "Demo";
                             case Subject::kTinyBf16:
                               return "TinyBf16";
                             case Subject::kLatent:
                               return "Latent";
                             case Subject::kGemma4:
                               return "Gemma4";
                             default:
                               return "TinyMlx3Bit";
                           }
                         });

}  // namespace
}  // namespace moepack::invariance_test
