// The values of the template language: those of Python that templates meet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

namespace moepack::jinja {

// Python's integers are unbounded; results beyond these are a limit error.
__extension__ typedef __int128 Integer;

class Value;
class Object;
class Iterator;

struct None {};
struct Undefined {
  std::shared_ptr<const std::string> hint;  // why it is; null: unknown
};
struct List;
struct Tuple;
class Dict;
using ListPtr = std::shared_ptr<List>;
using TuplePtr = std::shared_ptr<const Tuple>;
using DictPtr = std::shared_ptr<Dict>;
using ObjectPtr = std::shared_ptr<Object>;
using IteratorPtr = std::shared_ptr<Iterator>;

// Lists and dictionaries are shared between copies, as Python's names share them.
class Value {
 public:
  Value() = default;  // undefined
  Value(None) : held_(None{}) {}
  Value(Undefined undefined) : held_(std::move(undefined)) {}
  Value(bool value) : held_(value) {}
  Value(Integer value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(TextPtr text) : held_(std::move(text)) {}
  Value(ListPtr list) : held_(std::move(list)) {}
  Value(TuplePtr tuple) : held_(std::move(tuple)) {}
  Value(DictPtr dict) : held_(std::move(dict)) {}
  Value(ObjectPtr object) : held_(std::move(object)) {}
  Value(const char*) = delete;
  Value(const void*) = delete;

  static Value integer(std::int64_t value) { return Value(static_cast<Integer>(value)); }
  static Value size(std::size_t value) { return Value(static_cast<Integer>(value)); }
  static Value text(std::string_view bytes) { return Value(make_text(bytes)); }
  // Of a long hint the beginning is kept.
  static Value undefined(std::string hint) {
    hint.resize(std::min<std::size_t>(hint.size(), kMostOfHint));
    return Value(Undefined{std::make_shared<const std::string>(std::move(hint))});
  }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  const Text* text_or_null() const {
    const TextPtr* text = as<TextPtr>();
    return text == nullptr ? nullptr : text->get();
  }
  const List* list_or_null() const {
    const ListPtr* list = as<ListPtr>();
    return list == nullptr ? nullptr : list->get();
  }
  const Tuple* tuple_or_null() const {
    const TuplePtr* tuple = as<TuplePtr>();
    return tuple == nullptr ? nullptr : tuple->get();
  }
  Dict* dict_or_null() const {
    const DictPtr* dict = as<DictPtr>();
    return dict == nullptr ? nullptr : dict->get();
  }
  Object* object_or_null() const {
    const ObjectPtr* object = as<ObjectPtr>();
    return object == nullptr ? nullptr : object->get();
  }
  template <typename T>
  T* object_as() const {
    return dynamic_cast<T*>(object_or_null());
  }
  // An integer or a truth value, as Python takes both where it wants an index.
  std::optional<Integer> index() const;
  // The items of a list or a tuple; null for others.
  const std::vector<Value>* items() const;

 private:
  static constexpr std::size_t kMostOfHint = 250;
  std::variant<Undefined, None, bool, Integer, double, TextPtr, ListPtr, TuplePtr, DictPtr,
               ObjectPtr>
      held_;
};

struct List final : Breakable {
  std::vector<Value> items;
  Holding holding;
  void break_circle() override;
};
struct Tuple {
  std::vector<Value> items;
  bool is_group = false;  // of groupby: its two items have the names `grouper` and `list` too
  mutable Holding holding;
};

// Keys in the order in which they came. Keys are hashable values (check_hashable).
class Dict final : public Breakable {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
  bool erase(const Value& key);
  void clear();
  void break_circle() override { clear(); }
  Holding holding;

 private:
  struct KeyLess {
    bool operator()(const Value& a, const Value& b) const;
  };
  std::size_t position(const Value& key) const;  // size(): absent
  std::vector<Entry> entries_;
  std::map<Value, std::size_t, KeyLess> index_;  // empty while the dictionary is small
};

// What a call brings.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<TextPtr, Value>> keywords;  // names may be the user's, behind **
};

// Everything that is no plain data: macros, methods, namespaces, loops, iterators, views.
class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> attribute(Run&, std::string_view) { return std::nullopt; }
  virtual std::optional<Value> item(Run&, const Value&) { return std::nullopt; }
  // Null value: the object cannot be sliced. Bounds that are not written are none.
  virtual std::optional<Value> slice(Run&, const Value&, const Value&, const Value&) {
    return std::nullopt;
  }
  virtual bool callable() const { return false; }
  virtual Value call(Run&, Arguments&);
  virtual IteratorPtr iterate(Run&) { return nullptr; }  // null: cannot be iterated
  virtual std::optional<std::size_t> length(Run&) { return std::nullopt; }
  virtual bool has_items() const { return false; }  // takes x[key]
  virtual std::optional<TextPtr> repr(Run&) { return std::nullopt; }
  virtual bool equals(Run&, const Object& other) { return this == &other; }
  virtual std::optional<bool> contains(Run&, const Value&) { return std::nullopt; }
  Holding holding;
};

// Gives its values once, one by one, and computes each when it is asked for.
class Iterator final : public Object {
 public:
  using Next = std::function<bool(Run&, Value&)>;
  explicit Iterator(Next next) : next_(std::move(next)) {}
  std::string_view type_name() const override { return "generator"; }
  IteratorPtr iterate(Run&) override {
    return std::static_pointer_cast<Iterator>(shared_from_this());
  }
  // False at the end.
  bool next(Run& run, Value& value);

 private:
  Next next_;  // empty once it has ended
};

Value make_iterator(Iterator::Next next);

// Counts a value among what the run holds, and what it holds itself; the levels of values in it
// (0: it holds none). What was counted costs nothing. Objects do not tell what they hold: they were
// made from values of at most `around` levels. A limit error for too many levels.
std::uint32_t count_held(Run& run, const Value& value, std::uint32_t around);

// A value's items; an error for values without.
IteratorPtr iterate(Run& run, const Value& value);
// The same, null instead of an error.
IteratorPtr try_iterate(Run& run, const Value& value);
std::vector<Value> to_vector(Run& run, const Value& value);

bool truth(Run& run, const Value& value);
bool equal(Run& run, const Value& a, const Value& b);
std::optional<std::size_t> length(Run& run, const Value& value);
std::size_t need_length(Run& run, const Value& value);
// Charges what it takes to compare a key; a limit error for tuples too large to be one.
void charge_key(Run& run, const Value& key);
// An error for lists, dictionaries and what holds them. Charges as charge_key.
void check_hashable(Run& run, const Value& value);
bool is_callable(const Value& value);
// As Python's type(value).__name__.
std::string type_name(const Value& value);

}  // namespace moepack::jinja
