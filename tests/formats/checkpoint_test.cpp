#include "formats/checkpoint/checkpoint.h"

#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/checkpoint/shard_index.h"
#include "tests/support/reader_drill.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::write_file;
using test::write_safetensors;
using test::WriterTensor;

constexpr const char* kConfig = R"({"model_type":"qwen3_5_moe_text"})";
constexpr const char* kIndex = "model.safetensors.index.json";

WriterTensor tensor_of(const std::string& name, const std::string& bytes) {
  return {name, DType::kU8, {bytes.size()}, bytes};
}

// Two shards, four tensors, an index.
void write_sharded(const fs::path& directory) {
  fs::create_directories(directory);
  write_file(directory / "config.json", kConfig);
  write_safetensors(directory / "s1.safetensors", {tensor_of("a", "A"), tensor_of("c", "CC")});
  write_safetensors(directory / "s2.safetensors", {tensor_of("b", "BBB"), tensor_of("d", "DDDD")});
  write_file(directory / kIndex, R"({"metadata":{"total_size":1,"more":[{}]},"weight_map":{
      "d":"s2.safetensors","a":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors"}})");
}

class CheckpointTest : public testing::Test {
 protected:
  fs::path path() const { return dir_ / "model"; }
  Status status() const { return Checkpoint::open(path()).status(); }
  void write_index(const std::string& weight_map) {
    write_file(path() / kIndex, "{\"weight_map\":" + weight_map + "}");
  }

  test::TempDir dir_;
};

std::string text_of(const Checkpoint& checkpoint, std::string_view name) {
  const TensorRef* tensor = checkpoint.find(name);
  if (tensor == nullptr) return "(absent)";
  std::string bytes(tensor->info->size, '\0');
  EXPECT_OK(tensor->read(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

// Whoever only reads a checkpoint cannot close its files.
static_assert(std::is_same_v<decltype(std::declval<Checkpoint&>().shards()),
                             std::span<const SafetensorsFile* const>>);

TEST_F(CheckpointTest, OfADroppedShardOnlyTheHeaderIsLeft) {
  write_sharded(path());
  ASSERT_OK_AND_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path()));
  const TensorRef* dropped = checkpoint.find("b");
  ASSERT_NE(dropped, nullptr);
  checkpoint.drop_data(*dropped->shard);
  EXPECT_FALSE(dropped->shard->has_data());
  std::string bytes(3, '\0');
  expect_error(dropped->read(0, std::as_writable_bytes(std::span(bytes))), StatusCode::kNotFound,
               {"s2.safetensors"});
  EXPECT_EQ(text_of(checkpoint, "c"), "CC");
}

TEST_F(CheckpointTest, MergesShardsByName) {
  write_sharded(path());
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path()));
  std::string names;
  for (const TensorRef& tensor : checkpoint.tensors()) names += tensor.info->name;
  EXPECT_EQ(names, "abcd");
  EXPECT_EQ(text_of(checkpoint, "a"), "A");
  EXPECT_EQ(text_of(checkpoint, "b"), "BBB");
  EXPECT_EQ(text_of(checkpoint, "c"), "CC");
  EXPECT_EQ(text_of(checkpoint, "d"), "DDDD");
  EXPECT_EQ(checkpoint.find("e"), nullptr);
  EXPECT_EQ(checkpoint.directory(), path());
  EXPECT_EQ(checkpoint.config().model.model_type, "qwen3_5_moe_text");
}

TEST_F(CheckpointTest, PointersSurviveAMove) {
  write_sharded(path());
  ASSERT_OK_AND_ASSIGN(Checkpoint first, Checkpoint::open(path()));
  const Checkpoint second = std::move(first);
  EXPECT_EQ(text_of(second, "d"), "DDDD");
}

TEST_F(CheckpointTest, ReadsPartsOfATensorAndNothingBeyond) {
  write_sharded(path());
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path()));
  const TensorRef* tensor = checkpoint.find("b");
  std::string two(2, '\0');
  EXPECT_OK(tensor->read(1, std::as_writable_bytes(std::span(two))));
  EXPECT_EQ(two, "BB");
  for (const std::uint64_t begin : {std::uint64_t{2}, std::uint64_t{4}, ~std::uint64_t{0}}) {
    expect_error(tensor->read(begin, std::as_writable_bytes(std::span(two))),
                 StatusCode::kInvalidArgument, {"s2.safetensors", "tensor b"});
  }
}

