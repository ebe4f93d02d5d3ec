// Damaged or contradictory checkpoints, and outputs that cannot be taken: one line that names the
// tensor, and nothing left behind.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convert/job/output_directory.h"
#include "convert/pack/convert.h"
#include "tests/convert/model_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace moepack::convert_errors_test {
namespace {

using test::expect_error;
using test::TempDir;
using test::TinyLayout;
using test::TinyModelOptions;
using test::WriterTensor;

using Tensors = std::vector<WriterTensor>;

TinyModelOptions layout(TinyLayout kind) {
  TinyModelOptions options;
  options.layout = kind;
  return options;
}

WriterTensor& find_tensor(Tensors& tensors, const std::string& name) {
  for (WriterTensor& t : tensors) {
    if (t.name == name) return t;
  }
  throw std::runtime_error("no tensor " + name);
}

void remove_tensor(Tensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const WriterTensor& t) { return t.name == name; });
}

Status convert(const std::filesystem::path& source, const std::filesystem::path& output,
               ConvertOptions options = {}) {
  options.source = source;
  options.output = output;
  options.threads = 2;
  return convert_checkpoint(options, {}).status();
}

// Converts a checkpoint whose tensors were changed; checks that the error names `parts` and that
// the directory around source and output holds nothing new.
void expect_refused(const TinyModelOptions& tiny, const std::function<void(Tensors&)>& damage,
                    std::initializer_list<std::string_view> parts, StatusCode code,
                    const ConvertOptions& options = {}) {
  const TempDir dir;
  const auto source = dir / "toy";
  test::write_tiny_model(source, tiny);
  Tensors tensors = test::tiny_model_tensors(tiny);
  damage(tensors);
  std::filesystem::remove(source / "model.safetensors.index.json");
  test::write_safetensors(source / "model.safetensors", tensors);
  const auto before = test::directory_contents(dir.path());
  expect_error(convert(source, dir / "out" / "model", options), code, parts);
  EXPECT_EQ(test::directory_contents(dir.path()) == before, true);
  EXPECT_FALSE(std::filesystem::exists(dir / "out")) << "an empty directory is left";
}

TEST(ConvertErrors, MissingTensorsAreNamed) {
  expect_refused(
      layout(TinyLayout::kPerExpert),
      [](Tensors& t) { remove_tensor(t, "model.layers.2.mlp.experts.4.up_proj.weight"); },
      {"model.layers.2.mlp.experts.4.up_proj.weight", "is missing"}, StatusCode::kNotFound);
  expect_refused(
      layout(TinyLayout::kFusedWrapper),
      [](Tensors& t) { remove_tensor(t, "model.language_model.layers.1.mlp.experts.down_proj"); },
      {"model.layers.1.mlp.experts.0.down_proj", "is missing"}, StatusCode::kNotFound);
  expect_refused(
      layout(TinyLayout::kPerExpert),
      [](Tensors& t) { remove_tensor(t, "model.layers.3.self_attn.k_norm.weight"); },
      {"model.layers.3.self_attn.k_norm.weight", "is missing", "[32]"}, StatusCode::kNotFound);
  expect_refused(
      layout(TinyLayout::kPerExpert), [](Tensors& t) { remove_tensor(t, "lm_head.weight"); },
      {"lm_head.weight", "is missing", "[288, 96]"}, StatusCode::kNotFound);
  const std::string gate = "language_model.model.layers.0.mlp.switch_mlp.gate_proj";
  expect_refused(
      layout(TinyLayout::kMlx), [&](Tensors& t) { remove_tensor(t, gate + ".biases"); },
      {gate + ".weight", ".biases is missing"}, StatusCode::kNotFound);
  expect_refused(
      layout(TinyLayout::kMlx),
      [](Tensors& t) { remove_tensor(t, "language_model.lm_head.weight"); },
      {"lm_head.weight", "is missing"}, StatusCode::kNotFound);
}

