#include "formats/base/json.h"

#include <iterator>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <xxhash.h>
#include <nlohmann/json.hpp>

namespace moepack {
namespace {

// Iterates over text and reports how far the parser has come.
struct CountingIterator {
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;

  const char* at = nullptr;
  const char** progress = nullptr;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    *progress = at;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
};

struct KeyHash {
  XXH128_hash_t bits;
  bool operator==(const KeyHash& other) const {
    return bits.low64 == other.bits.low64 && bits.high64 == other.bits.high64;
  }
};
struct KeyHasher {
  std::size_t operator()(const KeyHash& key) const { return key.bits.low64; }
};

}  // namespace

// Turns nlohmann's SAX callbacks into JsonVisitor's and keeps the first error.
class JsonEventAdapter {
 public:
  JsonEventAdapter(const Where& where, const char* begin, const char* const* progress,
                   JsonVisitor& visitor)
      : where_(where), begin_(begin), progress_(progress), visitor_(visitor) {}

  // NOLINTBEGIN(readability-identifier-naming): names are nlohmann's.
  bool null() { return keep(visitor_.on_null()); }
  bool boolean(bool value) { return keep(visitor_.on_bool(value)); }
  bool number_integer(std::int64_t value) { return keep(visitor_.on_negative(value)); }
  bool number_unsigned(std::uint64_t value) { return keep(visitor_.on_unsigned(value)); }
  bool number_float(double value, const std::string& /*literal*/) {
    return keep(visitor_.on_number(value));
  }
  bool string(std::string& value) { return keep(visitor_.on_string(value)); }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return false; }
  bool start_object(std::size_t /*count*/) {
    keys_.emplace_back();
    return enter() && keep(visitor_.begin_object());
  }
  bool key(std::string& name) {
    const KeyHash hash{XXH3_128bits(name.data(), name.size())};
    if (!keys_.back().insert(hash).second) {
      return keep(corrupt(at(offset()), "key \"" + printable(name) + "\" stands twice"));
    }
    return keep(visitor_.on_key(name));
  }
  bool end_object() {
    --depth_;
    keys_.pop_back();
    return keep(visitor_.end_object());
  }
  bool start_array(std::size_t /*count*/) { return enter() && keep(visitor_.begin_array()); }
  bool end_array() {
    --depth_;
    return keep(visitor_.end_array());
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    std::string what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    if (const auto colon = what.find(": "); colon != std::string::npos) {
      what = what.substr(colon + 2);
    }
    return keep(corrupt(at(base() + position), "not valid JSON: " + printable(what)));
  }
  // NOLINTEND(readability-identifier-naming)

  const Status& status() const { return status_; }

 private:
  std::uint64_t base() const { return where_.offset.value_or(0); }
  std::uint64_t offset() const { return base() + static_cast<std::uint64_t>(*progress_ - begin_); }
  Where at(std::uint64_t offset) const {
    return Where{.file = where_.file, .tensor = where_.tensor, .offset = offset};
  }
  bool keep(Status status) {
    visitor_.position_ = offset();
    if (status.is_ok()) return true;
    status_ = std::move(status);
    return false;
  }
  bool enter() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return keep(corrupt(at(offset()),
                        "JSON is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels"));
  }

  Where where_;
  const char* begin_;
  const char* const* progress_;
  JsonVisitor& visitor_;
  int depth_ = 0;
  std::vector<std::unordered_set<KeyHash, KeyHasher>> keys_;
  Status status_;
};

Status visit_json(std::string_view text, const Where& where, JsonVisitor& visitor) {
  // The library takes a NUL for the end of the text and would not look at what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const std::uint64_t at = where.offset.value_or(0) + nul;
    return corrupt({.file = where.file, .tensor = where.tensor, .offset = at},
                   "not valid JSON: a NUL byte");
  }
  const char* progress = text.data();
  JsonEventAdapter adapter(where, text.data(), &progress, visitor);
  const CountingIterator first{text.data(), &progress};
  const CountingIterator last{text.data() + text.size(), &progress};
  if (nlohmann::json::sax_parse(first, last, &adapter)) return Status::ok();
  if (!adapter.status().is_ok()) return adapter.status();
  return corrupt(where, "not valid JSON");
}

namespace {

// Builds a tree from events.
template <typename Json>
class TreeBuilder : public JsonVisitor {
 public:
  TreeBuilder(std::string_view file, std::size_t most) : file_(file), most_(most) {}
  Json take() { return std::move(root_); }

  Status on_null() override { return add(nullptr); }
  Status on_bool(bool value) override { return add(value); }
  Status on_unsigned(std::uint64_t value) override { return add(value); }
  Status on_number(double value) override { return add(value); }
  Status on_string(std::string& value) override { return add(std::move(value)); }
  Status begin_object() override { return open(Json::object()); }
  Status on_key(std::string& key) override {
    key_ = std::move(key);
    return Status::ok();
  }
  Status end_object() override { return close(); }
  Status begin_array() override { return open(Json::array()); }
  Status end_array() override { return close(); }

 protected:
  Status add(Json value) {
    MOE_RETURN_IF_ERROR(count());
    place(std::move(value));
    return Status::ok();
  }

 private:
  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // Keys are known to differ; an ordered object would look through all of them to find that out.
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      auto& members = parent.template get_ref<nlohmann::ordered_json::object_t&>();
      return &members.emplace_back(std::move(key_), std::move(value)).second;
    } else {
      return &(parent[key_] = std::move(value));
    }
  }
  Status open(Json value) {
    MOE_RETURN_IF_ERROR(count());
    stack_.push_back(place(std::move(value)));
    return Status::ok();
  }
  Status count() {
    if (++values_ <= most_) return Status::ok();
    return corrupt(Where{.file = file_, .offset = position()},
                   "JSON has more than " + std::to_string(most_) + " values");
  }
  Status close() {
    stack_.pop_back();
    return Status::ok();
  }

  const std::string file_;
  const std::size_t most_;  // values
  std::size_t values_ = 0;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
};

class OrderedTreeBuilder final : public TreeBuilder<nlohmann::ordered_json> {
 public:
  using TreeBuilder::TreeBuilder;
  Status on_negative(std::int64_t value) override { return add(value); }
};

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const Where& where) {
  TreeBuilder<nlohmann::json> builder(where.file, SIZE_MAX);
  MOE_RETURN_IF_ERROR(visit_json(text, where, builder));
  return builder.take();
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, const Where& where) {
  OrderedTreeBuilder builder(where.file, kMaxOrderedJsonValues);
  MOE_RETURN_IF_ERROR(visit_json(text, where, builder));
  return builder.take();
}

}  // namespace moepack
