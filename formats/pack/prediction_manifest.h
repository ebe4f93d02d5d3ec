// prediction.json + prediction.bin: the tensors of a model that predict further tokens (MTP), which
// convert keeps when it is asked to. They stand there as the source holds them, under its names and
// in its types, each at a multiple of 64 bytes; nothing is loaded of them to run a model. Schema
// and an example: docs/pack-format.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/dtype.h"
#include "formats/base/status.h"
#include "formats/weights/qformat.h"

namespace moepack {

constexpr std::uint32_t kPredictionFormatVersion = 1;
constexpr const char* kPredictionManifestName = "prediction.json";
constexpr const char* kPredictionDataName = "prediction.bin";

// Whose names and types the tensors have.
enum class TensorContainer : std::uint8_t { kSafetensors, kGguf };

// How a tensor's bytes can be read.
struct PredictionType {
  DType storage = DType::kU8;       // as safetensors would call them; blocks of ggml: U8
  std::optional<QFormatId> format;  // of plain floats and of ggml's blocks
};

struct PredictionTensor {
  std::string name;                  // the source's
  std::string type;                  // "BF16", "F8_E4M3"; in GGUF files as ggml calls it, "Q8_0"
  std::vector<std::uint64_t> shape;  // row-major, of elements; empty: one element
  std::uint64_t offset = 0;          // bytes into prediction.bin
  std::uint64_t size = 0;            // bytes
  std::uint64_t checksum = 0;        // XXH3-64 of them
};

struct PredictionManifest {
  TensorContainer container = TensorContainer::kSafetensors;
  std::string source;  // base name
  std::uint64_t fingerprint = 0;
  std::string quantization;               // the method that the source declares, "mlx"; "": none
  std::vector<PredictionTensor> tensors;  // sorted by name, and by offset
  std::uint64_t data_size = 0;            // of prediction.bin, exact

  bool is_empty() const { return tensors.empty(); }
  // nullptr when absent.
  const PredictionTensor* find(std::string_view name) const;
};

// nullopt where the container has no such type.
std::optional<PredictionType> prediction_type(TensorContainer container, std::string_view type);
// Bytes of a tensor; nullopt where the type is unknown, the shape is no whole number of its blocks
// or the product leaves 62 bits.
std::optional<std::uint64_t> prediction_bytes(TensorContainer container, std::string_view type,
                                              std::span<const std::uint64_t> shape);
// Places `tensor`, whose name sorts behind all that are there, at the end of the data. False, with
// nothing changed: there is no such size (prediction_bytes), or no room for it.
bool append_prediction(PredictionTensor tensor, PredictionManifest& manifest);

// Deterministic.
std::string prediction_manifest_text(const PredictionManifest& manifest);
Status write_prediction_manifest(const std::filesystem::path& directory,
                                 const PredictionManifest& manifest);
// kCorrupt: whatever does not follow from names, types and shapes, and a list that is not the one
// that was written (its checksum). kUnsupported: a version or a key that is not known here.
Result<PredictionManifest> parse_prediction_manifest(std::string_view text,
                                                     const std::string& file);
// Reads `directory`/prediction.json and checks the size of prediction.bin; nullopt where there is
// no manifest.
Result<std::optional<PredictionManifest>> read_prediction_manifest(
    const std::filesystem::path& directory);

}  // namespace moepack
