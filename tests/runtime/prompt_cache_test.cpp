// A prompt whose state comes from a file gives the logits, to the last bit, of one that is
// computed; what the file has is not computed again, and what is not this model's is refused.
#include "runtime/prompt_cache.h"

#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/checksum.h"
#include "runtime/prompt_file.h"
#include "tests/support/attention_model.h"
#include "tests/support/converted_model.h"
#include "tests/support/latent_model.h"
#include "tests/support/reader_drill.h"
#include "tests/support/tiny_model.h"

namespace moepack::prompt_cache_test {
namespace {

using Ids = std::vector<std::int32_t>;

Ids ids_of(std::size_t count, std::size_t factor = 977) {
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>((i * factor + 31) % 288);
  }
  return ids;
}

Ids first(Ids ids, std::size_t count) {
  ids.resize(count);
  return ids;
}

// With and without recurrent layers; in ways of computing that do and do not depend on batches.
enum class Way { kReference, kBytes, kPlainFloats, kQuantizedFloats };
enum class Model { kRecurrent, kAttention, kLatent };
struct Subject {
  Way way;
  Model model;

  bool has_recurrent() const { return model == Model::kRecurrent; }
};

class PromptCacheTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (GetParam().has_recurrent()) {
      test::write_tiny_model(dir_ / "checkpoint", {});
    } else if (GetParam().model == Model::kLatent) {
      test::write_latent_model(dir_ / "checkpoint");
    } else {
      test::write_attention_model(dir_ / "checkpoint");
    }
    ConvertOptions rounding;
    if (GetParam().way != Way::kPlainFloats) {
      rounding.expert_format = QFormatId::kQ4;
      rounding.resident_format = QFormatId::kQ4;
      rounding.group_size = 32;
    }
    options_ = test::fast_options(test::convert_for_test(dir_ / "checkpoint", dir_, rounding));
    if (GetParam().way == Way::kReference) options_.backend = Backend::kReference;
    if (GetParam().way == Way::kBytes) options_.activations = ActivationType::kInt8;
    options_.chunk_tokens = 16;
    options_.saves_sequence = true;
    cache_ = {.path = dir_ / "prompt.cache"};
    open();
  }
  void open() { ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_)); }

  // The logits of the prompt's last token, and of one more behind it.
  std::vector<float> logits_of(const Ids& prompt, const std::optional<PromptCacheOptions>& cache) {
    std::vector<float> logits;
    const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
      return Status::ok();
    };
    if (cache.has_value()) {
      double seconds = 0;
      auto reuse = forward_prompt(*engine_, prompt, *cache, sink, seconds);
      EXPECT_TRUE(reuse.is_ok()) << reuse.status().message();
      reuse_ = reuse.is_ok() ? reuse.value() : PromptReuse();
    } else {
      engine_->reset();
      EXPECT_OK(engine_->forward(prompt, prompt.size() - 1, sink));
    }
    const std::int32_t next = 7;
    EXPECT_OK(engine_->forward(std::span(&next, 1), 0, sink));
    return logits;
  }
  void expect_same(const Ids& prompt, const char* what) {
    const std::vector<float> computed = logits_of(prompt, std::nullopt);
    const std::vector<float> cached = logits_of(prompt, cache_);
    ASSERT_EQ(cached.size(), computed.size()) << what;
    EXPECT_EQ(std::memcmp(cached.data(), computed.data(), cached.size() * sizeof(float)), 0)
        << what;
  }
  // The largest place before the last token where the prompt may be cut.
  std::uint64_t cut(std::uint64_t tokens) const {
    return (tokens - 1) / engine_->cut_tokens() * engine_->cut_tokens();
  }

  test::TempDir dir_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  PromptCacheOptions cache_;
  PromptReuse reuse_;  // of the last prompt with the cache
};