TEST(ConvertErrors, ShapesAgainstConfigNameBoth) {
  const auto reshape = [](const std::string& name, std::vector<std::uint64_t> shape) {
    return [=](Tensors& tensors) {
      WriterTensor& t = find_tensor(tensors, name);
      t.shape = shape;
      std::uint64_t size = dtype_bits(t.dtype) / 8;
      for (std::uint64_t d : shape) size *= d;
      t.bytes.resize(size);
    };
  };
  expect_refused(layout(TinyLayout::kPerExpert),
                 reshape("model.layers.0.mlp.experts.1.gate_proj.weight", {96, 64}),
                 {"model.layers.0.mlp.experts.1.gate_proj.weight", "[96, 64]", "[64, 96]"},
                 StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kFusedWrapper),
                 reshape("model.language_model.layers.0.mlp.experts.gate_up_proj", {6, 64, 96}),
                 {"gate_up_proj", "[6, 64, 96]", "[6, 128, 96]"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kFusedWrapper),
                 reshape("model.language_model.layers.0.mlp.experts.down_proj", {7, 96, 64}),
                 {"down_proj", "[7, 96, 64]", "[6, 96, 64]"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert),
                 reshape("model.layers.0.linear_attn.in_proj_z.weight", {96, 160}),
                 {"in_proj_z", "[96, 160]", "[160, 96]"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert),
                 reshape("model.layers.1.linear_attn.conv1d.weight", {224, 4, 1}),
                 {"layers.1.linear_attn.conv1d.weight", "[224, 4, 1]", "convention"},
                 StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert),
                 reshape("model.layers.1.linear_attn.conv1d.weight", {224, 5, 1}),
                 {"conv1d.weight", "[224, 5, 1]", "[224, 1, 4]", "[224, 4, 1]"},
                 StatusCode::kCorrupt);
  const std::string gate = "language_model.model.layers.0.mlp.switch_mlp.gate_proj";
  expect_refused(layout(TinyLayout::kMlx), reshape(gate + ".weight", {6, 64, 13}),
                 {gate + ".weight", "13 words"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kMlx), reshape(gate + ".weight", {6, 64, 0}),
                 {gate + ".weight", "0 words"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kMlx), reshape(gate + ".scales", {6, 64, 4}),
                 {gate + ".scales", "4 scales"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kMlx), reshape(gate + ".scales", {6, 64, 0}),
                 {gate + ".scales", "0 scales"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kMlx), reshape(gate + ".biases", {6, 63, 3}),
                 {gate + ".biases", "[6, 63, 3]", "[6, 64, 3]"}, StatusCode::kCorrupt);
}

TEST(ConvertErrors, DeclaredWidthsAgainstShapes) {
  // The default says 4 bits, the codes have 8: a module without an override.
  TinyModelOptions tiny = layout(TinyLayout::kMlx);
  const TempDir dir;
  for (const auto& [edit, part] :
       std::vector<std::pair<std::function<void(nlohmann::json&)>, std::string>>{
           {[](nlohmann::json& q) { q["bits"] = 8; }, "q8 g32"},
           {[](nlohmann::json& q) { q["group_size"] = 64; }, "q4 g64"},
           {[](nlohmann::json& q) {
              q["language_model.model.layers.0.mlp.switch_mlp.gate_proj"] = false;
            },
            "not quantized"},
           {[](nlohmann::json& q) {
              q["language_model.model.layers.0.mlp.switch_mlp.gate_proj"] = {{"group_size", 32},
                                                                             {"bits", 3}};
            },
            "q3 g32"}}) {
    const auto source = dir / "toy";
    std::filesystem::remove_all(source);
    test::write_tiny_model(source, tiny);
    auto config = test::read_json(source / "config.json");
    for (const char* key : {"quantization", "quantization_config"}) {
      if (config.contains(key)) edit(config[key]);
    }
    test::write_file(source / "config.json", config.dump());
    expect_error(convert(source, dir / "model"), StatusCode::kCorrupt,
                 {".weight", "its shapes give q4 g32", part});
    EXPECT_FALSE(std::filesystem::exists(dir / "model"));
  }
}