TEST_F(CheckpointTest, ReadsASingleFileWithAndWithoutIndex) {
  fs::create_directories(path());
  write_file(path() / "config.json", kConfig);
  write_safetensors(path() / "model.safetensors", {tensor_of("a", "A")});
  ASSERT_OK_AND_ASSIGN(const Checkpoint single, Checkpoint::open(path()));
  write_index(R"({"a":"model.safetensors"})");
  ASSERT_OK_AND_ASSIGN(const Checkpoint indexed, Checkpoint::open(path()));
  EXPECT_EQ(text_of(single, "a"), "A");
  EXPECT_EQ(text_of(indexed, "a"), "A");
  EXPECT_EQ(single.fingerprint(), indexed.fingerprint());
}

TEST_F(CheckpointTest, MissingPartsAreNamed) {
  expect_error(status(), StatusCode::kNotFound, {"model", "no such directory"});
  fs::create_directories(path());
  expect_error(status(), StatusCode::kNotFound, {"model", "config.json is missing"});
  write_file(path() / "config.json", kConfig);
  expect_error(status(), StatusCode::kNotFound, {"model", "model.safetensors", kIndex, "missing"});
  write_file(path() / "pytorch_model.bin", "x");
  expect_error(status(), StatusCode::kUnsupported, {"model", ".bin"});
  write_safetensors(path() / "s1.safetensors", {});
  expect_error(status(), StatusCode::kNotFound, {"model", kIndex, "1 safetensors"});
  expect_error(Checkpoint::open(path() / "config.json").status(), StatusCode::kInvalidArgument,
               {"config.json", "not a directory"});
}

TEST_F(CheckpointTest, AMissingShardIsNamed) {
  write_sharded(path());
  fs::remove(path() / "s2.safetensors");
  expect_error(status(), StatusCode::kNotFound, {kIndex, "tensor b", "s2.safetensors", "missing"});
  // As an unfinished HuggingFace download leaves it.
  fs::create_symlink("../blobs/none", path() / "s2.safetensors");
  expect_error(status(), StatusCode::kNotFound, {"s2.safetensors", "missing"});
}

TEST_F(CheckpointTest, AShortShardIsNamedAtEveryLength) {
  write_sharded(path());
  const std::string whole = test::read_file(path() / "s2.safetensors");
  test::drill_truncation(whole, [&](std::string_view bytes) {
    write_file(path() / "s2.safetensors", bytes);
    const Status result = status();
    if (!result.is_ok()) {
      EXPECT_NE(result.message().find("s2.safetensors"), std::string::npos) << result.message();
    }
    return result;
  });
  write_file(path() / "s2.safetensors", whole.substr(0, whole.size() - 1));
  expect_error(status(), StatusCode::kCorrupt,
               {"s2.safetensors", "tensor d", "offset", "cut short"});
}

TEST_F(CheckpointTest, IndexAndShardsMustAgreeBothWays) {
  write_sharded(path());
  write_index(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors"})");
  expect_error(status(), StatusCode::kCorrupt, {"s2.safetensors", "tensor d", kIndex, "not in"});
  write_index(R"({"aa":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors",
                  "d":"s2.safetensors"})");
  expect_error(status(), StatusCode::kCorrupt, {"s1.safetensors", "tensor a", kIndex, "not in"});
  for (const char* extra : {"0", "aa", "e"}) {
    write_index(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors",
                    "d":"s2.safetensors",")" +
                std::string(extra) + R"(":"s1.safetensors"})");
    expect_error(status(), StatusCode::kNotFound,
                 {"s1.safetensors", "tensor " + std::string(extra), "not there"});
  }
  write_index(R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s1.safetensors",
                  "d":"s2.safetensors"})");
  expect_error(status(), StatusCode::kCorrupt, {"s2.safetensors", "tensor b", "s1.safetensors"});
}

TEST_F(CheckpointTest, ANameInTwoShardsIsAnError) {
  write_sharded(path());
  write_safetensors(path() / "s2.safetensors",
                    {tensor_of("b", "BBB"), tensor_of("c", "CC"), tensor_of("d", "DDDD")});
  expect_error(status(), StatusCode::kCorrupt,
               {"s2.safetensors", "tensor c", "s1.safetensors", "too"});
}

