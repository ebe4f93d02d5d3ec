#include "convert/inspect/inspect.h"

#include <fstream>

#include <gtest/gtest.h>

#include "convert/pack/convert.h"
#include "convert/report/pack_report.h"
#include "tests/convert/model_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace moepack::inspect_test {
namespace {

using test::TempDir;
using test::TinyLayout;
using test::TinyModelOptions;
using Names = std::vector<std::string>;

PackReport parse(std::string_view text) {
  const auto report = parse_pack_report(text, "layout.json");
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? report.value() : PackReport{};
}

ConvertOptions options_of(const std::filesystem::path& source,
                          const std::filesystem::path& output) {
  ConvertOptions options;
  options.source = source;
  options.output = output;
  options.threads = 2;
  return options;
}

TEST(PackReport, TakesTheTwoListsOfTheReport) {
  const PackReport report = parse(
      R"({"layers": [{"notes": ["no"]}], "report": {"skipped_tensors": ["a", "b"], "notes": ["c"]}})");
  EXPECT_EQ(report.skipped_tensors, (Names{"a", "b"}));
  EXPECT_EQ(report.notes, Names{"c"});
}

TEST(PackReport, PassesOverEverythingElse) {
  for (const char* text :
       {R"({"notes": ["x"], "skipped_tensors": ["x"]})", R"([{"report": {"notes": ["x"]}}])",
        R"({"report": {"notes": "x", "skipped_tensors": 5, "more": {"notes": ["x"]}}})",
        R"({"report": {"notes": [["x"], {"notes": ["x"]}, 1, null], "other": ["x"]}})",
        R"({"report": [["x"]], "other": {"notes": ["x"]}})", R"("report")"}) {
    const PackReport report = parse(text);
    EXPECT_TRUE(report.notes.empty()) << text;
    EXPECT_TRUE(report.skipped_tensors.empty()) << text;
  }
  test::expect_error(parse_pack_report("{\"report\": {", "layout.json").status(),
                     StatusCode::kCorrupt, {"layout.json"});
}

// The same model in two layouts and converted: sums of bytes by part agree with each other and with
// the files.
TEST(Inspect, CountsTheSameWeightsInEveryForm) {
  const TempDir dir;
  TinyModelOptions fused;
  fused.layout = TinyLayout::kFusedWrapper;
  fused.shards = 2;
  test::write_tiny_model(dir / "single");
  test::write_tiny_model(dir / "fused", fused);
  ConvertOptions convert = options_of(dir / "fused", dir / "model");
  convert.page_size = 1;
  ASSERT_OK(convert_checkpoint(convert, {}));
  ASSERT_OK_AND_ASSIGN(const Inspection single, inspect_path(dir / "single"));
  ASSERT_OK_AND_ASSIGN(const Inspection both, inspect_path(dir / "fused"));
  ASSERT_OK_AND_ASSIGN(const Inspection model, inspect_path(dir / "model"));
  EXPECT_EQ(single.kind, PathKind::kCheckpoint);
  EXPECT_EQ(model.kind, PathKind::kModel);
  ASSERT_TRUE(single.checkpoint.has_value() && both.checkpoint.has_value());
  EXPECT_EQ(both.checkpoint->num_files, 2U);
  EXPECT_EQ(single.checkpoint->expert_bytes, both.checkpoint->expert_bytes);
  EXPECT_EQ(single.checkpoint->resident_bytes, both.checkpoint->resident_bytes);
  EXPECT_EQ(single.checkpoint->layers, both.checkpoint->layers);
  EXPECT_TRUE(single.checkpoint->skipped_tensors.empty());
  EXPECT_EQ(both.checkpoint->skipped_tensors.size(), 6U);
  ASSERT_EQ(model.packs.size(), 1U);
  EXPECT_EQ(model.packs[0].bytes, single.checkpoint->expert_bytes);
  EXPECT_EQ(model.packs[0].skipped_tensors, both.checkpoint->skipped_tensors);
  EXPECT_EQ(model.packs[0].source.fingerprint, both.checkpoint->fingerprint);
  EXPECT_EQ(model.packs[0].layers[3].attention, "full_attention");
  std::uint64_t on_disk = 0;
  for (std::uint32_t l = 0; l < 4; ++l) {
    on_disk += std::filesystem::file_size(dir / "model" / test::layer_path(l));
  }
  EXPECT_EQ(model.packs[0].bytes, on_disk);
}

// Every listed tensor lies where it is said to: its bytes are those of the source.
TEST(Inspect, ListedTensorsLieWhereTheListSays) {
  const TempDir dir;
  TinyModelOptions options;
  options.layout = TinyLayout::kMlx;
  options.writer.data_start_mod8 = 1;
  test::write_tiny_model(dir / "source", options);
  ASSERT_OK(convert_checkpoint(options_of(dir / "source", dir / "model"), {}));
  const auto source = test::raw_tensors(dir / "source");
  std::size_t experts = 0;
  std::size_t residents = 0;
  ASSERT_OK(list_tensors(dir / "model", [&](const ListedTensor& tensor) {
    const std::string file = test::read_file(dir / "model" / tensor.file);
    const std::string bytes = file.substr(tensor.offset, tensor.bytes);
    std::string name = "language_model." + tensor.name;
    const auto at = name.find(".mlp.experts.");
    if (at == std::string::npos) {
      ++residents;
      EXPECT_EQ(bytes == source.at(name).bytes, true) << name;
      return;
    }
    ++experts;
    const auto dot = name.find('.', at + 13);
    const auto expert = std::stoul(name.substr(at + 13, dot - at - 13));
    name = name.substr(0, at) + ".mlp.switch_mlp" + name.substr(dot);
    EXPECT_EQ(bytes == test::slice(source.at(name), expert, 6), true) << name;
    std::vector<std::uint64_t> shape = source.at(name).shape;
    shape.erase(shape.begin());
    EXPECT_EQ(tensor.shape, shape) << name;
    EXPECT_EQ(tensor.dtype, source.at(name).dtype) << name;
  }));
  EXPECT_EQ(experts, 4U * 6 * 9);
  EXPECT_EQ(experts / 6 + residents, source.size());
}

TEST(Inspect, AnUnfinishedModelIsReportedAsSuch) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "model");
  std::ofstream(dir / "model/moepack.unfinished").put('\n');
  ASSERT_OK_AND_ASSIGN(const Inspection empty, inspect_path(dir / "model"));
  EXPECT_TRUE(empty.unfinished);
  EXPECT_FALSE(empty.config.has_value());
  ASSERT_EQ(empty.notes.size(), 1U);
  EXPECT_NE(empty.notes[0].find("0 layer files"), std::string::npos);
  std::filesystem::create_directory(dir / "model/packed_experts");
  std::ofstream(dir / "model/packed_experts/layer_00.bin").put('x');
  std::ofstream(dir / "model/packed_experts/layer_01.bin.tmp").put('x');
  std::ofstream(dir / "model/model_weights.json") << "{}";
  ASSERT_OK_AND_ASSIGN(const Inspection damaged, inspect_path(dir / "model"));
  ASSERT_EQ(damaged.notes.size(), 2U);
  EXPECT_NE(damaged.notes[0].find("model_weights.json"), std::string::npos);
  EXPECT_NE(damaged.notes[1].find("1 layer files"), std::string::npos);
}

TEST(PathKind, SaysWhatToNameInstead) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "bare");
  std::ofstream(dir / "bare/layer_00.bin").put('x');
  std::ofstream(dir / "layout.json") << "{}";
  test::expect_error(find_path_kind(dir / "absent").status(), StatusCode::kNotFound, {"absent"});
  test::expect_error(find_path_kind(dir / "bare").status(), StatusCode::kNotFound, {"import"});
  test::expect_error(find_path_kind(dir / "layout.json").status(), StatusCode::kInvalidArgument,
                     {"directory"});
}

}  // namespace
}  // namespace moepack::inspect_test
