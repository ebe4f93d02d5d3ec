#include "runtime/tokenizer/tokenizer_bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <string>

#include "formats/base/utf8.h"

namespace moepack {
namespace {

// A hash of 64 bits. Source: splitmix64's finalizer (Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Candidate pairs, each by its rank and its place; the lowest comes first.
class HeapQueue {
 public:
  bool is_empty() const { return heap_.empty(); }
  void push(std::uint32_t rank, std::size_t at) {
    heap_.push_back(static_cast<std::uint64_t>(rank) << 32U | at);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  std::uint64_t pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const std::uint64_t lowest = heap_.back();
    heap_.pop_back();
    return lowest;
  }

 private:
  std::vector<std::uint64_t> heap_;
};

// The same for words of megabytes: places of a rank nearly always come in their order, so that a
// list for each rank is in order by itself; what comes out of order waits in a heap.
class RankQueue {
 public:
  explicit RankQueue(std::size_t ranks) : list_of_(ranks, kNone) {}
  bool is_empty() const { return ranks_.empty() && other_ == kNoEntry; }
  void push(std::uint32_t rank, std::size_t at) {
    std::uint32_t& list = list_of_[rank];
    if (list == kNone) {
      list = static_cast<std::uint32_t>(lists_.size());
      lists_.emplace_back();
    }
    List& places = lists_[list];
    if (places.next == places.at.size()) {
      places = {};
      ranks_.push(rank);
    } else if (places.at.back() > at) {
      return push_other(rank, at);
    }
    places.at.push_back(static_cast<std::uint32_t>(at));
  }
  std::uint64_t pop() {
    const std::uint64_t first = ranks_.empty() ? kNoEntry : first_of_lists();
    if (first > other_) return pop_other();
    List& places = lists_[list_of_[first >> 32U]];
    if (++places.next == places.at.size()) {
      places = {};
      ranks_.pop();
    }
    return first;
  }

 private:
  static constexpr std::uint32_t kNone = ~0U;
  static constexpr std::uint64_t kNoEntry = ~0ULL;
  struct List {
    std::vector<std::uint32_t> at;  // ascending
    std::size_t next = 0;           // those before have been taken
  };

  std::uint64_t first_of_lists() const {
    const std::uint32_t rank = ranks_.top();
    const List& places = lists_[list_of_[rank]];
    return static_cast<std::uint64_t>(rank) << 32U | places.at[places.next];
  }
  void push_other(std::uint32_t rank, std::size_t at) {
    if (other_ != kNoEntry) others_.push(static_cast<std::uint32_t>(other_ >> 32U), other_ & ~0U);
    others_.push(rank, at);
    other_ = others_.pop();
  }
  std::uint64_t pop_other() {
    const std::uint64_t lowest = other_;
    other_ = others_.is_empty() ? kNoEntry : others_.pop();
    return lowest;
  }