TEST_P(PromptCacheTest, SamePromptAndLongerOnes) {
  EXPECT_EQ(engine_->cut_tokens(), GetParam().way == Way::kQuantizedFloats ? 16U : 1U);
  const Ids text = ids_of(300);
  expect_same(first(text, 53), "new file");
  EXPECT_FALSE(reuse_.has_file);
  EXPECT_EQ(reuse_.reused, 0U);
  EXPECT_EQ(reuse_.written, cut(53));
  open();
  expect_same(first(text, 53), "the same prompt");
  EXPECT_EQ(reuse_.reused, cut(53));
  EXPECT_EQ(reuse_.written, 0U);
  expect_same(first(text, 54), "a token more");
  EXPECT_EQ(reuse_.reused, cut(53));
  expect_same(first(text, 300), "a long one");  // beyond a block of keys and values
  EXPECT_EQ(reuse_.written, cut(300));
  expect_same(first(text, 300), "the same again");
  EXPECT_EQ(reuse_.reused, cut(300));
}

// What is shorter or goes another way is computed anew where states are recurrent, and from where
// it parts where sequences can be cut.
TEST_P(PromptCacheTest, OtherPrompts) {
  const Ids text = ids_of(100);
  expect_same(text, "new file");
  const Ids shorter = first(text, 70);
  expect_same(shorter, "shorter");
  EXPECT_EQ(reuse_.common, 70U);
  EXPECT_EQ(reuse_.reused, GetParam().has_recurrent() ? 0U : cut(70));
  EXPECT_EQ(reuse_.written, 0U) << "the file goes beyond the prompt";
  Ids branch = text;
  for (std::size_t i = 40; i < branch.size(); ++i) branch[i] = (branch[i] + 1) % 288;
  expect_same(branch, "branch");
  EXPECT_EQ(reuse_.common, 40U);
  EXPECT_EQ(reuse_.reused,
            GetParam().has_recurrent() ? 0U : 40 / engine_->cut_tokens() * engine_->cut_tokens());
  EXPECT_EQ(reuse_.written, cut(100));
  Ids other = ids_of(90, 41);
  other[0] = 5;
  expect_same(other, "another text");
  EXPECT_EQ(reuse_.reused, 0U);
  expect_same(first(text, 1), "a single token");
  EXPECT_EQ(reuse_.reused, 0U);
  EXPECT_EQ(reuse_.written, 0U) << "there is nothing to save";
}

TEST_P(PromptCacheTest, ReadOnlyLeavesTheFile) {
  const Ids text = ids_of(80);
  cache_.read_only = true;
  expect_same(text, "no file");
  EXPECT_FALSE(std::filesystem::exists(cache_.path));
  cache_.read_only = false;
  expect_same(first(text, 50), "written");
  cache_.read_only = true;
  ASSERT_OK_AND_ASSIGN(const std::string before, read_text_file(cache_.path, 1 << 24));
  expect_same(text, "longer");
  EXPECT_EQ(reuse_.reused, cut(50));
  expect_same(ids_of(60, 41), "another text");
  ASSERT_OK_AND_ASSIGN(const std::string after, read_text_file(cache_.path, 1 << 24));
  EXPECT_EQ(before, after);
}

// A state with other last bits is not gone on with.
TEST_P(PromptCacheTest, AnotherWayOfComputingStartsAnew) {
  const Ids text = ids_of(80);
  expect_same(text, "new file");
  if (GetParam().way == Way::kReference) return;  // there is one way alone
  options_.activations = options_.activations == ActivationType::kInt8 ? ActivationType::kFloat32
                                                                       : ActivationType::kInt8;
  open();
  expect_same(text, "other activations");
  EXPECT_TRUE(reuse_.is_other_kind);
  EXPECT_EQ(reuse_.reused, 0U);
  EXPECT_EQ(reuse_.written, cut(80));
}

// A state of another level with the same bits is.
TEST_P(PromptCacheTest, LevelsOfTheSameBitsGoOnWithEachOther) {
  if (GetParam().way == Way::kReference) return;
  const Ids text = ids_of(80);
  const std::pair<CpuLevel, CpuLevel> pairs[] = {{CpuLevel::kAvx2, CpuLevel::kAvxVnni},
                                                 {CpuLevel::kAvx512Vnni, CpuLevel::kAmx}};
  for (const auto& [one, other] : pairs) {
    if (!has_cpu_level(one) || !has_cpu_level(other)) continue;
    for (const auto& [saves, goes_on] : {std::pair(one, other), std::pair(other, one)}) {
      std::filesystem::remove(cache_.path);
      options_.cpu_level = saves;
      open();
      expect_same(text, "new file");
      options_.cpu_level = goes_on;
      open();
      expect_same(text, "the other level");
      EXPECT_FALSE(reuse_.is_other_kind) << cpu_level_name(goes_on);
      EXPECT_EQ(reuse_.reused, cut(80)) << cpu_level_name(goes_on);
    }
  }
}

