// The generated checkpoints are what they say: the reader takes them, and the layouts hold one
// model.
#include "tests/support/tiny_model.h"

#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/weights/qcodec.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::test::tiny_model_test {
namespace {

std::map<std::string, WriterTensor> by_name(const TinyModelOptions& options) {
  std::map<std::string, WriterTensor> map;
  for (WriterTensor& tensor : tiny_model_tensors(options)) map.emplace(tensor.name, tensor);
  return map;
}

TEST(TinyModel, EveryLayoutOpensWhole) {
  for (const TinyLayout layout :
       {TinyLayout::kPerExpert, TinyLayout::kFusedWrapper, TinyLayout::kMlx}) {
    for (const std::uint32_t shards : {1U, 3U}) {
      const TempDir dir;
      TinyModelOptions options{.layout = layout, .shards = shards};
      options.writer.data_start_mod8 = 1;
      write_tiny_model(dir.path(), options);
      ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(dir.path()));
      const auto expected = by_name(options);
      ASSERT_EQ(checkpoint.tensors().size(), expected.size());
      for (const TensorRef& tensor : checkpoint.tensors()) {
        std::string bytes(tensor.info->size, '\0');
        ASSERT_OK(tensor.read(0, std::as_writable_bytes(std::span(bytes))));
        EXPECT_TRUE(bytes == expected.at(tensor.info->name).bytes) << tensor.info->name;
      }
      const ModelConfig& model = checkpoint.config().model;
      EXPECT_EQ(model.hidden_size, 96U);
      EXPECT_EQ(model.num_experts, 6U);
      EXPECT_EQ(model.layer_type(3), LayerType::kFullAttention);
      EXPECT_EQ(checkpoint.config().quantization.has_value(), layout == TinyLayout::kMlx);
    }
  }
}

TEST(TinyModel, FusedExpertsAreThePerExpertOnes) {
  const auto single = by_name({.layout = TinyLayout::kPerExpert});
  const auto fused = by_name({.layout = TinyLayout::kFusedWrapper});
  const WriterTensor& gate_up = fused.at("model.language_model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(gate_up.shape, (std::vector<std::uint64_t>{6, 128, 96}));
  const std::size_t half = 64 * 96 * 2;
  const std::string expert = "model.layers.1.mlp.experts.4.";
  EXPECT_TRUE(gate_up.bytes.substr(8 * half, half) == single.at(expert + "gate_proj.weight").bytes);
  EXPECT_TRUE(gate_up.bytes.substr(9 * half, half) == single.at(expert + "up_proj.weight").bytes);
  EXPECT_TRUE(fused.at("lm_head.weight").bytes == single.at("lm_head.weight").bytes);
  EXPECT_EQ(fused.count("mtp.fc.weight"), 1U);
}

TEST(TinyModel, MlxCodesAreNearThePerExpertWeights) {
  const auto single = by_name({.layout = TinyLayout::kPerExpert});
  const auto mlx = by_name({.layout = TinyLayout::kMlx});
  const std::string module = "language_model.model.layers.2.mlp.switch_mlp.down_proj";
  const WriterTensor& codes = mlx.at(module + ".weight");
  EXPECT_EQ(codes.shape, (std::vector<std::uint64_t>{6, 96, 8}));
  EXPECT_EQ(mlx.at(module + ".scales").shape, (std::vector<std::uint64_t>{6, 96, 2}));
  const auto bytes = [&](const std::string& name) {
    return reinterpret_cast<const std::byte*>(mlx.at(module + name).bytes.data());
  };
  const QMatrixView view{.format = {.id = QFormatId::kQ4, .group_size = 32},
                         .rows = 6 * 96,
                         .cols = 64,
                         .data = affine_components<const std::byte*>(
                             bytes(".weight"), bytes(".scales"), bytes(".biases"))};
  std::vector<float> row(64);
  const std::string& truth = single.at("model.layers.2.mlp.experts.5.down_proj.weight").bytes;
  for (std::uint64_t r = 0; r < 96; ++r) {
    decode_row(view, 5 * 96 + r, row);
    for (std::uint64_t c = 0; c < 64; ++c) {
      const float want = bf16_to_f32(load_le<std::uint16_t>(truth.data() + (r * 64 + c) * 2));
      // One step of 15 over the range of +-sqrt(3/64): MLX's rule clips the far end of a group.
      ASSERT_NEAR(row[c], want, 0.03F) << r << ", " << c;
    }
  }
  // Norms are stored as 1 + w, and the convolution with its channel axis last.
  const auto first = [](const WriterTensor& t) {
    return bf16_to_f32(load_le<std::uint16_t>(t.bytes.data()));
  };
  EXPECT_NEAR(first(mlx.at("language_model.model.norm.weight")),
              1 + first(single.at("model.norm.weight")), 0.005F);
  EXPECT_EQ(first(mlx.at("language_model.model.layers.0.linear_attn.norm.weight")),
            first(single.at("model.layers.0.linear_attn.norm.weight")));
  EXPECT_EQ(mlx.at("language_model.model.layers.0.linear_attn.conv1d.weight").shape,
            (std::vector<std::uint64_t>{224, 4, 1}));
}

TEST(TinyModel, ModulesThatDoNotFitTheGroupStayPlain) {
  const auto mlx = by_name({.layout = TinyLayout::kMlx, .expert_width = 48});
  const std::string experts = "language_model.model.layers.0.mlp.switch_mlp.";
  EXPECT_EQ(mlx.at(experts + "down_proj.weight").dtype, DType::kBf16);
  EXPECT_EQ(mlx.count(experts + "down_proj.scales"), 0U);
  EXPECT_EQ(mlx.at(experts + "gate_proj.weight").dtype, DType::kU32);
}

// The generator may not drift: recorded expectations elsewhere depend on its values.
TEST(TinyModel, SeedsFixTheValues) {
  const auto one = by_name({});
  EXPECT_TRUE(one.at("lm_head.weight").bytes == by_name({}).at("lm_head.weight").bytes);
  EXPECT_FALSE(one.at("lm_head.weight").bytes == by_name({.seed = 2}).at("lm_head.weight").bytes);
}

}  // namespace
}  // namespace moepack::test::tiny_model_test
