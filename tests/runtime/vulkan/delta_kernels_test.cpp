// GatedDeltaNet on the device against the CPU's scalar functions; its bits do not depend on how a
// sequence is cut, on what is beside it, or on which of the two ways computes it.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/model/compute.h"
#include "runtime/vulkan/delta_state.h"
#include "runtime/vulkan/mixer_shapes.h"
#include "shaders/delta_args.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::delta_kernels_test {
namespace {

constexpr float kEps = 1e-6F;

struct DeltaWeights {
  DeltaStateShape shape;
  std::vector<float> conv, decay_rate, dt_bias, norm;
};

// Projections of a text, row by row.
struct DeltaText {
  std::vector<float> qkv, z, a, b;
};

DeltaWeights make_weights(const DeltaStateShape& shape) {
  DeltaWeights w{shape, random_values(shape.taps * shape.channels(), 0.5F, 1),
                 random_values(shape.value_heads, 1.0F, 2),
                 random_values(shape.value_heads, 1.0F, 3),
                 random_values(shape.value_dim, 1.0F, 4)};
  for (float& rate : w.decay_rate) rate = -std::exp(rate);
  return w;
}

DeltaText make_text(const DeltaStateShape& shape, std::size_t tokens, std::uint32_t seed) {
  return {random_values(tokens * shape.channels(), 1.0F, seed),
          random_values(tokens * shape.value_heads * shape.value_dim, 1.0F, seed + 1),
          random_values(tokens * shape.value_heads, 3.0F, seed + 2),
          random_values(tokens * shape.value_heads, 2.0F, seed + 3)};
}

// The definition, runtime/model/delta_net.cpp, over a whole text; and the state behind it.
struct Expected {
  std::vector<float> mixed, conv, delta;
};

Expected compute_on_cpu(const DeltaWeights& w, const DeltaText& text, std::size_t tokens) {
  const DeltaStateShape& s = w.shape;
  const std::size_t channels = s.channels();
  const std::size_t width = std::size_t{s.value_heads} * s.value_dim;
  std::vector<float> scratch(1024);
  Compute compute(reference_kernels(), 1, scratch);
  Expected e{std::vector<float>(tokens * width), std::vector<float>(s.conv_floats()),
             std::vector<float>(s.delta_floats())};
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<float> row(channels);
    for (std::size_t j = 0; j < s.taps; ++j) {
      if (t + j + 1 < s.taps) continue;
      const float* in = text.qkv.data() + (t + j + 1 - s.taps) * channels;
      for (std::size_t c = 0; c < channels; ++c) row[c] += w.conv[j * channels + c] * in[c];
    }
    for (float& x : row) x *= sigmoid(x);
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.key_dim));
    for (std::size_t h = 0; h < 2 * s.key_heads; ++h) {
      l2_norm(compute.kernels(), 1e-6F, h < s.key_heads ? scale : 1.0F, s.key_dim,
              row.data() + h * s.key_dim);
    }
    for (std::size_t h = 0; h < s.value_heads; ++h) {
      const std::size_t key = s.is_tiled ? h % s.key_heads : h / (s.value_heads / s.key_heads);
      const std::size_t at = t * s.value_heads + h;
      const float g = w.decay_rate[h] * softplus(text.a[at] + w.dt_bias[h]);
      float* out = e.mixed.data() + at * s.value_dim;
      compute.kernels().gated_delta_step(
          e.delta.data() + h * s.key_dim * s.value_dim, row.data() + key * s.key_dim,
          row.data() + (s.key_heads + key) * s.key_dim,
          row.data() + 2 * s.key_heads * s.key_dim + h * s.value_dim, std::exp(g),
          sigmoid(text.b[at]), s.key_dim, s.value_dim, out);
      rms_norm(compute, out, w.norm, kEps, 1, s.value_dim, out);
      compute.kernels().swiglu(text.z.data() + at * s.value_dim, out, out, s.value_dim);
    }
  }
  for (std::size_t j = 0; j + 1 < s.taps; ++j) {
    if (tokens + j + 1 < s.taps) continue;
    std::copy_n(text.qkv.data() + (tokens + j + 1 - s.taps) * channels, channels,
                e.conv.data() + j * channels);
  }
  return e;
}

