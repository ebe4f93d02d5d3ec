// The memory plan against what is allocated, counted by a hook: opening included, with overlays,
// over every model there is and a matrix of flags.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/export/gguf/export_gguf.h"
#include "convert/overlay/overlay.h"
#include "formats/model_dir.h"
#include "runtime/prompt_cache.h"
#include "tests/support/allocation_count.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::memory_peak_test {
namespace {

namespace fs = std::filesystem;

// One run of the matrix.
struct RunFlags {
  Backend backend;
  std::uint32_t threads;
  std::uint32_t chunk;
  std::uint64_t context;
  std::uint32_t sequences;
  bool least_cache;    // the smallest budget; else what the machine can spare
  bool all_logits;     // else those of the last token
  bool copy_sequence;  // the sequences but the first are copies of it
};

constexpr Backend kRef = Backend::kReference;
constexpr Backend kSimd = Backend::kCpu;
constexpr std::uint64_t kShort = 3;
constexpr std::uint64_t kLong = 300;  // more than a block of the KV cache

// Every two values of two columns stand together in some row.
constexpr std::array<RunFlags, 12> kMatrix{{
    {kSimd, 1, 1, kShort, 1, false, false, false},
    {kSimd, 1, 16, kLong, 2, true, true, false},
    {kSimd, 1, 512, kShort, 2, true, false, true},
    {kSimd, 3, 1, kLong, 2, false, true, true},
    {kSimd, 3, 16, kShort, 1, true, true, true},
    {kSimd, 3, 512, kLong, 1, false, false, true},
    {kRef, 1, 1, kLong, 1, true, true, true},
    {kRef, 1, 16, kShort, 2, false, false, true},
    {kRef, 1, 512, kLong, 2, false, true, false},
    {kRef, 3, 1, kShort, 2, true, true, false},
    {kRef, 3, 16, kLong, 1, true, false, false},
    {kRef, 3, 512, kShort, 1, false, true, false},
}};

std::string text_of(const RunFlags& run) {
  std::string text = run.backend == kRef ? "reference" : "cpu";
  text += ", threads " + std::to_string(run.threads) + ", chunk " + std::to_string(run.chunk);
  text += ", context " + std::to_string(run.context);
  text += ", sequences " + std::to_string(run.sequences);
  return text + (run.least_cache ? ", least cache" : ", automatic cache");
}

// The bytes that were held at most, above those from before, and the plan that was made for them.
struct Peaks {
  MemoryPlan plan;
  std::uint64_t opening = 0;
  std::uint64_t running = 0;  // opening included
  std::uint64_t cache = 0;    // of `running`: records
};

// Fills every sequence to the end of its context.
void fill_sequences(Engine& engine, const RunFlags& run, std::span<const std::int32_t> ids) {
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  const std::size_t first_logits = run.all_logits ? 0 : ids.size() - 1;
  std::vector<Sequence> sequences;
  std::vector<Slice> slices;
  const std::uint32_t fresh = run.copy_sequence ? 1 : run.sequences;
  for (std::uint32_t i = 0; i < fresh; ++i) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine.make_sequence());
    sequences.push_back(std::move(sequence));
  }
  for (Sequence& sequence : sequences) slices.push_back({&sequence, ids, first_logits, ignore});
  for (const Status& status : engine.forward(slices)) EXPECT_OK(status);
  while (sequences.size() < run.sequences) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, sequences.front().copy());
    sequences.push_back(std::move(sequence));
  }
}

std::optional<Peaks> peaks_of(const EngineOptions& options, const RunFlags& run) {
  std::vector<std::int32_t> ids(run.context);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>((i * 977 + 31) % 160);
  }
  Peaks peaks;
  const std::size_t before = test::allocated_bytes();
  test::restart_peak();
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  if (!engine.is_ok()) return std::nullopt;
  peaks.opening = test::peak_allocated_bytes() - before;
  peaks.plan = engine.value()->memory_plan();
  fill_sequences(*engine.value(), run, ids);
  peaks.running = test::peak_allocated_bytes() - before;
  peaks.cache = engine.value()->expert_stats().allocated_bytes;
  return peaks;
}

// How much larger the plans of a model are than what was held, without what the cache left unused.
struct Tightness {
  double least = 1e9;
  double most = 0;
  std::size_t runs = 0;

  void add(const Peaks& peaks) {
    const double ratio = static_cast<double>(peaks.plan.fixed_bytes() + peaks.cache) /
                         static_cast<double>(peaks.running);
    least = std::min(least, ratio);
    most = std::max(most, ratio);
    ++runs;
  }
};

