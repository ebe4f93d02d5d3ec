#include "runtime/placement/slot_planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace moepack {
namespace {

struct ScoredExpert {
  std::uint64_t score = 0;
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
};

// The most worthy first.
bool is_before(const ScoredExpert& a, const ScoredExpert& b) {
  if (a.score != b.score) return a.score > b.score;
  if (a.score == 0) return std::tie(a.expert, a.layer) < std::tie(b.expert, b.layer);
  return std::tie(a.layer, a.expert) < std::tie(b.layer, b.expert);
}

std::vector<ScoredExpert> ordered(const SlotScores& scores,
                                  std::span<const std::uint64_t> slot_bytes) {
  std::vector<ScoredExpert> all;
  for (std::uint32_t l = 0; l < scores.size(); ++l) {
    if (slot_bytes[l] == 0) continue;
    for (std::uint32_t e = 0; e < scores[l].size(); ++e) all.push_back({scores[l][e], l, e});
  }
  std::sort(all.begin(), all.end(), is_before);
  return all;
}

// Hot and cold experts whose slots have one size.
struct SlotClass {
  std::vector<ScoredExpert> out;  // hot, the least worthy first
  std::vector<ScoredExpert> in;   // cold, the most worthy first
};

std::map<std::uint64_t, SlotClass> slot_classes(const HotSet& hot, const SlotScores& scores,
                                                std::span<const std::uint64_t> slot_bytes) {
  std::map<std::uint64_t, SlotClass> classes;
  for (const ScoredExpert& e : ordered(scores, slot_bytes)) {
    SlotClass& slots = classes[slot_bytes[e.layer]];
    const auto& ids = hot[e.layer];
    const bool is_hot = std::binary_search(ids.begin(), ids.end(), e.expert);
    (is_hot ? slots.out : slots.in).push_back(e);
  }
  for (auto& [bytes, slots] : classes) std::reverse(slots.out.begin(), slots.out.end());
  return classes;
}

struct Candidate {
  std::uint64_t gain = 0;
  SlotExchange exchange;
};

}  // namespace

HotSet plan_hot_set(const SlotScores& scores, std::span<const std::uint64_t> slot_bytes,
                    std::uint64_t budget) {
  HotSet set(scores.size());
  for (const ScoredExpert& e : ordered(scores, slot_bytes)) {
    if (slot_bytes[e.layer] > budget) continue;
    budget -= slot_bytes[e.layer];
    set[e.layer].push_back(e.expert);
  }
  for (auto& ids : set) std::sort(ids.begin(), ids.end());
  return set;
}

std::vector<SlotExchange> plan_exchange(const HotSet& hot, const SlotScores& scores,
                                        std::span<const std::uint64_t> slot_bytes, double rate) {
  std::vector<Candidate> candidates;
  std::uint64_t num_hot = 0;
  for (const auto& [bytes, slots] : slot_classes(hot, scores, slot_bytes)) {
    num_hot += slots.out.size();
    const std::size_t pairs = std::min(slots.out.size(), slots.in.size());
    for (std::size_t i = 0; i < pairs && slots.in[i].score > slots.out[i].score; ++i) {
      const ScoredExpert& out = slots.out[i];
      const ScoredExpert& in = slots.in[i];
      candidates.push_back({in.score - out.score, {out.layer, out.expert, in.layer, in.expert}});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
  const double most = std::ceil(std::clamp(rate, 0.0, 1.0) * static_cast<double>(num_hot));
  candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(most)));
  std::vector<SlotExchange> exchanges;
  for (const Candidate& c : candidates) exchanges.push_back(c.exchange);
  return exchanges;
}

void apply_exchange(std::span<const SlotExchange> exchanges, HotSet& hot) {
  for (const SlotExchange& x : exchanges) {
    auto& from = hot[x.layer_out];
    from.erase(std::lower_bound(from.begin(), from.end(), x.expert_out));
    auto& to = hot[x.layer_in];
    to.insert(std::lower_bound(to.begin(), to.end(), x.expert_in), x.expert_in);
  }
}

void add_change(const HotChange& part, HotChange& sum) {
  sum.is_active = sum.is_active || part.is_active;
  sum.rate = part.rate;
  sum.candidates += part.candidates;
  sum.most += part.most;
  sum.exchanged += part.exchanged;
  sum.hot += part.hot;
  sum.layers += part.layers;
}

}  // namespace moepack
