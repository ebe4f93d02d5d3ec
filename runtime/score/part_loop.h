// How the work on one row of logits is shared among threads: a vocabulary is cut into parts of one
// size, and what is added up over all of it is added up part by part, in their order. So no result
// depends on who computes which part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace moepack {

// Calls body(i) for every i < count, each once, in any order and on any threads, and returns when
// all are done. An empty one stands for a plain loop in the calling thread.
using PartLoop =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& body)>;

// Some 20 us of exponentials: worth a thread's while, and a vocabulary of 248k has 61 of them.
constexpr std::size_t kVocabPart = 4096;

constexpr std::size_t vocab_parts(std::size_t size) { return (size + kVocabPart - 1) / kVocabPart; }

// Calls body(part, begin, end) for the parts [begin, end) of [0, size), by `loop`.
template <typename Body>
void for_each_vocab_part(std::size_t size, const PartLoop& loop, const Body& body) {
  const auto run = [&](std::size_t part) {
    const std::size_t begin = part * kVocabPart;
    body(part, begin, std::min(begin + kVocabPart, size));
  };
  const std::size_t parts = vocab_parts(size);
  if (loop && parts > 1) return loop(parts, run);
  for (std::size_t part = 0; part < parts; ++part) run(part);
}

// The sum of the parts' sum(begin, end).
template <typename Sum>
double sum_by_parts(std::size_t size, const PartLoop& loop, const Sum& sum) {
  std::vector<double> sums(vocab_parts(size));
  for_each_vocab_part(size, loop, [&](std::size_t part, std::size_t begin, std::size_t end) {
    sums[part] = sum(begin, end);
  });
  double total = 0.0;
  for (const double part : sums) total += part;
  return total;
}

}  // namespace moepack