void expect_plan_covers(const Peaks& peaks, const std::string& what) {
  const MemoryPlan& plan = peaks.plan;
  EXPECT_LE(peaks.opening, plan.total_bytes()) << what << ": while it was opened";
  EXPECT_LE(peaks.running, plan.total_bytes()) << what;
  // The part of the cache that stayed empty covers nothing else. (Where nothing had to leave the
  // cache, it holds at the end what it held at most.)
  if (plan.cache_bytes == plan.pack_bytes) {
    EXPECT_LE(peaks.running, plan.fixed_bytes() + peaks.cache) << what;
  }
  // A plan that is much too large would pass, and refuse what could run. Small models are all
  // lists, which are counted generously.
  EXPECT_GE(2 * peaks.running + (std::size_t{2} << 20), plan.fixed_bytes()) << what;
}

// `few`: without the runs of long contexts on scalar kernels, which take long with larger models.
void expect_plans_cover(const fs::path& model, const std::vector<OverlayGroup>& overlays = {},
                        bool few = false) {
  EngineOptions options = test::reference_options(model);
  options.overlays = overlays;
  std::uint64_t least_cache = 0;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> any, Engine::open(options));
    least_cache = any->memory_plan().cache_floor_bytes;
  }
  Tightness tightness;
  for (const RunFlags& run : kMatrix) {
    if (few && run.backend == kRef && run.context == kLong) continue;
    options.backend = run.backend;
    options.cpu_level = run.backend == kSimd ? detect_cpu_level() : CpuLevel::kScalar;
    options.threads = run.threads;
    options.chunk_tokens = run.chunk;
    options.context = run.context;
    options.sequences = run.sequences;
    options.cache_bytes = run.least_cache ? least_cache : 0;
    const auto peaks = peaks_of(options, run);
    ASSERT_TRUE(peaks.has_value()) << text_of(run);
    expect_plan_covers(*peaks, text_of(run));
    tightness.add(*peaks);
  }
  std::printf("plan / held: %.2f to %.2f in %zu runs\n", tightness.least, tightness.most,
              tightness.runs);
}

// ---- Small models, made here ----

TEST(MemoryPeak, TinyModel) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  expect_plans_cover(test::convert_for_test(dir / "checkpoint", dir));
}

TEST(MemoryPeak, TinyModelOfThreeBits) {
  const test::TempDir dir;
  test::TinyModelOptions tiny;
  tiny.layout = test::TinyLayout::kMlx;
  tiny.bits = 3;
  tiny.full_attention_interval = 2;
  test::write_tiny_model(dir / "checkpoint", tiny);
  expect_plans_cover(test::convert_for_test(dir / "checkpoint", dir));
}

// Nothing but lists: records of a page, matrices of a few rows.
TEST(MemoryPeak, ManySmallExpertsInManyLayers) {
  const test::TempDir dir;
  test::TinyModelOptions tiny;
  tiny.num_layers = 16;
  tiny.num_experts = 96;
  tiny.hidden_size = 32;
  tiny.expert_width = 16;
  tiny.head_dim = 16;
  test::write_tiny_model(dir / "checkpoint", tiny);
  expect_plans_cover(test::convert_for_test(dir / "checkpoint", dir));
}

// The lists of a batch and the states of many sequences are counted as well.
TEST(MemoryPeak, ManySequencesInOneBatch) {
  const test::TempDir dir;
  test::TinyModelOptions tiny;
  tiny.experts_per_token = 1;
  test::write_tiny_model(dir / "checkpoint", tiny);
  const fs::path model = test::convert_for_test(dir / "checkpoint", dir);
  const RunFlags run{kSimd, 1, 16384, 8, 2048, false, true, false};
  EngineOptions options = test::fast_options(model);
  options.threads = run.threads;
  options.chunk_tokens = run.chunk;
  options.context = run.context;
  options.sequences = run.sequences;
  const auto peaks = peaks_of(options, run);
  ASSERT_TRUE(peaks.has_value());
  expect_plan_covers(*peaks, text_of(run));
}

