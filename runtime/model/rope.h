// Rotary embedding of positions (RoPE, arXiv 2104.09864), with frequencies stretched by YaRN where
// the model says so (arXiv 2309.00071 section 3; transformers' _compute_yarn_parameters).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "formats/config/model_config.h"
#include "runtime/model/attention_kernels.h"

namespace moepack {

// Does not change once it is made, so that any thread may use it.
class Rope {
 public:
  // Of rotary_dim, rope_theta, rope_interleaved and yarn; without rotary_dim nothing is rotated.
  explicit Rope(const ModelConfig& config);
  // The same with rotary_dim and rope_theta of `heads`; pairs behind rotated_pairs stay.
  Rope(const ModelConfig& config, const HeadSizes& heads);

  // Pairs of values that are rotated: rotary_dim / 2.
  std::size_t pairs() const { return inverse_frequency_.size(); }
  // Radians a position, of each pair.
  std::span<const float> inverse_frequency() const { return inverse_frequency_; }
  // What cosines and sines are multiplied with: YaRN's attention factor, else 1.
  float amplitude() const { return amplitude_; }
  // Pairs are (2i, 2i + 1) instead of (i, i + pairs).
  bool is_interleaved() const { return interleaved_; }

  // Cosines, then sines of a position, [pairs] each. The angle is a float32 product, as the models
  // were trained with.
  void fill(std::size_t position, std::span<float> rotation) const;
  // Rotates the first 2 * pairs values of `head` in place, with what fill has written. `kernels`:
  // those of a table that has them, else null; the result is the same within rounding, and to the
  // bit for tables that have them.
  void rotate(const AttentionKernels* kernels, std::span<const float> rotation, float* head) const;

 private:
  std::vector<float> inverse_frequency_;
  float amplitude_ = 1;
  bool interleaved_ = false;
};

}  // namespace moepack
