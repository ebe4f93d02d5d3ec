#include "runtime/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "runtime/jinja/operators.h"

namespace moepack::jinja {
namespace {

constexpr std::size_t kLinearKeys = 8;
constexpr std::size_t kKeyLevels = 10;   // of tuples within a key
constexpr std::size_t kKeyItems = 1000;  // in all tuples of a key

void visit_key(Run& run, const Value& key, bool hashable, std::size_t level, std::size_t& items) {
  if (const Text* text = key.text_or_null()) run.charge(text->bytes.size() / 64);
  if (hashable && (key.list_or_null() != nullptr || key.dict_or_null() != nullptr)) {
    fail("unhashable type: '" + type_name(key) + "'");
  }
  const Tuple* tuple = key.tuple_or_null();
  if (tuple == nullptr) return;
  items += tuple->items.size();
  if (level == kKeyLevels || items > kKeyItems) {
    fail("a tuple this large as a key", ErrorKind::kLimit);
  }
  run.charge(8 * tuple->items.size());  // a key meets about as many others
  for (const Value& item : tuple->items) visit_key(run, item, hashable, level + 1, items);
}

// Python compares keys of different numeric types by value.
int key_class(const Value& key) {
  if (key.is_undefined()) return 0;
  if (key.is_none()) return 1;
  if (key.index() || key.as<double>() != nullptr) return 2;
  if (key.text_or_null() != nullptr) return 3;
  if (key.tuple_or_null() != nullptr) return 4;
  return 5;
}

int order_numbers(const Value& a, const Value& b) {
  const auto left = a.index();
  const auto right = b.index();
  if (left && right) return *left < *right ? -1 : static_cast<int>(*left > *right);
  const auto real = [](const Value& value) {
    const auto whole = value.index();
    return whole ? static_cast<long double>(*whole) : static_cast<long double>(*value.as<double>());
  };
  const long double x = real(a);
  const long double y = real(b);
  if (std::isnan(x) || std::isnan(y)) return static_cast<int>(std::isnan(x)) - std::isnan(y);
  return x < y ? -1 : static_cast<int>(x > y);
}

int order_keys(const Value& a, const Value& b) {
  const int left = key_class(a);
  const int right = key_class(b);
  if (left != right) return left - right;
  if (left == 2) return order_numbers(a, b);
  if (left == 3) return a.text_or_null()->bytes.compare(b.text_or_null()->bytes);
  if (left == 4) {
    const auto& x = a.tuple_or_null()->items;
    const auto& y = b.tuple_or_null()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      const int order = order_keys(x[i], y[i]);
      if (order != 0) return order;
    }
    return static_cast<int>(x.size() > y.size()) - static_cast<int>(x.size() < y.size());
  }
  if (left == 5) {
    const std::less<const Object*> less;
    const Object* x = a.object_or_null();
    const Object* y = b.object_or_null();
    return static_cast<int>(less(y, x)) - static_cast<int>(less(x, y));
  }
  return 0;
}

bool equal_items(Run& run, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  const Run::Depth depth(run);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(run, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Run& run, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  const Run::Depth depth(run);
  for (const Dict::Entry& entry : a.entries()) {
    const Value* other = b.find(entry.first);
    if (other == nullptr || !equal(run, entry.second, *other)) return false;
  }
  return true;
}

bool is_number(const Value& value) { return value.index() || value.as<double>() != nullptr; }

Value iterate_text(const TextPtr& text) {
  return make_iterator([text, at = std::size_t{0}](Run& run, Value& value) mutable {
    if (at >= text->bytes.size()) return false;
    std::size_t end = at + 1;
    while (end < text->bytes.size() &&
           (static_cast<unsigned char>(text->bytes[end]) & 0xC0) == 0x80) {
      ++end;
    }
    TextBuilder character(run);
    character.add(*text, at, end);
    value = character.finish();
    at = end;
    return true;
  });
}

Value iterate_keys(const DictPtr& dict) {
  return make_iterator(
      [dict, size = dict->size(), at = std::size_t{0}](Run&, Value& value) mutable {
        if (dict->size() != size) fail("dictionary changed size during iteration");
        if (at >= size) return false;
        value = dict->entries()[at++].first;
        return true;
      });
}

template <typename Pointer>
Value iterate_items(const Pointer& sequence) {
  return make_iterator([sequence, at = std::size_t{0}](Run&, Value& value) mutable {
    if (at >= sequence->items.size()) return false;
    value = sequence->items[at++];
    return true;
  });
}

}  // namespace

void List::break_circle() { items.clear(); }

Value Value::list(std::vector<Value> items) {
  auto list = std::make_shared<List>();
  list->items = std::move(items);
  return Value(std::move(list));
}

Value Value::tuple(std::vector<Value> items) {
  auto tuple = std::make_shared<Tuple>();
  tuple->items = std::move(items);
  return Value(TuplePtr(std::move(tuple)));
}

std::optional<Integer> Value::index() const {
  if (const Integer* integer = as<Integer>()) return *integer;
  if (const bool* boolean = as<bool>()) return static_cast<Integer>(*boolean);
  return std::nullopt;
}

const std::vector<Value>* Value::items() const {
  if (const List* list = list_or_null()) return &list->items;
  if (const Tuple* tuple = tuple_or_null()) return &tuple->items;
  return nullptr;
}

bool Dict::KeyLess::operator()(const Value& a, const Value& b) const {
  return order_keys(a, b) < 0;
}

std::size_t Dict::position(const Value& key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.size() : found->second;
  }
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return order_keys(entry.first, key) == 0;
  });
  return static_cast<std::size_t>(found - entries_.begin());
}