// A shard may only be a plain file name, else an index could make us read any file.
TEST_F(CheckpointTest, ShardNamesCannotLeaveTheDirectory) {
  write_sharded(path());
  write_safetensors(dir_ / "outside.safetensors", {tensor_of("a", "A")});
  const std::string absolute = (dir_ / "outside.safetensors").string();
  for (const std::string& name :
       {std::string("../outside.safetensors"), absolute, std::string("sub/x.safetensors"),
        std::string("..\\\\x"), std::string("C:x.safetensors"), std::string("."), std::string(".."),
        std::string(), std::string("a\\u0000.safetensors"), std::string("a\\nb"),
        std::string(300, 'n')}) {
    write_index("{\"a\":\"" + name + "\"}");
    expect_error(status(), StatusCode::kCorrupt, {kIndex, "tensor a", "offset", "shard name"});
  }
}

TEST_F(CheckpointTest, ShardsMayBeSymbolicLinks) {
  write_sharded(path());
  fs::create_directories(dir_ / "blobs");
  fs::rename(path() / "s2.safetensors", dir_ / "blobs/5ha");
  fs::create_symlink("../blobs/5ha", path() / "s2.safetensors");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path()));
  EXPECT_EQ(text_of(checkpoint, "d"), "DDDD");
}

// HuggingFace's cache holds links; an interrupted download leaves some without their file.
TEST_F(CheckpointTest, LinksThatLeadNowhereAreNamed) {
  write_sharded(path());
  for (const char* name : {"s2.safetensors", kIndex, "config.json"}) {
    const std::string bytes = test::read_file(path() / name);
    for (const char* target : {"../blobs/gone", name}) {
      fs::remove(path() / name);
      fs::create_symlink(target, path() / name);
      const Status status = Checkpoint::open(path()).status();
      EXPECT_FALSE(status.is_ok()) << name;
      for (const char* part : {name, "link", target, "download the model again"}) {
        EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
      }
    }
    fs::remove(path() / name);
    write_file(path() / name, bytes);
  }
  EXPECT_OK(status());
}

TEST_F(CheckpointTest, ALinkInPlaceOfTheOnlyShardIsNamed) {
  write_sharded(path());
  for (const auto& name : {kIndex, "s1.safetensors", "s2.safetensors"}) fs::remove(path() / name);
  fs::create_symlink("../blobs/gone", path() / "model.safetensors");
  expect_error(status(), StatusCode::kNotFound, {"model.safetensors", "link", "../blobs/gone"});
}

// The rule as checkpoint.h states it, computed from the files here.
TEST_F(CheckpointTest, FingerprintIsAsDocumented) {
  write_sharded(path());
  std::string record;
  for (const std::string name : {"s1.safetensors", "s2.safetensors"}) {
    const std::string bytes = test::read_file(path() / name);
    const std::size_t header = 8 + load_le<std::uint64_t>(bytes.data());
    std::array<char, 16> numbers{};
    store_le(numbers.data(), std::uint64_t{bytes.size()});
    store_le(numbers.data() + 8, std::uint64_t{XXH3_64bits(bytes.data(), header)});
    record += name + std::string(1, '\0') + std::string(numbers.data(), numbers.size());
  }
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path()));
  EXPECT_EQ(checkpoint.fingerprint(), XXH3_64bits(record.data(), record.size()));

  // Through links it is the same, and a changed header changes it.
  fs::rename(path() / "s2.safetensors", dir_ / "blob");
  fs::create_symlink("../blob", path() / "s2.safetensors");
  ASSERT_OK_AND_ASSIGN(const Checkpoint linked, Checkpoint::open(path()));
  EXPECT_EQ(linked.fingerprint(), checkpoint.fingerprint());
  write_safetensors(dir_ / "blob", {tensor_of("b", "BBBB"), tensor_of("d", "DDD")});
  ASSERT_OK_AND_ASSIGN(const Checkpoint changed, Checkpoint::open(path()));
  EXPECT_NE(changed.fingerprint(), checkpoint.fingerprint());
}