  std::vector<std::uint32_t> list_of_;  // by rank
  std::vector<List> lists_;
  // Ranks whose list is not empty.
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;
  HeapQueue others_;
  std::uint64_t other_ = kNoEntry;  // the lowest of the others, taken out of the heap
};

}  // namespace

Result<BpeModel> BpeModel::build(const TokenizerSpec& spec, const TokenIndex& index,
                                 const Vocabulary& vocab, const Where& where) {
  BpeModel model;
  MOE_RETURN_IF_ERROR(model.fill_symbols(spec, vocab, where));
  MOE_RETURN_IF_ERROR(model.fill_merges(spec, index, where));
  return model;
}

Status BpeModel::fill_symbols(const TokenizerSpec& spec, const Vocabulary& vocab,
                              const Where& where) {
  byte_ids_.fill(-1);
  ignore_merges_ = spec.ignore_merges;
  over_characters_ = spec.symbols == SymbolKind::kCharacters;
  lengths_.resize(static_cast<std::size_t>(vocab.size()));
  for (const auto& [text, id] : spec.vocab) {
    if (!over_characters_ && !vocab.is_byte_level(id)) continue;
    const int fallback = over_characters_ ? byte_of_fallback_token(text) : -1;
    const std::string_view bytes = over_characters_ ? text : vocab.bytes(id);
    lengths_[static_cast<std::size_t>(id)] =
        fallback >= 0 ? 1 : static_cast<std::uint32_t>(bytes.size());
    if (fallback >= 0) {
      byte_ids_[static_cast<std::size_t>(fallback)] = id;
    } else if (!over_characters_ && bytes.size() == 1) {
      byte_ids_[static_cast<unsigned char>(bytes[0])] = id;
    } else if (over_characters_ && !bytes.empty()) {
      const char* at = bytes.data();
      const char32_t character = next_character(&at);
      if (at == bytes.data() + bytes.size()) characters_.emplace(character, id);
    }
    if (spec.ignore_merges) whole_words_.emplace(bytes, id);
  }
  const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
  if (!over_characters_ || missing == byte_ids_.end()) return Status::ok();
  return unsupported(where, "model.vocab has no token for byte " +
                                std::to_string(missing - byte_ids_.begin()) +
                                ", which model.byte_fallback needs");
}

Status BpeModel::fill_merges(const TokenizerSpec& spec, const TokenIndex& index,
                             const Where& where) {
  if (spec.merges.size() > std::numeric_limits<std::int32_t>::max()) {
    return unsupported(where, "model.merges has more than 2^31 entries");
  }
  merges_.resize(std::bit_ceil(spec.merges.size() * 2 + 2));
  constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> first_rank(spec.equal_ranks ? lengths_.size() : 0, kNoRank);
  std::string joined;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    joined.assign(left).append(right);
    std::int32_t ids[3];
    const std::string* texts[3] = {&left, &right, &joined};
    for (int i = 0; i < 3; ++i) {
      ids[i] = index.find(*texts[i]);
      if (ids[i] < 0) {
        return corrupt(where, "model.merges: entry " + std::to_string(rank) +
                                  " needs the token \"" + printable(*texts[i], 64) +
                                  "\", which is not in model.vocab");
      }
      if (over_characters_ && byte_of_fallback_token(*texts[i]) >= 0) {
        return unsupported(where, "model.merges: entry " + std::to_string(rank) +
                                      " merges with the token \"" + *texts[i] + "\" of a byte");
      }
    }
    auto used_rank = static_cast<std::uint32_t>(rank);
    if (spec.equal_ranks) {
      std::uint32_t& first = first_rank[static_cast<std::size_t>(ids[2])];
      first = std::min(first, used_rank);
      used_rank = first;
    }
    const std::uint64_t pair =
        pair_of(static_cast<std::uint32_t>(ids[0]), static_cast<std::uint32_t>(ids[1]));
    // A pair that stands twice has its last rank, as in the reference.
    merges_[slot_of(pair)] = {
        .pair = pair, .rank = used_rank, .id = static_cast<std::uint32_t>(ids[2])};
  }
  return Status::ok();
}

std::size_t BpeModel::slot_of(std::uint64_t pair) const {
  const std::size_t mask = merges_.size() - 1;
  std::size_t slot = static_cast<std::size_t>(mix(pair)) & mask;
  while (merges_[slot].pair != pair && merges_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

const BpeModel::Merge* BpeModel::find(std::uint32_t left, std::uint32_t right) const {
  const Merge& merge = merges_[slot_of(pair_of(left, right))];
  return merge.pair == kNoPair ? nullptr : &merge;
}

Status BpeModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) {
      ids.push_back(whole->second);
      return Status::ok();
    }
  }
  for (const char byte : over_characters_ ? std::string_view() : word) {
    const auto value = static_cast<unsigned char>(byte);
    if (byte_ids_[value] >= 0) continue;
    return unsupported(Where{}, "the tokenizer's vocabulary has no token for byte " +
                                    std::to_string(value) + " of the text");
  }
  if (word.size() <= kShortWord) {
    encode_short(word, ids);
  } else if (word.size() <= kLongWord) {
    HeapQueue queue;
    encode_long(word, queue, ids);
  } else {
    RankQueue queue(merges_.size());  // ranks are below half of that
    encode_long(word, queue, ids);
  }
  return Status::ok();
}