TEST(ConvertErrors, UnknownAndDoubledTensors) {
  const auto add = [](const std::string& name, std::vector<std::uint64_t> shape) {
    return [=](Tensors& tensors) {
      std::uint64_t size = 2;
      for (std::uint64_t d : shape) size *= d;
      tensors.push_back({name, DType::kBf16, shape, std::string(size, '\0')});
    };
  };
  expect_refused(layout(TinyLayout::kPerExpert), add("model.layers.0.mlp.gate.bias", {6}),
                 {"model.layers.0.mlp.gate.bias", "is not a tensor of model type"},
                 StatusCode::kUnsupported);
  expect_refused(layout(TinyLayout::kPerExpert), add("model.layers.4.mlp.gate.weight", {6, 96}),
                 {"model.layers.4.mlp.gate.weight", "layer 4", "4 layers"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert),
                 add("model.layers.0.mlp.experts.6.up_proj.weight", {64, 96}),
                 {"experts.6.up_proj.weight", "expert 6", "6 experts"}, StatusCode::kCorrupt);
  expect_refused(
      layout(TinyLayout::kPerExpert), add("model.layers.0.self_attn.q_norm.weight", {32}),
      {"model.layers.0.self_attn.q_norm.weight", "other kind of attention"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert), add("language_model.lm_head.weight", {288, 96}),
                 {"lm_head.weight", "means the same"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert),
                 add("model.layers.0.mlp.experts.gate_up_proj", {6, 128, 96}),
                 {"experts.0.gate_proj.weight", "gate_up_proj"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kFusedWrapper),
                 add("model.language_model.layers.0.mlp.switch_mlp.up_proj.weight", {6, 64, 96}),
                 {"switch_mlp.up_proj.weight", "gate_up_proj"}, StatusCode::kCorrupt);
  expect_refused(layout(TinyLayout::kPerExpert), add("model.layers.0.mlp.gate.scales", {6, 3}),
                 {"model.layers.0.mlp.gate.scales", "needs none"}, StatusCode::kCorrupt);
}

TEST(ConvertErrors, OtherDtypesAreRefusedByName) {
  expect_refused(
      layout(TinyLayout::kPerExpert),
      [](Tensors& tensors) {
        WriterTensor& t = find_tensor(tensors, "model.layers.0.mlp.experts.0.gate_proj.weight");
        t.dtype = DType::kF8E5M2;
        t.bytes.resize(t.bytes.size() / 2);
      },
      {"experts.0.gate_proj.weight", "F8_E5M2"}, StatusCode::kUnsupported);
}

// The error comes when three layers are on disk already.
TEST(ConvertErrors, AFailureHalfwayRemovesWhatWasWritten) {
  const auto poison = [](std::uint16_t bits) {
    return [=](Tensors& tensors) {
      store_le(
          find_tensor(tensors, "model.layers.3.mlp.experts.5.down_proj.weight").bytes.data() + 10,
          bits);
    };
  };
  ConvertOptions rounded;
  rounded.expert_format = QFormatId::kQ4;
  rounded.group_size = 32;
  for (std::uint16_t bits : {std::uint16_t{0x7fc0}, std::uint16_t{0xff80}}) {  // NaN, -infinity
    expect_refused(layout(TinyLayout::kPerExpert), poison(bits),
                   {"model.layers.3.mlp.experts.5.down_proj.weight", "row 0", "not finite"},
                   StatusCode::kCorrupt, rounded);
  }
  // Copied, not computed with: the bytes are the source's.
  const TempDir dir;
  test::write_tiny_model(dir / "toy", {});
  Tensors tensors = test::tiny_model_tensors({});
  poison(0x7fc0)(tensors);
  test::write_safetensors(dir / "toy" / "model.safetensors", tensors);
  EXPECT_OK(convert(dir / "toy", dir / "model"));
}

// What a conversion of a checkpoint with these values names, some layers first and then all.
std::vector<std::string> not_finite_of(const TinyModelOptions& tiny,
                                       const std::map<std::string, std::uint16_t>& values) {
  const TempDir dir;
  test::write_tiny_model(dir / "toy", tiny);
  Tensors tensors = test::tiny_model_tensors(tiny);
  for (const auto& [name, bits] : values) {
    std::string& bytes = find_tensor(tensors, name).bytes;
    store_le(bytes.data() + bytes.size() / 4 * 2, bits);
  }
  test::write_safetensors(dir / "toy" / "model.safetensors", tensors);
  ConvertOptions options;
  options.source = dir / "toy";
  options.output = dir / "model";
  options.threads = 2;
  options.layers = {0, 3};
  EXPECT_OK(convert_checkpoint(options, {}));
  options.layers.clear();
  const auto report = convert_checkpoint(options, {});
  EXPECT_OK(report);
  if (!report.is_ok()) return {"no report"};
  EXPECT_TRUE(report.value().finished);
  return report.value().not_finite_tensors;
}

