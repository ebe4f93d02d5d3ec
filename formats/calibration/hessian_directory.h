// Hessians of the flash-moe tools (`build_hessian.py`), as a calibration:
//
//   DIR/layer_LL/expert_EEE.npy   float32 [hidden_size, hidden_size], H = sum of x x^T over the
//                                 tokens that chose the expert: not divided, not damped
//   DIR/layer_LL/counts.json      {"<expert>": number of those tokens, …}, of the experts written
//
// Experts with few tokens (flash-moe: fewer than 64) and whole layers may be missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

struct HessianDimensions {
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t hidden_size = 0;
};

using HessianCounts = std::map<std::uint32_t, std::uint64_t>;  // tokens by expert id
// Parses the text of a counts.json. kCorrupt for experts below 0 or from `num_experts` on, and for
// counts that are no integers > 0.
Result<HessianCounts> parse_hessian_counts(std::string_view text, std::uint32_t num_experts,
                                           const std::string& file);

// Ok when `values` [size, size] could be a sum of x x^T: all are finite, the diagonal is >= 0, and
// |H_ij - H_ji| <= 1e-3 sqrt(H_ii H_jj). Otherwise kCorrupt with `file` and the place.
Status check_hessian(const std::vector<float>& values, std::uint64_t size, const std::string& file);

class HessianDirectory {
 public:
  // Reads every counts.json; each expert in one has its file, and no other does. kNotFound when
  // there is no layer at all.
  static Result<HessianDirectory> open(const std::filesystem::path& directory,
                                       const HessianDimensions& dims);

  bool has(std::uint32_t layer, std::uint32_t expert) const { return samples(layer, expert) != 0; }
  // The number of tokens over which the expert's Hessian sums; 0 where there is none.
  std::uint64_t samples(std::uint32_t layer, std::uint32_t expert) const;
  // Reads the Hessian, [hidden_size, hidden_size], and checks it with check_hessian. kNotFound
  // where has() is false. May be called from any number of threads.
  Result<std::vector<float>> read(std::uint32_t layer, std::uint32_t expert) const;

 private:
  HessianDirectory(std::filesystem::path directory, const HessianDimensions& dims)
      : directory_(std::move(directory)), dims_(dims), counts_(dims.num_layers) {}
  Status open_layer(std::uint32_t layer);

  std::filesystem::path directory_;
  HessianDimensions dims_;
  std::vector<HessianCounts> counts_;  // [num_layers]
};

}  // namespace moepack