template <typename Add>
void BpeModel::first_symbols(std::string_view word, Add add) const {
  const auto add_byte = [&](std::size_t at) {
    add(static_cast<std::uint32_t>(byte_ids_[static_cast<unsigned char>(word[at])]), at, 1);
  };
  if (!over_characters_) {
    for (std::size_t i = 0; i < word.size(); ++i) add_byte(i);
    return;
  }
  const char* at = word.data();
  while (at < word.data() + word.size()) {
    const auto begin = static_cast<std::size_t>(at - word.data());
    const auto found = characters_.find(next_character(&at));
    const std::size_t end = static_cast<std::size_t>(at - word.data());
    if (found != characters_.end()) {
      add(static_cast<std::uint32_t>(found->second), begin, end - begin);
    } else {
      for (std::size_t i = begin; i < end; ++i) add_byte(i);
    }
  }
}

// Looks for the lowest rank in all pairs after every merge, which is quadratic, but the fastest way
// for words.
void BpeModel::encode_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::array<std::uint32_t, kShortWord> symbols;
  std::array<const Merge*, kShortWord> pairs;  // pairs[i]: symbols i and i + 1
  std::size_t count = 0;
  first_symbols(word, [&](std::uint32_t id, std::size_t, std::size_t) { symbols[count++] = id; });
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = count;
    std::uint32_t lowest = std::numeric_limits<std::uint32_t>::max();
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && pairs[i]->rank < lowest) {
        lowest = pairs[i]->rank;
        best = i;
      }
    }
    if (best == count) break;
    symbols[best] = pairs[best]->id;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = find(symbols[best], symbols[best + 1]);
  }
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(symbols[i]));
}

// Works with a queue of candidate pairs, and with one number for each byte of the word. That number
// is the id where a symbol starts; kTag and the start of the symbol at the last byte of a longer
// one; and kTag elsewhere inside a symbol. So the symbol to the left ends one byte before this one,
// and the one to the right starts behind the bytes of this one. A queued pair is stale unless the
// symbols there still have its rank.
template <typename Queue>
void BpeModel::encode_long(std::string_view word, Queue& queue,
                           std::vector<std::int32_t>& ids) const {
  constexpr std::uint32_t kTag = 1U << 31;
  const std::size_t size = word.size();
  std::vector<std::uint32_t> slots(size);
  first_symbols(word, [&](std::uint32_t id, std::size_t at, std::size_t bytes) {
    std::fill_n(slots.begin() + static_cast<std::ptrdiff_t>(at), bytes, kTag);
    if (bytes > 1) slots[at + bytes - 1] = kTag | static_cast<std::uint32_t>(at);
    slots[at] = id;
  });
  const auto length = [this](std::uint32_t id) { return lengths_[id]; };
  const auto push = [&](const Merge* merge, std::size_t at) {
    if (merge != nullptr) queue.push(merge->rank, at);
  };
  for (std::size_t i = 0; i < size;) {
    const std::size_t next = i + length(slots[i]);
    if (next >= size) break;
    push(find(slots[i], slots[next]), i);
    i = next;
  }
  while (!queue.is_empty()) {
    const std::uint64_t top = queue.pop();
    const auto left = static_cast<std::size_t>(top & 0xFFFFFFFFU);
    if ((slots[left] & kTag) != 0) continue;
    const std::size_t right = left + length(slots[left]);
    if (right >= size) continue;
    const std::size_t end = right + length(slots[right]);
    const Merge* merge = find(slots[left], slots[right]);
    if (merge == nullptr || merge->rank != top >> 32) continue;

    slots[right] = kTag;
    slots[end - 1] = kTag | static_cast<std::uint32_t>(left);
    slots[left] = merge->id;
    if (end < size) push(find(slots[left], slots[end]), left);
    if (left > 0) {
      const std::uint32_t before = slots[left - 1];
      const std::size_t previous = (before & kTag) != 0 ? before & ~kTag : left - 1;
      push(find(slots[previous], slots[left]), previous);
    }
  }
  for (std::size_t i = 0; i < size; i += length(slots[i])) {
    ids.push_back(static_cast<std::int32_t>(slots[i]));
  }
}

}  // namespace moepack
