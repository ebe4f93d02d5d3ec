// Attention on the device against the definition in double, token by token and of prompts; a row's
// bits depend on its sequence alone.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "runtime/vulkan/mixer_shapes.h"
#include "shaders/attention_args.h"
#include "tests/runtime/vulkan/attention_cases.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::attention_kernels_test {
namespace {

// Queries (with gates) of every position, and a full cache [positions, 2, kv_heads, head_dim].
struct Text {
  Text(const AttentionShape& s, std::size_t tokens, std::uint32_t seed)
      : q(random_values(tokens * s.q_width(), 2.0F / std::sqrt(static_cast<float>(s.head_dim)),
                        seed)),
        kv(random_values(tokens * 2 * s.kv_width(), 1.0F, seed + 1)) {}
  std::vector<float> q;
  std::vector<float> kv;
};

// A score that has no value, of head h.
float sink_of(std::uint32_t h) { return 0.7F * static_cast<float>(h % 5) - 1.2F; }

// [heads, head_dim] of the token at `position`.
std::vector<float> attend_in_double(const AttentionShape& s, const Text& text,
                                    const std::vector<float>& kv, std::uint32_t position) {
  std::vector<float> out;
  const std::size_t width = s.kv_width();
  for (std::uint32_t h = 0; h < s.heads; ++h) {
    const std::size_t kv_head = h / (s.heads / s.kv_heads);
    const float* q = text.q.data() + position * s.q_width() + h * s.q_step();
    std::vector<double> scores;
    const std::uint32_t first = s.window == 0 ? 0 : position + 1 - std::min(position + 1, s.window);
    for (std::uint32_t j = first; j <= position; ++j) {
      double score = 0;
      for (std::uint32_t i = 0; i < s.head_dim; ++i) {
        score += double{q[i]} * kv[j * 2 * width + kv_head * s.head_dim + i];
      }
      scores.push_back(score);
    }
    double most = *std::max_element(scores.begin(), scores.end());
    if (s.has_sinks) most = std::max(most, double{sink_of(h)});
    double sum = s.has_sinks ? std::exp(sink_of(h) - most) : 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    for (std::uint32_t i = 0; i < s.head_dim; ++i) {
      double value = 0;
      for (std::uint32_t j = first; j <= position; ++j) {
        value += scores[j - first] * kv[(j * 2 + 1) * width + kv_head * s.head_dim + i];
      }
      const double gate = s.has_gate ? 1 / (1 + std::exp(-double{q[s.head_dim + i]})) : 1;
      out.push_back(static_cast<float>(value / sum * gate));
    }
  }
  return out;
}

// How decode takes keys: lanes, queries of a work group, splits.
struct DecodeShape {
  std::uint32_t lanes = 8;
  std::uint32_t queries = 4;
  std::uint32_t splits = 3;
  bool has_wide_lanes = false;  // more than a subgroup may have
};

class AttentionKernelsTest : public VulkanTest {
 protected:
  struct Part {
    const Text* text;
    std::uint32_t position;
    std::uint32_t count;
    bool is_live = true;
  };