const Value* Dict::find(const Value& key) const {
  const std::size_t at = position(key);
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

const Value* Dict::find(std::string_view key) const { return find(Value::text(key)); }

void Dict::set(const Value& key, Value value) {
  const std::size_t at = position(key);
  if (at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
  if (!index_.empty()) {
    index_.emplace(key, at);
  } else if (entries_.size() > kLinearKeys) {
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
  }
}

bool Dict::erase(const Value& key) {
  const std::size_t at = position(key);
  if (at == entries_.size()) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  index_.clear();
  if (entries_.size() > kLinearKeys) {
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
  }
  return true;
}

void Dict::clear() {
  index_.clear();
  entries_.clear();
}

Run::~Run() {
  for (const std::shared_ptr<Breakable>& container : kept_) container->break_circle();
}

void Run::fail_limit(const char* what, std::uint64_t limit) {
  fail("the template needs more than " + std::to_string(limit) + " " + what, ErrorKind::kLimit);
}

Value Object::call(Run&, Arguments&) {
  fail("'" + std::string(type_name()) + "' object is not callable");
}

bool Iterator::next(Run& run, Value& value) {
  run.charge(1);
  if (!next_) return false;
  const Run::Depth depth(run);
  Next next = std::move(next_);  // a generator that asks itself has no more
  next_ = nullptr;
  if (!next(run, value)) return false;
  next_ = std::move(next);
  count_held(run, value, holding.levels);
  return true;
}

Value make_iterator(Iterator::Next next) {
  return Value(ObjectPtr(std::make_shared<Iterator>(std::move(next))));
}

namespace {

constexpr std::size_t kHolderBytes = 128;  // of a list, a tuple or a dictionary without items
constexpr std::size_t kItemBytes = 160;    // of an item with what is not counted by itself
constexpr std::size_t kEntryBytes = 400;   // of an entry of a dictionary
constexpr std::size_t kObjectBytes = 400;

std::uint32_t one_more(const Run& run, std::uint32_t levels) {
  if (levels >= run.limits().levels) {
    fail("the template needs more than " + std::to_string(run.limits().levels) +
             " levels of values within values",
         ErrorKind::kLimit);
  }
  return levels + 1;
}

template <typename Items, typename Each>
std::uint32_t count_items(Run& run, Holding& holding, const Items& items, std::size_t bytes,
                          const Each& each) {
  if (holding.share.counted() && holding.items == items.size()) return holding.levels;
  holding.share.set(run.memory(), kHolderBytes + items.capacity() * bytes);
  // What holds itself is found counted.
  const std::size_t begin = std::exchange(holding.items, items.size());
  std::uint32_t within = 0;
  for (std::size_t i = begin; i < items.size(); ++i) within = std::max(within, each(items[i]));
  holding.levels = std::max(holding.levels, one_more(run, within));
  return holding.levels;
}

}  // namespace

std::uint32_t count_held(Run& run, const Value& value, std::uint32_t around) {
  const auto of_item = [&](const Value& item) { return count_held(run, item, around); };
  if (const ListPtr* list = value.as<ListPtr>()) {
    return count_items(run, (*list)->holding, (*list)->items, kItemBytes, of_item);
  }
  if (const Tuple* tuple = value.tuple_or_null()) {
    return count_items(run, tuple->holding, tuple->items, kItemBytes, of_item);
  }
  if (Dict* dict = value.dict_or_null()) {
    return count_items(run, dict->holding, dict->entries(), kEntryBytes,
                       [&](const Dict::Entry& entry) {
                         return std::max(of_item(entry.first), of_item(entry.second));
                       });
  }
  Object* object = value.object_or_null();
  if (object == nullptr) return 0;
  if (!object->holding.share.counted()) {
    object->holding.levels = one_more(run, around);
    object->holding.share.set(run.memory(), kObjectBytes);
  }
  return object->holding.levels;
}

IteratorPtr try_iterate(Run& run, const Value& value) {
  const auto made = [](const Value& iterator) {
    return std::static_pointer_cast<Iterator>(*iterator.as<ObjectPtr>());
  };
  if (const TextPtr* text = value.as<TextPtr>()) return made(iterate_text(*text));
  if (const ListPtr* list = value.as<ListPtr>()) return made(iterate_items(*list));
  if (const TuplePtr* tuple = value.as<TuplePtr>()) return made(iterate_items(*tuple));
  if (const DictPtr* dict = value.as<DictPtr>()) return made(iterate_keys(*dict));
  if (const ObjectPtr* object = value.as<ObjectPtr>()) return (*object)->iterate(run);
  if (value.is_undefined()) return made(make_iterator([](Run&, Value&) { return false; }));
  return nullptr;
}

IteratorPtr iterate(Run& run, const Value& value) {
  IteratorPtr iterator = try_iterate(run, value);
  if (iterator == nullptr) fail("'" + type_name(value) + "' object is not iterable");
  return iterator;
}

std::vector<Value> to_vector(Run& run, const Value& value) {
  std::vector<Value> items;
  if (const auto* held = value.items()) {
    run.charge_items(held->size());
    return *held;
  }
  const IteratorPtr iterator = iterate(run, value);
  Value item;
  while (iterator->next(run, item)) {
    items.push_back(std::move(item));
    run.charge_item(items.size() - 1);
  }
  return items;
}

bool truth(Run& run, const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto integer = value.index()) return *integer != 0;
  if (const double* real = value.as<double>()) return *real != 0.0;
  if (value.object_or_null() != nullptr) {
    const auto size = value.object_or_null()->length(run);
    return !size || *size > 0;
  }
  return need_length(run, value) > 0;
}

bool equal(Run& run, const Value& a, const Value& b) {
  run.charge(1);
  if (is_number(a) && is_number(b)) {
    const bool nan = (a.as<double>() != nullptr && std::isnan(*a.as<double>())) ||
                     (b.as<double>() != nullptr && std::isnan(*b.as<double>()));
    return !nan && order_numbers(a, b) == 0;
  }
  if (a.is_undefined() || a.is_none()) {
    return a.is_undefined() == b.is_undefined() && a.is_none() == b.is_none();
  }
  if (const Text* text = a.text_or_null()) {
    run.charge(text->bytes.size() / 64);
    return b.text_or_null() != nullptr && text->bytes == b.text_or_null()->bytes;
  }
  if (const List* list = a.list_or_null()) {
    return b.list_or_null() != nullptr && equal_items(run, list->items, b.list_or_null()->items);
  }
  if (const Tuple* tuple = a.tuple_or_null()) {
    return b.tuple_or_null() != nullptr && equal_items(run, tuple->items, b.tuple_or_null()->items);
  }
  if (const Dict* dict = a.dict_or_null()) {
    return b.dict_or_null() != nullptr && equal_dicts(run, *dict, *b.dict_or_null());
  }
  Object* object = a.object_or_null();
  return object != nullptr && b.object_or_null() != nullptr &&
         object->equals(run, *b.object_or_null());
}

std::optional<std::size_t> length(Run& run, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text_or_null()) return text->characters;
  if (const auto* items = value.items()) return items->size();
  if (const Dict* dict = value.dict_or_null()) return dict->size();
  if (Object* object = value.object_or_null()) return object->length(run);
  return std::nullopt;
}

std::size_t need_length(Run& run, const Value& value) {
  const auto size = length(run, value);
  if (!size) fail("object of type '" + type_name(value) + "' has no len()");
  return *size;
}

void charge_key(Run& run, const Value& key) {
  std::size_t items = 0;
  visit_key(run, key, false, 0, items);
}

void check_hashable(Run& run, const Value& value) {
  std::size_t items = 0;
  visit_key(run, value, true, 0, items);
}

bool is_callable(const Value& value) {
  return value.is_undefined() ||
         (value.object_or_null() != nullptr && value.object_or_null()->callable());
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.as<bool>() != nullptr) return "bool";
  if (value.as<Integer>() != nullptr) return "int";
  if (value.as<double>() != nullptr) return "float";
  if (value.text_or_null() != nullptr) return value.text_or_null()->safe ? "Markup" : "str";
  if (value.list_or_null() != nullptr) return "list";
  if (const Tuple* tuple = value.tuple_or_null()) return tuple->is_group ? "_GroupTuple" : "tuple";
  if (value.dict_or_null() != nullptr) return "dict";
  return std::string(value.object_or_null()->type_name());
}

}  // namespace moepack::jinja