class DeltaKernelsTest : public VulkanTest {
 protected:
  struct Part {
    const DeltaText* text;
    const DeviceBuffer* state;
    std::uint32_t position;
    std::uint32_t count;
    bool is_live = true;
  };

  DeviceBuffer fresh_state(const DeltaStateShape& shape) {
    // Position 0 starts from zeros whatever lies here.
    return put(std::vector<float>(shape.device_floats(), std::nanf("")));
  }

  // One batch; mixed of its rows. Rows of projections lie apart, as in one matrix of all.
  std::vector<float> run_batch(const DeltaWeights& w, const std::vector<Part>& parts,
                               bool is_prompt, std::uint32_t threads) {
    const DeltaStateShape& s = w.shape;
    const std::size_t width = std::size_t{s.value_heads} * s.value_dim;
    const std::size_t stride = s.channels() + width + 2 * s.value_heads + 5;
    TestBatch batch;
    std::vector<std::uint64_t> states;
    std::vector<float> projected;
    for (const Part& part : parts) {
      batch.add(part.position, part.count, part.is_live);
      states.push_back(part.state->address());
      for (std::size_t t = part.position; t < part.position + part.count; ++t) {
        projected.resize(projected.size() + stride);
        float* row = projected.data() + projected.size() - stride;
        row = std::copy_n(part.text->qkv.data() + t * s.channels(), s.channels(), row);
        row = std::copy_n(part.text->z.data() + t * width, width, row);
        row = std::copy_n(part.text->a.data() + t * s.value_heads, s.value_heads, row);
        std::copy_n(part.text->b.data() + t * s.value_heads, s.value_heads, row);
      }
    }
    buffers_.clear();
    const std::uint64_t qkv = keep(projected);
    const std::uint64_t z = qkv + s.channels() * 4;
    const std::uint64_t a = z + width * 4;
    const std::uint64_t b = a + s.value_heads * 4;
    const auto rows = static_cast<std::uint32_t>(batch.rows.size());
    const auto stride32 = static_cast<std::uint32_t>(stride);
    DeviceBuffer mixed = put(std::vector<float>(rows * width, 7.0F));
    const shader::DeltaStepArgs args{.slices = keep(batch.slices),
                                     .states = keep(states),
                                     .qkv = qkv,
                                     .z = z,
                                     .a = a,
                                     .b = b,
                                     .conv = keep(w.conv),
                                     .decay_rate = keep(w.decay_rate),
                                     .dt_bias = keep(w.dt_bias),
                                     .norm = keep(w.norm),
                                     .mixed = mixed.address(),
                                     .qkv_stride = stride32,
                                     .z_stride = stride32,
                                     .ab_stride = stride32,
                                     .key_heads = s.key_heads,
                                     .value_heads = s.value_heads,
                                     .is_tiled = s.is_tiled ? 1U : 0U,
                                     .eps = kEps};
    const auto slices = static_cast<std::uint32_t>(batch.slices.size());
    if (is_prompt) {
      run_prompt(s, args, batch, threads);
    } else {
      CommandList list(device());
      list.dispatch(kernel("delta_step", {threads, s.key_dim, s.value_dim, s.taps,
                                          (8 * s.value_dim + threads - 1) / threads}),
                    args, {s.value_heads, slices, 1});
      run(list);
    }
    return get<float>(mixed, rows * width);
  }