class CacheTest : public testing::Test {
 protected:
  fs::path entry(const std::string& model = "models--org--name") const {
    return dir_ / "hub" / model;
  }
  void add_snapshot(const std::string& revision, const std::string& model = "models--org--name") {
    write_sharded(entry(model) / "snapshots" / revision);
  }
  void set_main(const std::string& text) {
    fs::create_directories(entry() / "refs");
    write_file(entry() / "refs/main", text);
  }
  void expect_resolved(const fs::path& from, const std::string& revision) {
    ASSERT_OK_AND_ASSIGN(const fs::path path, resolve_checkpoint_directory(from));
    EXPECT_EQ(path, entry() / "snapshots" / revision);
    EXPECT_OK(Checkpoint::open(from));
  }

  test::TempDir dir_;
};

TEST_F(CacheTest, TheOnlySnapshotIsTaken) {
  add_snapshot("aaa");
  expect_resolved(entry(), "aaa");
  expect_resolved(dir_ / "hub", "aaa");
  expect_resolved(dir_.path(), "aaa");
  expect_resolved(entry() / "snapshots/aaa", "aaa");
}

TEST_F(CacheTest, RefsMainChooses) {
  add_snapshot("aaa");
  add_snapshot("bbb");
  set_main("bbb\n");
  expect_resolved(entry(), "bbb");
  set_main("aaa");
  expect_resolved(dir_.path(), "aaa");
}

TEST_F(CacheTest, SeveralSnapshotsWithoutRefsMainAreListed) {
  add_snapshot("aaa");
  add_snapshot("bbb");
  expect_error(Checkpoint::open(entry()).status(), StatusCode::kInvalidArgument,
               {"models--org--name", "refs/main", "aaa", "bbb"});
}

TEST_F(CacheTest, SeveralModelsAreListed) {
  add_snapshot("aaa");
  add_snapshot("bbb", "models--org--other");
  fs::create_directories(dir_ / "hub/datasets--org--d");
  expect_error(Checkpoint::open(dir_.path()).status(), StatusCode::kInvalidArgument,
               {"hub", "models--org--name", "models--org--other"});
}

TEST_F(CacheTest, BadRefsAreRefused) {
  add_snapshot("aaa");
  for (const char* bad : {"", "\n", "..", "../snapshots/aaa", "/etc"}) {
    set_main(bad);
    expect_error(Checkpoint::open(entry()).status(), StatusCode::kCorrupt, {"refs/main"});
  }
  set_main("ccc");
  expect_error(Checkpoint::open(entry()).status(), StatusCode::kNotFound, {"refs/main", "ccc"});
}

TEST_F(CacheTest, EmptyOrUnfinishedEntriesAreNamed) {
  fs::create_directories(entry() / "snapshots");
  expect_error(Checkpoint::open(entry()).status(), StatusCode::kNotFound, {"no snapshot"});
  fs::create_directories(entry() / "snapshots/aaa");
  expect_error(Checkpoint::open(entry()).status(), StatusCode::kNotFound,
               {"aaa", "config.json is missing"});
}

constexpr const char* kFile = "index.json";

TEST(ShardIndex, SortsShardsAndTensors) {
  ASSERT_OK_AND_ASSIGN(const ShardIndex index,
                       parse_shard_index(R"({"weight_map":{"z":"2","y":"1","x":"2"}})", kFile));
  EXPECT_EQ(index.shards, (std::vector<std::string>{"1", "2"}));
  ASSERT_EQ(index.entries.size(), 3U);
  EXPECT_EQ(index.entries[0].tensor, "x");
  EXPECT_EQ(index.find("x")->shard, 1U);
  EXPECT_EQ(index.find("y")->shard, 0U);
  EXPECT_EQ(index.find("w"), nullptr);
}

TEST(ShardIndex, IgnoresWhatItDoesNotNeed) {
  EXPECT_OK(parse_shard_index(
      R"({"metadata":{"weight_map":{"a":1},"n":[[{}],1.5,null,true,"s"]},"weight_map":{"a":"s"},
          "x":-1,"y":{"a":{"b":1}},"z":null})",
      kFile));
}

