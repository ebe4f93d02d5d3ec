// What a quality ledger says on one screen: methods, samples, mean errors, the worst experts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convert/report/quality_ledger.h"
#include "formats/calibration/calibration.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

struct MethodCount {
  std::string method;
  std::uint64_t projections = 0;
};

// Arithmetic means of the relative errors of one kind of projection.
struct MeanQuality {
  std::uint64_t matrices = 0;
  double before = 0;
  double after = 0;
};

struct QualityEntry {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  Projection projection = Projection::kGate;
  std::string format;  // "q2 g64"
  std::string method;
  std::uint64_t samples = 0;  // 0 where the ledger has none
  QuantError error = QuantError::kWeight;
  float before = 0;  // NaN when the ledger does not say
  float after = 0;
};

struct QualitySummary {
  QuantError error = QuantError::kWeight;  // of the ledger
  std::vector<MethodCount> methods;        // those in use, in the ledger's order
  bool has_samples = false;                // the rest of the block is 0 without
  std::uint64_t samples_min = 0;           // of all experts of all layers
  double samples_median = 0;
  std::uint64_t samples_max = 0;
  std::uint64_t starved_experts = 0;                  // fewer than kStarvedTokens, unseen included
  std::uint64_t unseen_experts = 0;                   // no token at all
  std::array<MeanQuality, kProjections> projections;  // matrices with the ledger's kind of error
  // Matrices of an output ledger that saw no held-out token have weight errors, and this mean of
  // their own.
  MeanQuality weight_error;
  std::vector<QualityEntry> worst;  // by falling `after`; equal ones by layer, expert, projection
};

// `ledger` may be from outside: layers that are not the pack's, or are there twice, are left out.
QualitySummary summarize_quality(const QualityLedger& ledger, const PackManifest& pack,
                                 std::size_t num_worst);

}  // namespace moepack