TEST_P(PromptCacheTest, ChunksThatMatterAreCompared) {
  const Ids text = ids_of(80);
  expect_same(text, "new file");
  options_.chunk_tokens = 32;
  open();
  expect_same(text, "other chunks");
  EXPECT_EQ(reuse_.is_other_kind, GetParam().way == Way::kQuantizedFloats);
}

INSTANTIATE_TEST_SUITE_P(All, PromptCacheTest,
                         ::testing::Values(Subject{Way::kReference, Model::kRecurrent},
                                           Subject{Way::kBytes, Model::kRecurrent},
                                           Subject{Way::kPlainFloats, Model::kRecurrent},
                                           Subject{Way::kQuantizedFloats, Model::kRecurrent},
                                           Subject{Way::kReference, Model::kAttention},
                                           Subject{Way::kBytes, Model::kAttention},
                                           Subject{Way::kQuantizedFloats, Model::kAttention},
                                           Subject{Way::kReference, Model::kLatent},
                                           Subject{Way::kBytes, Model::kLatent},
                                           Subject{Way::kQuantizedFloats, Model::kLatent}));

// ---- Files that are refused ----

class PromptFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_ / "checkpoint", {});
    options_ = test::fast_options(test::convert_for_test(dir_ / "checkpoint", dir_));
    options_.saves_sequence = true;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
    ASSERT_OK(run());
    ASSERT_OK_AND_ASSIGN(bytes_, read_text_file(path_, 1 << 24));
  }
  Status run() {
    double seconds = 0;
    const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
    return forward_prompt(*engine_, prompt_, {.path = path_}, ignore, seconds).status();
  }
  // What a run says of a file with these bytes, which it leaves as it is.
  Status run_with(std::string_view bytes) {
    EXPECT_OK(write_text_file(path_, bytes));
    const Status status = run();
    if (!status.is_ok()) {
      const auto after = read_text_file(path_, 1 << 24);
      EXPECT_TRUE(after.is_ok() && after.value() == bytes);
    }
    return status;
  }
  // With the checksum of the head put right.
  Status run_changed(std::size_t at, char value) {
    std::string changed = bytes_;
    changed[at] = value;
    const std::size_t head = 56 + 4 * (prompt_.size() - 1);
    const std::uint64_t sum = checksum(std::as_bytes(std::span<const char>(changed)).first(head));
    std::memcpy(changed.data() + head, &sum, sizeof sum);
    return run_with(changed);
  }

  test::TempDir dir_;
  std::filesystem::path path_ = dir_ / "prompt.cache";
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Ids prompt_ = ids_of(20);
  std::string bytes_;
};

TEST_F(PromptFileTest, EveryCutIsRefused) {
  test::drill_truncation(bytes_, [&](std::string_view cut) { return run_with(cut); },
                         {.step = 193});
  const std::span<const std::byte> whole = std::as_bytes(std::span<const char>(bytes_));
  for (std::size_t n = 0; n < 56 + 4 * 19 + 8; ++n) {
    EXPECT_FALSE(parse_prompt_head(whole.first(n), bytes_.size(), "f").is_ok()) << n;
    EXPECT_FALSE(parse_prompt_head(whole.first(n), n, "f").is_ok()) << n;
  }
}

TEST_F(PromptFileTest, EveryDamagedByteIsRefused) {
  for (std::size_t at = 0; at < bytes_.size(); at += at < 200 ? 1 : 997) {
    std::string changed = bytes_;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    EXPECT_FALSE(run_with(changed).is_ok()) << at;
  }
}