TEST(Convert, TensorsThatAreCopiedThoughTheyHoldNoNumbersAreNamed) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(not_finite_of(layout(TinyLayout::kPerExpert), {}), Names());
  EXPECT_EQ(not_finite_of(layout(TinyLayout::kPerExpert),
                          {{"model.layers.3.mlp.experts.5.down_proj.weight", 0x7fc0},
                           {"model.layers.1.mlp.experts.0.up_proj.weight", 0xff80},
                           {"model.layers.1.mlp.experts.1.up_proj.weight", 0x7f7f},  // a number
                           {"model.norm.weight", 0x7f80}}),
            (Names{"model.layers.1.mlp.experts.0.up_proj.weight",
                   "model.layers.3.mlp.experts.5.down_proj.weight", "model.norm.weight"}));
  const std::string experts = "language_model.model.layers.2.mlp.switch_mlp.";
  EXPECT_EQ(
      not_finite_of(layout(TinyLayout::kMlx), {{experts + "gate_proj.biases", 0xffff},
                                               {experts + "gate_proj.weight", 0xffff},  // codes
                                               {experts + "up_proj.scales", 0x7f80}}),
      (Names{experts + "gate_proj.biases", experts + "up_proj.scales"}));
}

TEST(ConvertErrors, ATruncatedShardLeavesNothing) {
  const TempDir dir;
  TinyModelOptions tiny;
  tiny.shards = 2;
  test::write_tiny_model(dir / "toy", tiny);
  std::filesystem::path last;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "toy")) {
    if (entry.path().extension() == ".safetensors" && entry.path() > last) last = entry.path();
  }
  std::filesystem::resize_file(last, std::filesystem::file_size(last) - 1);
  expect_error(convert(dir / "toy", dir / "model"), StatusCode::kCorrupt,
               {last.filename().string()});
  EXPECT_FALSE(std::filesystem::exists(dir / "model"));
}

TEST(ConvertErrors, OptionsThatMakeNoSense) {
  const TempDir dir;
  test::write_tiny_model(dir / "toy", {});
  ConvertOptions options;
  options.page_size = 3000;
  expect_error(convert(dir / "toy", dir / "m", options), StatusCode::kInvalidArgument,
               {"3000", "power of two"});
  options = {};
  options.page_size = 0;
  expect_error(convert(dir / "toy", dir / "m", options), StatusCode::kInvalidArgument, {"page"});
  options = {};
  options.group_size = 48;
  expect_error(convert(dir / "toy", dir / "m", options), StatusCode::kInvalidArgument, {"48"});
  options = {};
  options.expert_format = QFormatId::kQ4K;
  expect_error(convert(dir / "toy", dir / "m", options), StatusCode::kInvalidArgument, {"q4_k"});
  EXPECT_FALSE(std::filesystem::exists(dir / "m"));
}

// ---- the output directory ----

TEST(OutputDirectory, OthersFilesAreNeverTouched) {
  const TempDir dir;
  test::write_tiny_model(dir / "toy", {});
  std::filesystem::create_directory(dir / "mine");
  test::write_file(dir / "mine" / "config.json", "precious");
  expect_error(convert(dir / "toy", dir / "mine"), StatusCode::kInvalidArgument,
               {"mine", "is not empty"});
  test::write_file(dir / "file", "precious");
  expect_error(convert(dir / "toy", dir / "file"), StatusCode::kInvalidArgument,
               {"file", "not a directory"});
  expect_error(convert(dir / "toy", dir / "file" / "model"), StatusCode::kIo, {"file"});
  EXPECT_EQ(test::read_file(dir / "mine" / "config.json"), "precious");
  EXPECT_EQ(test::read_file(dir / "file"), "precious");

  ASSERT_OK(convert(dir / "toy", dir / "model"));
  const auto finished = test::directory_contents(dir / "model");
  expect_error(convert(dir / "toy", dir / "model"), StatusCode::kInvalidArgument,
               {"already holds a converted model"});
  EXPECT_EQ(test::directory_contents(dir / "model") == finished, true);
}

