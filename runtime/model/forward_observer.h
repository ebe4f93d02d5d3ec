// Looks at a forward pass from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moepack {

// Sees what passes between the layers; for tests and comparisons. All rows are of the tokens of one
// batch, [tokens, width], in host memory and valid during the call. Called from the thread that
// runs the forward.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Output of the embedding.
  virtual void on_embedding(std::size_t tokens, std::span<const float> hidden) = 0;
  // Router logits of a layer, before softmax: [tokens, num_experts].
  virtual void on_router(std::uint32_t layer, std::size_t tokens,
                         std::span<const float> logits) = 0;
  // Output of a layer.
  virtual void on_layer(std::uint32_t layer, std::size_t tokens, std::span<const float> hidden) = 0;
  // Output of the final norm: of those tokens alone whose logits are asked for, a few at a time, in
  // the order in which the logits are given.
  virtual void on_final_norm(std::size_t tokens, std::span<const float> hidden) = 0;
};

}  // namespace moepack