  // One batch; attended rows.
  std::vector<float> attend(const AttentionShape& s, KvEncoding encoding,
                            const std::vector<Part>& parts, const DecodeShape* decode) {
    TestBatch batch;
    std::vector<float> queries;
    std::vector<std::uint64_t> addresses;
    std::uint32_t most = 0;
    buffers_.clear();
    for (const Part& part : parts) {
      batch.add(part.position, part.count, part.is_live);
      most = std::max(most, part.count);
      const float* q = part.text->q.data() + part.position * s.q_width();
      queries.insert(queries.end(), q, q + part.count * s.q_width());
      addresses.push_back(keep(encode_kv(encoding, part.text->kv)));
    }
    const auto rows = static_cast<std::uint32_t>(batch.rows.size());
    const std::uint64_t row_table = keep(batch.rows);
    const std::uint64_t q = keep(queries);
    const std::uint64_t caches = keep(addresses);
    const DeviceBuffer attended =
        put(std::vector<float>(std::size_t{rows} * s.heads * s.head_dim, 7.0F));
    std::vector<float> sinks;
    for (std::uint32_t h = 0; h < s.heads; ++h) sinks.push_back(sink_of(h));
    const std::uint64_t sink_table = keep(sinks);
    CommandList list(device());
    const auto code = static_cast<std::uint32_t>(encoding);
    const std::uint32_t has_sinks = s.has_sinks ? 1 : 0;
    if (decode == nullptr) {
      const shader::AttendPromptArgs args{.slices = keep(batch.slices),
                                          .q = q,
                                          .caches = caches,
                                          .attended = attended.address(),
                                          .sinks = sink_table,
                                          .q_stride = s.q_width(),
                                          .q_step = s.q_step(),
                                          .num_heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .has_gate = s.has_gate ? 1U : 0U};
      list.dispatch(kernel("attend_prompt", {256, s.head_dim, code, has_sinks, s.window}), args,
                    {(most * (s.heads / s.kv_heads) + 63) / 64, s.kv_heads,
                     static_cast<std::uint32_t>(batch.slices.size())});
      run(list);
      return get<float>(attended, std::size_t{rows} * s.heads * s.head_dim);
    }
    const std::size_t results = std::size_t{rows} * s.heads * decode->splits;
    const std::uint64_t values = keep(std::vector<float>(results * s.head_dim, std::nanf("")));
    const std::uint64_t stats = keep(std::vector<float>(results * 2, std::nanf("")));
    const std::uint32_t shared_by = s.heads / s.kv_heads;
    const std::size_t counters = std::size_t{rows} * s.heads;
    const DeviceBuffer arrived = put(std::vector<std::uint32_t>(counters, 0));
    list.dispatch(
        kernel("attend", {8 * decode->lanes, s.head_dim, code, decode->lanes, decode->queries,
                          has_sinks, s.window, decode->has_wide_lanes ? 1U : 0U}),
        shader::AttendArgs{.rows = row_table,
                           .q = q,
                           .caches = caches,
                           .values = values,
                           .stats = stats,
                           .arrived = arrived.address(),
                           .attended = attended.address(),
                           .sinks = sink_table,
                           .q_stride = s.q_width(),
                           .q_step = s.q_step(),
                           .num_heads = s.heads,
                           .kv_heads = s.kv_heads,
                           .has_gate = s.has_gate ? 1U : 0U},
        {decode->splits, s.kv_heads * ((shared_by + decode->queries - 1) / decode->queries), rows});
    run(list);
    EXPECT_EQ(get<std::uint32_t>(arrived, counters), std::vector<std::uint32_t>(counters, 0));
    return get<float>(attended, std::size_t{rows} * s.heads * s.head_dim);
  }

  void check(const AttentionShape& s, KvEncoding encoding, std::uint32_t position,
             std::uint32_t count, const DecodeShape* decode) {
    const Text text(s, position + count, 60);
    const std::vector<float> kv = decode_kv(encoding, encode_kv(encoding, text.kv));
    std::vector<float> want;
    for (std::uint32_t t = 0; t < count; ++t) {
      const std::vector<float> row = attend_in_double(s, text, kv, position + t);
      want.insert(want.end(), row.begin(), row.end());
    }
    const double bound = s.head_dim > 256 ? 4e-6 : 2e-6;
    EXPECT_LT(relative_error(attend(s, encoding, {{&text, position, count}}, decode), want), bound)
        << s.head_dim << " " << position << " " << count << " " << (decode != nullptr);
  }