TEST(ShardIndex, RefusesOtherForms) {
  const auto refused = [](const std::string& text, std::string_view part) {
    expect_error(parse_shard_index(text, kFile).status(), StatusCode::kCorrupt, {kFile, part});
  };
  refused("", "not valid JSON");
  refused("[]", "not a JSON object");
  refused("3", "not a JSON object");
  refused("{}", "weight_map is missing");
  refused(R"({"metadata":{"weight_map":{"a":"s"}}})", "weight_map is missing");
  refused(R"({"weight_map":{}})", "weight_map is empty");
  refused(R"({"weight_map":null})", "weight_map is null");
  refused(R"({"weight_map":[]})", "weight_map is a list");
  refused(R"({"weight_map":"s"})", "weight_map is a string");
  refused(R"({"weight_map":{"a":1}})", "not a file name");
  refused(R"({"weight_map":{"a":null}})", "not a file name");
  refused(R"({"weight_map":{"a":{"b":"s"}}})", "not a file name");
  refused(R"({"weight_map":{"a":["s"]}})", "not a file name");
  refused(R"({"weight_map":{"a":"s","a":"s"}})", "\"a\" stands twice");
  refused(R"({"weight_map":{"a":"s"},"weight_map":{"b":"s"}})", "stands twice");
}

TEST(ShardIndex, EveryTruncationIsAnError) {
  test::drill_truncation(
      R"({"metadata":{"total_size":4},"weight_map":{"a":"s1","b\u0000":"s2"}})",
      [](std::string_view text) { return parse_shard_index(text, kFile).status(); });
}

struct Expected {
  const char* name;
  const char* shard;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset;
};

void expect_tensors(const Checkpoint& checkpoint, const std::vector<Expected>& expected) {
  for (const Expected& want : expected) {
    const TensorRef* got = checkpoint.find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(fs::path(got->shard->file().path()).filename(), want.shard) << want.name;
    EXPECT_EQ(got->info->dtype, DType::kBf16) << want.name;
    EXPECT_EQ(got->info->shape, want.shape) << want.name;
    EXPECT_EQ(got->info->offset, want.offset) << want.name;
  }
}

// Numbers below were computed from the files by a few lines of Python (struct, json).
TEST(CheckpointModels, SmallMoe) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(model));
  EXPECT_EQ(checkpoint.tensors().size(), 509U);
  expect_tensors(checkpoint,
                 {{"lm_head.weight", "model-00001-of-00005.safetensors", {4096, 256}, 10576},
                  {"model.layers.4.mlp.experts.11.up_proj.weight",
                   "model-00003-of-00005.safetensors",
                   {256, 256},
                   8162792},
                  {"model.layers.7.self_attn.q_proj.weight",
                   "model-00005-of-00005.safetensors",
                   {1024, 256},
                   7094608},
                  {"model.layers.2.linear_attn.conv1d.weight",
                   "model-00002-of-00005.safetensors",
                   {1024, 1, 4},
                   4611016},
                  {"model.norm.weight", "model-00005-of-00005.safetensors", {256}, 7749968}});
}

TEST(CheckpointModels, FamilyHub) {
  MOE_REQUIRE_MODEL(model, "families/qwen3_5_moe_hub");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(model));
  EXPECT_EQ(checkpoint.tensors().size(), 78U);
  expect_tensors(
      checkpoint,
      {{"model.language_model.layers.2.mlp.experts.gate_up_proj",
        "model.safetensors-00002-of-00002.safetensors",
        {6, 128, 128},
        238192},
       {"model.language_model.layers.1.linear_attn.conv1d.weight",
        "model.safetensors-00001-of-00002.safetensors",
        {256, 1, 4},
        568576},
       {"mtp.fc.weight", "model.safetensors-00002-of-00002.safetensors", {128, 256}, 976112},
       {"model.visual.patch_embed.proj.weight",
        "model.safetensors-00002-of-00002.safetensors",
        {32, 3, 2, 4, 4},
        969968}});
}

TEST(CheckpointModels, OthersOpen) {
  for (const char* name :
       {"demo-moe", "demo-moe-mlx-4bit", "families/qwen3_5_moe_text", "families/qwen3_next",
        "families/qwen3_moe", "families/olmoe", "families/mixtral", "families/glm4_moe",
        "families/minimax_m2", "families/gpt_oss"}) {
    MOE_REQUIRE_MODEL(model, name);
    EXPECT_OK(Checkpoint::open(model));
  }
}

TEST(CheckpointModels, OtherFamiliesAreRefusedByName) {
  for (const char* type : {"deepseek_v4", "kimi_linear", "mistral4", "step3p7"}) {
    MOE_REQUIRE_MODEL(model, "families/" + std::string(type));
    expect_error(Checkpoint::open(model).status(), StatusCode::kUnsupported,
                 {"config.json", type, "qwen3_5_moe"});
  }
}

}  // namespace
}  // namespace moepack::checkpoint_test