// A sequence on its way to a file, and back.
TEST(MemoryPeak, PromptCache) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  EngineOptions options = test::fast_options(test::convert_for_test(dir / "checkpoint", dir));
  options.context = 8192;  // more than all else
  options.chunk_tokens = 16;
  options.saves_sequence = true;
  std::vector<std::int32_t> ids(options.context);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>((i * 977 + 31) % 160);
  }
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  for (const char* run : {"save", "restore"}) {
    const std::size_t before = test::allocated_bytes();
    test::restart_peak();
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(options));
    double seconds = 0;
    ASSERT_OK(
        forward_prompt(*engine, ids, {.path = dir / "prompt.cache"}, ignore, seconds).status());
    const std::uint64_t running = test::peak_allocated_bytes() - before;
    const MemoryPlan& plan = engine->memory_plan();
    EXPECT_LE(running, plan.fixed_bytes() + engine->expert_stats().allocated_bytes) << run;
    EXPECT_GT(running + plan.saved_bytes, plan.fixed_bytes()) << run;
    EXPECT_GT(plan.saved_bytes, fs::file_size(dir / "prompt.cache")) << run;
  }
}

// Every matrix that an overlay can stand in for comes from one: the model exported and laid over
// itself.
TEST(MemoryPeak, Overlays) {
  const test::TempDir dir;
  test::TinyModelOptions tiny;
  tiny.linear_value_dim = tiny.linear_key_dim;  // llama.cpp knows one size for both
  tiny.vocab_size = 6000;                       // what is replaced is larger than what is noted
  test::write_tiny_model(dir / "checkpoint", tiny);
  const fs::path model = test::convert_for_test(dir / "checkpoint", dir);
  ASSERT_OK(
      export_gguf({.model = model, .pack = {}, .output = dir / "whole.gguf", .threads = 2}, {})
          .status());
  OverlayOptions options;
  options.model = model;
  options.gguf = dir / "whole.gguf";
  options.groups.assign(kOverlayGroups.begin(), kOverlayGroups.end());
  options.threads = 2;
  ASSERT_OK(overlay_model(options, {}).status());
  expect_plans_cover(model, options.groups);
  expect_plans_cover(model, {OverlayGroup::kLmHead});
}

TEST(MemoryPeak, Demo) {
  const test::TempDir dir;
  expect_plans_cover(test::convert_for_test(test::demo_mlx_model(), dir), {}, true);
}

// ---- Every reference model that convert accepts ----

// The checkpoint in a folder, or its GGUF files; of a split one the first.
std::vector<fs::path> sources_in(const fs::path& folder) {
  if (fs::exists(folder / "config.json")) return {folder};
  std::vector<fs::path> sources;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_later_part =
        name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (entry.path().extension() == ".gguf" && !is_later_part) sources.push_back(entry.path());
  }
  return sources;
}

// False where convert does not know the kind, which is named.
bool convert_and_expect(const fs::path& source, bool few) {
  const test::TempDir dir;
  ConvertOptions options;
  options.source = source;
  options.output = dir / "model";
  options.threads = 2;
  const auto report = convert_checkpoint(options, {});
  std::printf("%s: %s\n", source.c_str(),
              report.is_ok() ? "converted" : report.status().message().c_str());
  if (!report.is_ok()) return false;
  SCOPED_TRACE(source.string());
  expect_plans_cover(options.output, {}, few);
  return true;
}

TEST(MemoryPeak, TrainedBf16) {
  MOE_REQUIRE_MODEL(demo, "demo-moe");
  EXPECT_TRUE(convert_and_expect(demo, true));
  MOE_REQUIRE_MODEL(small, "small-moe");
  EXPECT_TRUE(convert_and_expect(small, true));
}

TEST(MemoryPeak, TrainedGguf) {
  MOE_REQUIRE_MODEL(q4, "small-moe-Q4_K_M.gguf");
  EXPECT_TRUE(convert_and_expect(q4, true));
  MOE_REQUIRE_MODEL(folder, "small-moe-Q3-gguf");
  const std::vector<fs::path> split = sources_in(folder);
  ASSERT_EQ(split.size(), 1U);
  EXPECT_TRUE(convert_and_expect(split.front(), true));
}

void expect_plans_cover_all(const fs::path& folder, std::size_t at_least) {
  std::vector<fs::path> sources;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const std::vector<fs::path> found = sources_in(entry.path());
    sources.insert(sources.end(), found.begin(), found.end());
  }
  std::sort(sources.begin(), sources.end());
  std::size_t converted = 0;
  for (const fs::path& source : sources) {
    if (convert_and_expect(source, false)) ++converted;
  }
  EXPECT_GE(converted, at_least) << "of " << folder;
}

TEST(MemoryPeak, Families) {
  MOE_REQUIRE_MODEL(folder, "families");
  expect_plans_cover_all(folder, 5);
}

TEST(MemoryPeak, Encodings) {
  MOE_REQUIRE_MODEL(folder, "encodings");
  expect_plans_cover_all(folder, 1);
}

}  // namespace
}  // namespace moepack::memory_peak_test
