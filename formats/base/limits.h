// Limits on what is read from outside, which several readers share. Each keeps a damaged number
// from costing memory or time; none is reached by a model that exists.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moepack {

// Of the manifests of packs and residents, ours and flash-moe's: those of 1,000 layers of 1,000
// experts fit.
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{256} << 20;
// Of manifests whose size does not grow with the number of experts: overlays, calibrations.
constexpr std::uint64_t kMaxSmallManifestBytes = std::uint64_t{64} << 20;
// Sizes and offsets of data files; sums of two do not wrap.
constexpr std::uint64_t kMaxDataBytes = std::uint64_t{1} << 62;
// Tokens that a calibration counts.
constexpr std::uint64_t kMaxCalibrationTokens = std::uint64_t{1} << 40;
// Layers of a model, experts of a layer (ids of both fit 16 bits), and experts of all layers
// together: no file can ask for more memory than so many counts. The last is four times that of
// the largest models there are.
constexpr std::uint32_t kMaxModelLayers = std::uint32_t{1} << 16;
constexpr std::uint32_t kMaxLayerExperts = std::uint32_t{1} << 16;
constexpr std::uint64_t kMaxModelExperts = std::uint64_t{1} << 17;
// One dimension of a model: hidden size, widths, rows of a projection. Products of two fit 64 bits
// with room.
constexpr std::uint32_t kMaxModelDimension = std::uint32_t{1} << 24;
// Dimensions of a resident tensor.
constexpr std::size_t kMaxTensorRank = 8;
// Tokens of a sequence that is run: float32, which RoPE computes positions in, tells no more apart.
constexpr std::uint64_t kMaxSequenceTokens = std::uint64_t{1} << 24;
// Positions that a model's files may say it was made for. More than can be run: a large number
// there harms nobody until someone asks for it.
constexpr std::uint32_t kMaxStatedPositions = std::uint32_t{1} << 30;

}  // namespace moepack
