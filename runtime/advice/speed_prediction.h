// How many tokens a second a model will generate, from what a token reads and from measured rates:
// arithmetic alone.
//
// Of a token only a layer's missing experts come from the disk; that layer's experts are computed
// meanwhile, but the next layer cannot ask for its own before this one is done. So, with L layers,
// K experts of S bytes a token in each, hit rate h and m of the K missing,
//
//   t      = D / R_residents + states / R_memory + L * sum over m of P(m) * t_layer(m)
//   t_layer(m) = max(K S / R_experts, t_read(m) + S / R_experts)   m > 0: the last record to come
//   t_layer(0) = K S / R_experts                                   is computed after it came
//   t_read(m)  = S / disk(1) + (m - 1) S / disk(K)                 disk(n): rate with n reads at
//   once P(m)   = binomial(K, m) (1 - h)^m h^(K - m)                    misses fall independently
//
// It is the overlapped limit, bytes missed / disk against bytes computed / memory, taken in every
// layer instead of once for the token, because routing keeps layers apart.
//
// Where A experts of a layer are read ahead (model/expert_lookahead.h), of which a share g is used,
// a layer that misses m begins with n = A m / K reads that the mixer before it has hidden in part:
//
//   t_ahead  = max(0, n S / disk(K) - t_mixer)
//   t_read   = t_ahead + (m - g n) S / disk(K), and the first read's latency where t_ahead is 0
#pragma once

#include <cstdint>

#include "runtime/advice/token_work.h"

namespace moepack {

// Bytes a second, all threads together.
struct ComputeRates {
  double residents = 0;  // of products of one token with the residents' matrices
  double experts = 0;    // of the experts' stage, records in memory
  double memory = 0;     // of plain reading
};
struct ReadRates {
  double one = 0;   // of random reads as large as a record, one at a time
  double many = 0;  // as many at a time as a token uses experts of a layer
  bool is_known() const { return one > 0 && many > 0; }
};

// Of the next layer's experts, as this layer's state lets them be guessed.
struct ReadAhead {
  std::uint32_t experts = 0;  // guessed for a token; 0: none
  double used = 0.8;          // share of them that is used (docs/decisions.md, 51), 0 … 1
};

struct SpeedPrediction {
  double hit_rate = 0;      // 0 … 1
  double missed_bytes = 0;  // a token
  double tokens_per_second = 0;
  double disk_share = 0;  // of the time, during which more than computing waits for the disk
};

// Seconds of one layer's experts, from the end of its mixer, with `missing` of the token's experts
// on the disk when the layer before asked for what it guessed.
double layer_seconds(const TokenWork& work, const ComputeRates& compute, const ReadRates& disk,
                     const ReadAhead& ahead, std::uint32_t missing);

// At a hit rate of 0 … 1. Rates of the disk are looked at only where something is missed; where
// they are needed and unknown, or a rate of computing is 0, tokens_per_second is 0. Pure.
SpeedPrediction predict_speed(const TokenWork& work, const ComputeRates& compute,
                              const ReadRates& disk, const ReadAhead& ahead, double hit_rate);

}  // namespace moepack