  void run_prompt(const DeltaStateShape& s, const shader::DeltaStepArgs& args,
                  const TestBatch& batch, std::uint32_t threads) {
    const auto rows = static_cast<std::uint32_t>(batch.rows.size());
    const std::uint64_t pad = (s.key_dim + 31) / 32 * 32;
    const DeviceBuffer keys = make(rows * 2 * s.key_heads * pad * 4);
    const DeviceBuffer values = make(std::uint64_t{rows} * s.value_heads * s.value_dim * 4);
    const DeviceBuffer factors = make(std::uint64_t{rows} * s.value_heads * 2 * 4);
    const std::uint64_t batch_rows = keep(batch.rows);
    const std::vector<std::uint32_t> constants{threads, s.key_dim, s.value_dim, s.taps};
    CommandList list(device());
    list.dispatch(kernel("delta_prepare", constants),
                  shader::DeltaPrepareArgs{.rows = batch_rows,
                                           .slices = args.slices,
                                           .states = args.states,
                                           .qkv = args.qkv,
                                           .a = args.a,
                                           .b = args.b,
                                           .conv = args.conv,
                                           .decay_rate = args.decay_rate,
                                           .dt_bias = args.dt_bias,
                                           .keys = keys.address(),
                                           .values = values.address(),
                                           .factors = factors.address(),
                                           .qkv_stride = args.qkv_stride,
                                           .ab_stride = args.ab_stride,
                                           .key_heads = s.key_heads,
                                           .value_heads = s.value_heads,
                                           .is_tiled = args.is_tiled},
                  {rows, 1, 1});
    list.barrier();
    const std::uint32_t columns = threads / 8;
    list.dispatch(kernel("delta_recur", constants),
                  shader::DeltaRecurArgs{.slices = args.slices,
                                         .states = args.states,
                                         .qkv = args.qkv,
                                         .keys = keys.address(),
                                         .values = values.address(),
                                         .factors = factors.address(),
                                         .mixed = args.mixed,
                                         .qkv_stride = args.qkv_stride,
                                         .key_heads = s.key_heads,
                                         .value_heads = s.value_heads,
                                         .is_tiled = args.is_tiled},
                  {(s.value_dim + columns - 1) / columns, s.value_heads,
                   static_cast<std::uint32_t>(batch.slices.size())});
    list.barrier();
    list.dispatch(kernel("delta_gate", constants),
                  shader::DeltaGateArgs{.rows = batch_rows,
                                        .z = args.z,
                                        .norm = args.norm,
                                        .mixed = args.mixed,
                                        .z_stride = args.z_stride,
                                        .value_heads = s.value_heads,
                                        .count = rows,
                                        .eps = args.eps},
                  {(rows * s.value_heads * 8 + threads - 1) / threads, 1, 1});
    run(list);
  }

  // A text cut into batches of `piece` tokens; and the state behind it.
  std::vector<float> run_text(const DeltaWeights& w, const DeltaText& text, std::uint32_t tokens,
                              std::uint32_t piece, bool is_prompt, std::uint32_t threads,
                              std::vector<float>* state = nullptr) {
    const DeviceBuffer buffer = fresh_state(w.shape);
    std::vector<float> mixed;
    for (std::uint32_t t = 0; t < tokens; t += piece) {
      const std::vector<float> part =
          run_batch(w, {{&text, &buffer, t, std::min(piece, tokens - t)}}, is_prompt, threads);
      mixed.insert(mixed.end(), part.begin(), part.end());
    }
    if (state != nullptr) *state = get<float>(buffer, w.shape.device_floats());
    return mixed;
  }

 private:
  template <typename T>
  std::uint64_t keep(const std::vector<T>& values) {
    buffers_.push_back(put(values));
    return buffers_.back().address();
  }
  std::vector<DeviceBuffer> buffers_;
};

const DeltaStateShape kShapes[] = {
    {.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .taps = 4},
    {.key_heads = 2, .value_heads = 6, .key_dim = 40, .value_dim = 24, .taps = 4, .is_tiled = true},
    {.key_heads = 1, .value_heads = 1, .key_dim = 5, .value_dim = 3, .taps = 2},
    {.key_heads = 3, .value_heads = 3, .key_dim = 16, .value_dim = 33, .taps = 1},
};