TEST(OutputDirectory, AnEmptyDirectoryIsTakenAndStaysAfterAFailure) {
  const TempDir dir;
  test::write_tiny_model(dir / "toy", {});
  std::filesystem::create_directory(dir / "model");
  {
    ASSERT_OK_AND_ASSIGN(OutputDirectory output, OutputDirectory::take(dir / "model"));
    ASSERT_OK(output.add_directory("packed_experts"));
    test::write_file(dir / "model" / "packed_experts" / "layer_00.bin.tmp", "half");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir / "model"));
  EXPECT_OK(convert(dir / "toy", (dir / "model").string() + "/"));
}

// As after a kill: the next run starts over and gives the same files as an undisturbed one.
TEST(OutputDirectory, AnInterruptedConversionIsStartedAgain) {
  const TempDir dir;
  test::write_tiny_model(dir / "toy", {});
  ASSERT_OK(convert(dir / "toy", dir / "clean"));
  const auto cut = dir / "model";
  std::filesystem::create_directories(cut / "packed_experts");
  test::write_file(cut / kUnfinishedMarker, "");
  test::write_file(cut / "config.json.tmp", "{");
  test::write_file(cut / "model_weights.bin", "old");
  test::write_file(cut / "packed_experts" / "layer_00.bin", "old");
  test::write_file(cut / "packed_experts" / "layer_77.bin.tmp", "old");
  ASSERT_OK(convert(dir / "toy", cut));
  EXPECT_EQ(test::directory_contents(cut) == test::directory_contents(dir / "clean"), true);
}

TEST(OutputDirectory, AnInterruptedConversionWithForeignFilesIsLeftAlone) {
  const TempDir dir;
  test::write_tiny_model(dir / "toy", {});
  const auto cut = dir / "model";
  for (const char* foreign : {"notes.txt", "packed_experts/layer_x.bin", "packed_experts/notes"}) {
    std::filesystem::create_directories(cut / "packed_experts");
    test::write_file(cut / kUnfinishedMarker, "");
    test::write_file(cut / "model_weights.bin", "old");
    test::write_file(cut / foreign, "precious");
    const auto before = test::directory_contents(cut);
    expect_error(convert(dir / "toy", cut), StatusCode::kInvalidArgument,
                 {"interrupted conversion", foreign});
    EXPECT_EQ(test::directory_contents(cut) == before, true);
    std::filesystem::remove_all(cut);
  }
}

TEST(OutputDirectory, TwoConversionsCannotShareADirectory) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(OutputDirectory first, OutputDirectory::take(dir / "model"));
  test::write_file(dir / "model" / "model_weights.bin", "first's");
  expect_error(OutputDirectory::take(dir / "model").status(), StatusCode::kInvalidArgument,
               {"another command"});
  EXPECT_EQ(test::read_file(dir / "model" / "model_weights.bin"), "first's");
  ASSERT_OK(first.finish());
  EXPECT_FALSE(std::filesystem::exists(dir / "model" / kUnfinishedMarker));
  EXPECT_EQ(test::read_file(dir / "model" / "model_weights.bin"), "first's");
}

TEST(OutputDirectory, CreatedParentsGoAwayOnlyWhenEmpty) {
  const TempDir dir;
  { ASSERT_OK(OutputDirectory::take(dir / "a" / "b" / "model")); }
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  {
    ASSERT_OK_AND_ASSIGN(const OutputDirectory output,
                         OutputDirectory::take(dir / "a" / "b" / "model"));
    test::write_file(dir / "a" / "neighbour", "precious");
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "a" / "neighbour"));
  EXPECT_FALSE(std::filesystem::exists(dir / "a" / "b"));
}

}  // namespace
}  // namespace moepack::convert_errors_test
