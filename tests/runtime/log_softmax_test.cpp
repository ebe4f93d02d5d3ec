// Probabilities of whole vocabularies, cut into parts that any thread may compute.
#include "runtime/score/log_softmax.h"

#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/model/for_each_index.h"
#include "runtime/score/kl_stats.h"
#include "runtime/score/kld_base.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::log_softmax_test {
namespace {

using test::expect_error;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The definition, summed in long double.
double log_z_of(const std::vector<float>& logits) {
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  return static_cast<double>(std::log(sum));
}

PartLoop backwards() {
  return [](std::size_t count, const std::function<void(std::size_t)>& body) {
    for (std::size_t i = count; i > 0; --i) body(i - 1);
  };
}

PartLoop shared_by(ThreadPool& pool) {
  return [&pool](std::size_t count, const std::function<void(std::size_t)>& body) {
    for_each_index(pool, count, body);
  };
}

// Sizes around the ends of parts.
const std::vector<std::size_t> kSizes = {
    1, 2, kVocabPart, kVocabPart + 1, 100'003, 3 * kVocabPart - 1};

TEST(LogNormalizer, IsTheDefinitionsWhoeverComputesIt) {
  ThreadPool pool(3);
  for (const std::size_t size : kSizes) {
    std::vector<float> logits = random_logits(size, static_cast<unsigned>(size));
    const std::size_t top = size - 1;
    logits[top] = 30;
    ASSERT_OK_AND_ASSIGN(const LogNormalizer plain, log_normalizer(logits));
    EXPECT_NEAR(plain.log_z, log_z_of(logits), 1e-13) << size;
    EXPECT_EQ(plain.top, top);
    EXPECT_EQ(plain.max, 30);
    for (const PartLoop& loop : {backwards(), shared_by(pool)}) {
      ASSERT_OK_AND_ASSIGN(const LogNormalizer shared, log_normalizer(logits, loop));
      EXPECT_EQ(shared.log_z, plain.log_z) << size;
      EXPECT_EQ(shared.top, plain.top);
    }
  }
}

TEST(LogNormalizer, OfEqualLogitsTheLowestIdLeadsAcrossParts) {
  std::vector<float> logits(3 * kVocabPart, 0.0F);
  logits[kVocabPart + 7] = logits[2 * kVocabPart + 1] = 2;
  ASSERT_OK_AND_ASSIGN(const LogNormalizer normalizer, log_normalizer(logits, backwards()));
  EXPECT_EQ(normalizer.top, kVocabPart + 7);
}

TEST(LogNormalizer, NamesTheFirstThatIsNoLogit) {
  std::vector<float> logits(3 * kVocabPart, 0.0F);
  logits[2 * kVocabPart + 5] = NAN;
  logits[kVocabPart + 3] = kInfinity;
  expect_error(log_normalizer(logits, backwards()).status(), StatusCode::kCorrupt,
               {"token " + std::to_string(kVocabPart + 3), "infinite"});
  expect_error(log_normalizer(std::vector<float>(2 * kVocabPart, -kInfinity)).status(),
               StatusCode::kCorrupt, {"no token has a finite logit"});
  expect_error(log_normalizer({}).status(), StatusCode::kCorrupt, {"no token"});
}

TEST(KlDivergence, IsTheDefinitionsWhoeverComputesIt) {
  ThreadPool pool(3);
  for (const std::size_t size : kSizes) {
    const std::vector<float> base = random_logits(size, 1);
    const std::vector<float> model = random_logits(size, 2);
    const LogProbs p0{base, log_z_of(base)};
    const LogProbs p{model, log_z_of(model)};
    long double wanted = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const long double log_p0 = static_cast<long double>(base[i]) - p0.log_z;
      wanted += std::exp(log_p0) * (log_p0 - (static_cast<long double>(model[i]) - p.log_z));
    }
    const double plain = kl_divergence(p0, kNoFloor, p);
    EXPECT_NEAR(plain, static_cast<double>(wanted), 1e-12) << size;
    for (const PartLoop& loop : {backwards(), shared_by(pool)}) {
      EXPECT_EQ(kl_divergence(p0, kNoFloor, p, loop), plain) << size;
    }
  }
}

// A probability too small for a double is none, also where the model gives none.
TEST(KlDivergence, WhatTheBaseDoesNotGiveAddsNothing) {
  const std::vector<float> base = {0, -2000, -kInfinity};
  const std::vector<float> model = {0, -kInfinity, -kInfinity};
  EXPECT_EQ(kl_divergence({base, 0}, kNoFloor, {model, 0}), 0.0);
  const std::vector<float> even = {0, 0, -kInfinity};
  EXPECT_EQ(kl_divergence({even, std::log(2.0)}, kNoFloor, {model, 0}), kInfinity);
}

TEST(KldBase, HasTheSameBytesWhoeverComputesThem) {
  const test::TempDir dir;
  ThreadPool pool(3);
  constexpr std::size_t kVocab = 2 * kVocabPart + 11;
  const std::vector<std::int32_t> tokens = {5, 6, 7, 8};
  const std::vector<float> logits = random_logits(kVocab, 3);
  std::vector<std::vector<float>> rows;
  for (const PartLoop& loop : {PartLoop{}, backwards(), shared_by(pool)}) {
    const auto path = dir / (std::to_string(rows.size()) + ".kld");
    ASSERT_OK_AND_ASSIGN(KldBaseWriter writer,
                         KldBaseWriter::create(path, 4, kVocab, tokens, loop));
    ASSERT_OK(writer.add(logits));
    ASSERT_OK(writer.commit());
    ASSERT_OK_AND_ASSIGN(KldBaseReader reader, KldBaseReader::open(path));
    rows.emplace_back(kVocab);
    ASSERT_OK(reader.read_row(0, rows.back(), loop));
    KlAccumulator accumulator(loop);
    ASSERT_OK(accumulator.add_log_probs(rows.back(), logits, 3));
    EXPECT_LT(accumulator.summary().kld.value, 1e-4);
    EXPECT_EQ(accumulator.summary().same_top.value, 1.0);
  }
  EXPECT_EQ(rows[1], rows[0]);
  EXPECT_EQ(rows[2], rows[0]);
}

}  // namespace
}  // namespace moepack::log_softmax_test
