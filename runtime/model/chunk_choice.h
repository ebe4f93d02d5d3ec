// How many tokens of a prompt are computed at once where the user does not say it.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/model/memory_plan.h"
#include "runtime/model/memory_remedy.h"

namespace moepack {

// Largest first. More tokens share what each expert's record costs to read; what they need besides
// is memory for their activations.
constexpr std::array<std::uint64_t, 7> kAutomaticChunks{2048, 1024, 512, 256, 128, 64, 32};
// Where the cache holds every expert nothing is read again, and more tokens than this gain nothing.
constexpr std::uint64_t kMostCachedChunk = 512;

// The largest of kAutomaticChunks, at most kMostCachedChunk where the cache then holds every
// expert, with which the request fits and whose activations leave the expert cache alone: they take
// at most an eighth of its bytes (beyond kMostCachedChunk a sixteenth), or the cache holds every
// expert, or its size was asked for. Where there is none such, the smallest.
std::uint64_t automatic_chunk(const MemoryRequest& request, const PlanOf& plan_of);

}  // namespace moepack