TEST_F(PromptFileTest, WrongFieldsAreNamed) {
  const std::string remedy = "--prompt-cache";
  test::expect_error(run_changed(0, 'X'), StatusCode::kCorrupt, {"offset 0", "no prompt", remedy});
  test::expect_error(run_changed(8, 9), StatusCode::kUnsupported,
                     {"offset 8", "version 9", remedy});
  test::expect_error(run_changed(12, 7), StatusCode::kUnsupported,
                     {"offset 12", "activations 7", remedy});
  test::expect_error(run_changed(16, 'A'), StatusCode::kCorrupt, {"offset 16", "name", remedy});
  test::expect_error(run_changed(16, 0), StatusCode::kCorrupt, {"offset 16", "name"});
  test::expect_error(run_changed(31, 'a'), StatusCode::kCorrupt, {"offset 16", "name"});
  test::expect_error(run_changed(32, 0), StatusCode::kCorrupt, {"offset 32", "at a time"});
  test::expect_error(run_changed(32, 2), StatusCode::kCorrupt, {"offset 32", "at a time"});
  test::expect_error(run_changed(40, 18), StatusCode::kCorrupt, {"offset 40", "18 tokens", remedy});
  test::expect_error(run_changed(47, 0x7f), StatusCode::kCorrupt, {"offset 40", "tokens"});
  test::expect_error(run_changed(55, 0x7f), StatusCode::kCorrupt, {"offset 40", "tokens"});
}

TEST(PromptKernels, AreNamedByWhoseBitsTheyHave) {
  const auto parsed = [](std::string name) {
    name.resize(16);
    return parse_kernels(std::as_bytes(std::span<const char>(name)));
  };
  EXPECT_EQ(parsed("amx"), "avx512vnni");
  EXPECT_EQ(parsed("avxvnni"), "avx2");
  for (const char* name :
       {"avx2", "avx512", "avx512vnni", "reference", "vulkan", "sixteenletters16"}) {
    EXPECT_EQ(parsed(name), name);
  }
  for (const CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    const Kernels& table = *cpu_kernels(level).value();
    EXPECT_EQ(parsed(std::string(table.name)), table.bits);
  }
  for (const char* name : {"", "AMX", "amx "}) EXPECT_EQ(parsed(name), std::nullopt) << name;
}

// Its errors name the place in this file.
TEST_F(PromptFileTest, TheSavedSequenceIsChecked) {
  const std::size_t at = 56 + 4 * 19 + 8;
  std::string other = bytes_;
  other[at + 16] = static_cast<char>(other[at + 16] ^ 1);
  test::expect_error(run_with(other), StatusCode::kCorrupt,
                     {"prompt.cache", "checksum", "--prompt-cache"});
  test::TinyModelOptions tiny;
  tiny.seed = 2;
  const test::TempDir second;
  test::write_tiny_model(second / "checkpoint", tiny);
  options_.model = test::convert_for_test(second / "checkpoint", second);
  ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
  test::expect_error(run_with(bytes_), StatusCode::kInvalidArgument,
                     {"prompt.cache", "offset " + std::to_string(at + 16), "another model"});
  prompt_ = ids_of(30, 41);  // also where no token is the same
  test::expect_error(run_with(bytes_), StatusCode::kInvalidArgument, {"another model"});
}

TEST_F(PromptFileTest, AnotherEncodingNamesItsFlag) {
  options_.kv_encoding = KvEncoding::kBfloat16;
  ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
  test::expect_error(run_with(bytes_), StatusCode::kInvalidArgument, {"--kv-cache-type f32"});
}

// Two tokens more than the state has seen, with all checksums right.
TEST_F(PromptFileTest, TokensWithoutAStateAreRefused) {
  ASSERT_OK_AND_ASSIGN(const PromptFile file, read_prompt_file(path_));
  PromptHead head = file.head;
  head.tokens.push_back(1);
  ASSERT_OK(write_prompt_file(path_, head, file.sequence()));
  test::expect_error(run(), StatusCode::kCorrupt, {"19 tokens, not of 20", "--prompt-cache"});
}

TEST_F(PromptFileTest, APromptBeyondTheContextIsRefusedFirst) {
  prompt_ = ids_of(options_.context + 1);
  test::expect_error(run(), StatusCode::kInvalidArgument, {"context", "-c"});
  ASSERT_OK_AND_ASSIGN(const std::string after, read_text_file(path_, 1 << 24));
  EXPECT_EQ(after, bytes_);
}

}  // namespace
}  // namespace moepack::prompt_cache_test
