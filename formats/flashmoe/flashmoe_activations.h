// The activation dump of the flash-moe engines (`infer --collect-activations FILE`), as a
// calibration. A file without a header, one record a token and layer, in the order of computation:
//
//   i32 layer; i32 K; K times { i32 expert; f32 input[hidden_size] }
//
// `input` is the output of the post-attention norm, and is repeated K times. Neither the hidden
// size nor the router's weights stand in the file. K is a setting of the engine, and often less
// than the model's number of experts per token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/calibration/calibration.h"

namespace moepack {

struct ActivationDumpDimensions {
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t hidden_size = 0;
};

class FlashMoeActivations {
 public:
  // Walks the heads of all records, which tell whether the dump is whole and of a model with these
  // dimensions. Where records are small, all of the file is read in blocks; where they are large,
  // the heads alone. Memory: 24 bytes for each run of records of a layer at equal distances; a
  // usual dump has one run a layer. kCorrupt with record, layer and offset.
  static Result<FlashMoeActivations> open(const std::filesystem::path& path,
                                          const ActivationDumpDimensions& dims);

  std::uint32_t experts_per_token() const { return experts_per_token_; }  // K of every record
  std::uint64_t tokens(std::uint32_t layer) const { return layers_[layer].records; }
  // Gives the tokens in the order of the layer's records, with inputs rounded to bf16 (nearest,
  // ties to even) and every weight 1 / K, for the dump has no weights. kCorrupt: experts out of
  // range or twice in a token, inputs that are not finite (in bf16) or differ between the K copies.
  // kNotFound: there is no record of the layer. May be called from any number of threads. Memory:
  // the result and a record.
  Result<LayerActivations> read_layer(std::uint32_t layer) const;

 private:
  // The `count` records `first`, `first + step`, and so on.
  struct Run {
    std::uint64_t first = 0;
    std::uint64_t step = 0;
    std::uint64_t count = 0;
    std::uint64_t last() const { return first + step * (count - 1); }
  };
  struct Layer {
    std::uint64_t records = 0;
    std::vector<Run> runs;
  };

  FlashMoeActivations(File file, const ActivationDumpDimensions& dims)
      : file_(std::move(file)), dims_(dims), layers_(dims.num_layers) {}
  std::uint64_t input_bytes() const { return dims_.hidden_size * sizeof(float); }
  std::uint64_t record_bytes() const;
  Status walk();
  Status add_record(std::uint64_t record, std::span<const std::byte> head);
  Status read_record(std::uint32_t layer, std::uint64_t record, std::span<std::byte> buffer,
                     std::uint64_t token, LayerActivations& out) const;
  // kCorrupt: "record R of layer L …" at the byte `at` of the record.
  Status record_error(std::uint64_t record, std::uint32_t layer, std::uint64_t at,
                      std::string_view what) const;

  File file_;
  ActivationDumpDimensions dims_;
  std::uint32_t experts_per_token_ = 0;
  std::vector<Layer> layers_;  // [num_layers]
};

}  // namespace moepack