 private:
  template <typename T>
  std::uint64_t keep(const std::vector<T>& values) {
    buffers_.push_back(put(values));
    return buffers_.back().address();
  }
  std::vector<DeviceBuffer> buffers_;
};

const AttentionShape kShapes[] = {
    {.heads = 16, .kv_heads = 2, .head_dim = 256, .has_gate = true},
    {.heads = 6, .kv_heads = 2, .head_dim = 72, .has_gate = true},
    {.heads = 3, .kv_heads = 3, .head_dim = 64},
    {.heads = 5, .kv_heads = 1, .head_dim = 8},
};

// Heads beyond 256 values, whose blocks of keys are smaller: the largest, and one with chunks to
// spare.
const AttentionShape kWideShapes[] = {
    {.heads = 8, .kv_heads = 1, .head_dim = 512},
    {.heads = 6, .kv_heads = 2, .head_dim = 264, .has_gate = true, .window = 70, .has_sinks = true},
};

const AttentionShape kSinks{
    .heads = 12, .kv_heads = 2, .head_dim = 64, .window = 70, .has_sinks = true};

TEST_F(AttentionKernelsTest, DecodeAgreesWithTheDefinition) {
  for (const AttentionShape& s : kShapes) {
    const AttendShape chosen =
        attend_shape(s.heads, s.kv_heads, s.head_dim, device().info().subgroup_size, 1000);
    const DecodeShape decode{chosen.lanes, chosen.queries, chosen.splits};
    for (const std::uint32_t position : {0U, 31U, 130U, 900U}) {
      check(s, KvEncoding::kBfloat16, position, 2, &decode);
    }
  }
}

TEST_F(AttentionKernelsTest, DecodeAgreesWithTheDefinitionHoweverItIsCut) {
  for (const DecodeShape& cut :
       {DecodeShape{8, 1, 16}, DecodeShape{8, 2, 1}, DecodeShape{8, 8, 5}}) {
    DecodeShape decode = cut;
    for (; decode.lanes <= std::min(32U, device().info().subgroup_size); decode.lanes *= 2) {
      check(kShapes[1], KvEncoding::kBfloat16, 130, 2, &decode);
    }
  }
  const DecodeShape decode;
  check(kShapes[1], KvEncoding::kFloat32, 77, 1, &decode);
  check(kShapes[1], KvEncoding::kFloat16, 77, 1, &decode);
}

// As many lanes as large devices have, whatever this one's subgroups are; several blocks of keys in
// a split, so that lanes beyond a block's keys show.
TEST_F(AttentionKernelsTest, DecodeAgreesWithTheDefinitionWithManyLanes) {
  for (const DecodeShape& decode :
       {DecodeShape{32, 4, 1, true}, DecodeShape{32, 8, 3, true}, DecodeShape{16, 1, 1, true}}) {
    for (const KvEncoding encoding : {KvEncoding::kFloat32, KvEncoding::kBfloat16}) {
      check(kShapes[0], encoding, 130, 2, &decode);
      check(kSinks, encoding, 130, 2, &decode);
    }
    check(kShapes[1], KvEncoding::kFloat32, 77, 1, &decode);
  }
}

// The same bits whichever way lanes exchange values.
TEST_F(AttentionKernelsTest, WideLanesAreLikeOthers) {
  const Text text(kShapes[1], 150, 71);
  DecodeShape decode{8, 4, 2};
  const std::vector<Part> parts{{&text, 100, 3}};
  const auto narrow = attend(kShapes[1], KvEncoding::kFloat32, parts, &decode);
  decode.has_wide_lanes = true;
  EXPECT_EQ(attend(kShapes[1], KvEncoding::kFloat32, parts, &decode), narrow);
}

TEST_F(AttentionKernelsTest, WideHeads) {
  const auto check_all = [&](const AttentionShape& s, KvEncoding encoding,
                             const DecodeShape& decode) {
    for (const std::uint32_t position : {0U, 15U, 130U}) check(s, encoding, position, 2, &decode);
    check(s, encoding, 0, 70, nullptr);
    check(s, encoding, 61, 9, nullptr);
  };
  for (const AttentionShape& s : kWideShapes) {
    const AttendShape chosen =
        attend_shape(s.heads, s.kv_heads, s.head_dim, device().info().subgroup_size, 300);
    check_all(s, KvEncoding::kBfloat16, {chosen.lanes, chosen.queries, chosen.splits});
  }
  check_all(kWideShapes[0], KvEncoding::kFloat32, {32, 4, 2, true});
  check_all(kWideShapes[1], KvEncoding::kFloat16, {8, 1, 3});
}

// Heads that are no whole chunks of eight values are computed in tiles.
TEST_F(AttentionKernelsTest, HeadsOfOddFours) {
  const auto check_both = [&](std::uint32_t head_dim, KvEncoding encoding) {
    const AttentionShape s{.heads = 4, .kv_heads = 2, .head_dim = head_dim, .window = 40};
    EXPECT_FALSE(has_whole_chunks({.heads = 4, .kv_heads = 2, .head_dim = head_dim}));
    check(s, encoding, 0, 70, nullptr);
    check(s, encoding, 100, 1, nullptr);
  };
  check_both(4, KvEncoding::kBfloat16);
  check_both(12, KvEncoding::kFloat32);
  check_both(12, KvEncoding::kFloat16);
  check_both(268, KvEncoding::kFloat32);
}

TEST_F(AttentionKernelsTest, SinksAndWindows) {
  const AttentionShape base{.heads = 6, .kv_heads = 2, .head_dim = 40};
  const DecodeShape decode{8, 4, 3};
  for (const std::uint32_t window : {0U, 1U, 9U, 64U}) {
    for (const bool has_sinks : {false, true}) {
      AttentionShape s = base;
      s.window = window;
      s.has_sinks = has_sinks;
      SCOPED_TRACE("window " + std::to_string(window) + (has_sinks ? ", sinks" : ""));
      for (const DecodeShape* cut : {static_cast<const DecodeShape*>(nullptr), &decode}) {
        for (const auto& [position, count] :
             {std::pair{0U, 3U}, {8U, 2U}, {61U, 9U}, {150U, 35U}}) {
          check(s, KvEncoding::kFloat32, position, count, cut);
        }
      }
    }
  }
}

// Keys before the window change nothing, whatever they are.
TEST_F(AttentionKernelsTest, KeysBeforeTheWindowAreNeverSeen) {
  const AttentionShape s{.heads = 6, .kv_heads = 2, .head_dim = 40, .window = 20};
  const Text text(s, 150, 72);
  Text bad = text;
  for (std::size_t i = 0; i < 81 * 2 * s.kv_width(); ++i) {
    bad.kv[i] = i % 2 == 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
  }
  const DecodeShape shape{8, 4, 3};
  for (const DecodeShape* decode : {static_cast<const DecodeShape*>(nullptr), &shape}) {
    EXPECT_EQ(attend(s, KvEncoding::kFloat32, {{&bad, 100, 50}}, decode),
              attend(s, KvEncoding::kFloat32, {{&text, 100, 50}}, decode));
  }
}

TEST_F(AttentionKernelsTest, ShapesFitDevices) {
  for (const std::uint32_t subgroup : {8U, 16U, 32U, 64U}) {
    const AttendShape shape = attend_shape(16, 2, 256, subgroup, 4096);
    EXPECT_EQ(shape.lanes, std::min(32U, subgroup));
    EXPECT_EQ(shape.queries, 4U);
    EXPECT_EQ(shape.tiles, 2U);
    EXPECT_EQ(shape.splits, 64U);
  }
  EXPECT_EQ(attend_shape(5, 1, 8, 32, 1).splits, 1U);
  EXPECT_EQ(attend_shape(12, 1, 64, 32, 4096).tiles, 3U);
  EXPECT_EQ(attend_shape(16, 16, 128, 32, 4096).lanes, 16U);
}

TEST_F(AttentionKernelsTest, PromptsAgreeWithTheDefinition) {
  for (const AttentionShape& shape : kShapes) {
    for (const auto& [position, count] : {std::pair{0U, 1U}, {0U, 70U}, {61U, 9U}, {150U, 35U}}) {
      check(shape, KvEncoding::kBfloat16, position, count, nullptr);
    }
  }
  check(kShapes[1], KvEncoding::kFloat32, 20, 30, nullptr);
  check(kShapes[1], KvEncoding::kFloat16, 20, 30, nullptr);
}

TEST_F(AttentionKernelsTest, BitsOfARowDependOnItsSequenceAlone) {
  const AttentionShape& s = kShapes[1];
  const Text text(s, 150, 70);
  const Text other(s, 150, 80);
  const DecodeShape shape{8, 4, 5};
  const std::size_t width = std::size_t{s.heads} * s.head_dim;
  for (const DecodeShape* decode : {static_cast<const DecodeShape*>(nullptr), &shape}) {
    const std::vector<float> whole = attend(s, KvEncoding::kBfloat16, {{&text, 0, 150}}, decode);
    std::vector<float> parts;
    for (const auto& [position, count] : {std::pair{0U, 1U}, {1U, 63U}, {64U, 5U}, {69U, 81U}}) {
      const std::vector<float> rows =
          attend(s, KvEncoding::kBfloat16,
                 {{&other, 3, 7}, {&other, 9, 2, false}, {&text, position, count}}, decode);
      const std::vector<float> mine = part(rows, 9 * width, count * width);
      parts.insert(parts.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(parts, whole);
  }
}

// What later tokens of a batch hold, and what lies behind the tokens seen, changes nothing before.
TEST_F(AttentionKernelsTest, LaterPositionsAreNeverSeen) {
  const AttentionShape& s = kShapes[1];
  const Text text(s, 100, 90);
  Text bad = text;
  for (std::size_t i = 60 * 2 * s.kv_width(); i < bad.kv.size(); ++i) {
    bad.kv[i] = i % 2 == 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
  }
  const std::size_t width = std::size_t{s.heads} * s.head_dim;
  const DecodeShape shape;
  for (const DecodeShape* decode : {static_cast<const DecodeShape*>(nullptr), &shape}) {
    const std::vector<float> good_rows = attend(s, KvEncoding::kFloat32, {{&text, 40, 30}}, decode);
    const std::vector<float> bad_rows = attend(s, KvEncoding::kFloat32, {{&bad, 40, 30}}, decode);
    EXPECT_EQ(part(bad_rows, 0, 20 * width), part(good_rows, 0, 20 * width));
    for (std::size_t i = 20 * width; i < 30 * width; ++i) ASSERT_FALSE(std::isfinite(bad_rows[i]));
  }
}

// Scores so far apart that all but one weight vanish, and equal ones.
TEST_F(AttentionKernelsTest, SharpAndFlatScores) {
  const AttentionShape s{.heads = 2, .kv_heads = 1, .head_dim = 16};
  for (const float magnitude : {0.0F, 300.0F}) {
    Text text(s, 90, 95);
    for (float& q : text.q) q *= magnitude;
    const DecodeShape shape;
    for (const DecodeShape* decode : {static_cast<const DecodeShape*>(nullptr), &shape}) {
      const std::vector<float> got = attend(s, KvEncoding::kFloat32, {{&text, 80, 10}}, decode);
      std::vector<float> want;
      for (std::uint32_t t = 80; t < 90; ++t) {
        const std::vector<float> row = attend_in_double(s, text, text.kv, t);
        want.insert(want.end(), row.begin(), row.end());
      }
      // A score of a thousand has an error of 2^-14 in float32.
      EXPECT_LT(relative_error(got, want), magnitude == 0.0F ? 1e-6 : 1e-3);
    }
  }
}

}  // namespace
}  // namespace moepack::attention_kernels_test
