// The sizes of models that their makers published, and what they would take here: the one table of
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "formats/model_dir.h"
#include "runtime/advice/speed_prediction.h"

namespace moepack {

// Origin of the numbers: config.json of each model on the Hugging Face hub, from which parameters
// and bytes follow by arithmetic. `other_parameters` counts everything but routed experts,
// embedding and head included, without the vision tower and the block that predicts further tokens.
struct PublishedModel {
  std::string_view name;
  std::uint32_t moe_layers;
  std::uint32_t experts;  // of a layer
  std::uint32_t experts_per_token;
  std::uint32_t hidden_size;
  std::uint32_t expert_width;
  double other_parameters;
  std::uint64_t key_value_bytes;  // of a token, in bf16
  std::uint64_t state_bytes;      // of a sequence, whatever its length
  bool is_run_here;               // its family is among those that moepack runs
};
std::span<const PublishedModel> published_models();

// Bits of a weight in groups of 64 with scale and bias of 16 bits.
constexpr double stored_bits(std::uint32_t bits) { return bits + 32.0 / 64; }

struct PublishedSize {
  double record_bytes = 0;    // an expert
  double pack_bytes = 0;      // all experts
  double resident_bytes = 0;  // everything else, in 4 bits
  double state_bytes = 0;     // keys, values and recurrent states of a sequence
  double floor_bytes = 0;     // of memory: residents, states, scratch, one token's experts
};
// Experts in `bits`; a sequence of `context` tokens.
PublishedSize published_size(const PublishedModel& model, std::uint32_t bits,
                             std::uint64_t context);

struct PublishedFit {
  PublishedSize size;
  bool fits_memory = false;
  bool fits_disk = false;
  double cache_share = 0;  // of the pack, 0 … 1
  // At the hit rate of an even use of experts, which is cache_share; and with nothing in memory.
  SpeedPrediction usual;
  SpeedPrediction cold;
};
struct Machine {
  double available_bytes = 0;  // of memory
  double free_bytes = 0;       // of the disk
  ReadRates disk;
};
// `compute`: measured with experts of so many bits. Pure.
PublishedFit published_fit(const PublishedModel& model, std::uint32_t bits, std::uint64_t context,
                           const Machine& machine, const ComputeRates& compute);

// A model directory of one layer with the model's shapes in `bits`, made of manifests alone, for
// measure_compute_rates().
ModelDir sample_of(const PublishedModel& model, std::uint32_t bits);

}  // namespace moepack