TEST_F(DeltaKernelsTest, AgreesWithTheCpu) {
  constexpr std::uint32_t kTokens = 19;
  for (const DeltaStateShape& shape : kShapes) {
    const DeltaWeights w = make_weights(shape);
    const DeltaText text = make_text(shape, kTokens, 10);
    const Expected expected = compute_on_cpu(w, text, kTokens);
    std::vector<float> state;
    const std::vector<float> mixed = run_text(w, text, kTokens, kTokens, false, 64, &state);
    EXPECT_LT(relative_error(mixed, expected.mixed), 3e-6) << shape.key_dim;
    std::vector<float> conv(shape.conv_floats());
    std::vector<float> delta(shape.delta_floats());
    unpack_delta_state(shape, state, conv, delta);
    EXPECT_EQ(conv, expected.conv);
    EXPECT_LT(relative_error(delta, expected.delta), 3e-6) << shape.key_dim;
    std::vector<float> again(state.size());
    pack_delta_state(shape, conv, delta, again);
    EXPECT_EQ(again, state);
  }
}

TEST_F(DeltaKernelsTest, BitsDependOnTheSequenceAlone) {
  constexpr std::uint32_t kTokens = 11;
  for (const DeltaStateShape& shape : kShapes) {
    const DeltaWeights w = make_weights(shape);
    const DeltaText text = make_text(shape, kTokens, 20);
    std::vector<float> state;
    const std::vector<float> whole = run_text(w, text, kTokens, kTokens, false,
                                              delta_step_shape(shape.value_dim).threads, &state);
    for (const std::uint32_t piece : {1U, 2U, 3U, 7U, 11U}) {
      for (const bool is_prompt : {false, true}) {
        for (const std::uint32_t threads : {64U, 256U}) {
          std::vector<float> other;
          EXPECT_EQ(run_text(w, text, kTokens, piece, is_prompt, threads, &other), whole)
              << shape.key_dim << " " << piece << " " << is_prompt << " " << threads;
          EXPECT_EQ(other, state) << shape.key_dim << " " << piece << " " << is_prompt;
        }
      }
    }
  }
}

TEST_F(DeltaKernelsTest, SlicesAreAloneAndDeadOnesStay) {
  const DeltaStateShape& shape = kShapes[1];
  const std::size_t width = std::size_t{shape.value_heads} * shape.value_dim;
  const DeltaWeights w = make_weights(shape);
  const DeltaText first = make_text(shape, 9, 30);
  const DeltaText second = make_text(shape, 9, 40);
  for (const bool is_prompt : {false, true}) {
    const std::vector<float> alone = run_text(w, second, 5, 5, is_prompt, 64);
    const DeviceBuffer one = fresh_state(shape);
    const DeviceBuffer two = fresh_state(shape);
    const DeviceBuffer dead = put(std::vector<float>(shape.device_floats(), 3.0F));
    const std::vector<float> together =
        run_batch(w, {{&first, &one, 0, 3}, {&first, &dead, 0, 2, false}, {&second, &two, 0, 5}},
                  is_prompt, 64);
    EXPECT_EQ(part(together, 5 * width, 5 * width), alone);
    EXPECT_EQ(get<float>(dead, shape.device_floats()),
              std::vector<float>(shape.device_floats(), 3.0F));
  }
}

// Values beyond float32's range of squares are normed as the CPU norms them, and what is not finite
// is not finite behind.
TEST_F(DeltaKernelsTest, LargeAndInfiniteValues) {
  const DeltaStateShape& shape = kShapes[1];
  const DeltaWeights w = make_weights(shape);
  DeltaText text = make_text(shape, 6, 50);
  for (std::size_t c = 0; c < shape.channels(); ++c) text.qkv[shape.channels() + c] *= 1e25F;
  const Expected large = compute_on_cpu(w, text, 6);
  EXPECT_LT(relative_error(run_text(w, text, 6, 6, false, 64), large.mixed), 1e-5);
  EXPECT_EQ(run_text(w, text, 6, 6, true, 64), run_text(w, text, 6, 6, false, 64));
  text.qkv[4 * shape.channels() + 1] = std::numeric_limits<float>::infinity();
  const std::vector<float> mixed = run_text(w, text, 6, 1, false, 64);
  const std::size_t width = std::size_t{shape.value_heads} * shape.value_dim;
  const auto all_finite = [](const std::vector<float>& x) {
    return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
  };
  EXPECT_TRUE(all_finite(part(mixed, 0, 4 * width)));
  EXPECT_FALSE(all_finite(part(mixed, 4 * width, width)));
}

}  // namespace
}  // namespace moepack::delta_kernels_test
