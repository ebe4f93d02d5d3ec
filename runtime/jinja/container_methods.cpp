#include <algorithm>
#include <array>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"

namespace moepack::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, std::string_view name, Method method)
      : self_(std::move(self)), name_(name), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Run& run, Arguments& arguments) override { return method_(run, self_, arguments); }
  std::optional<TextPtr> repr(Run&) override {
    return make_text("<built-in method " + name_ + " of " + jinja::type_name(self_) + " object>");
  }

 private:
  Value self_;
  std::string name_;
  Method method_;
};

// What keys(), values() and items() give: it follows the dictionary.
class View final : public Object {
 public:
  View(DictPtr dict, ViewKind kind) : dict_(std::move(dict)), kind_(kind) {}
  std::string_view type_name() const override {
    return kind_ == ViewKind::kKeys     ? "dict_keys"
           : kind_ == ViewKind::kValues ? "dict_values"
                                        : "dict_items";
  }
  std::optional<std::size_t> length(Run&) override { return dict_->size(); }
  IteratorPtr iterate(Run&) override {
    const auto next = [dict = dict_, kind = kind_, size = dict_->size(), at = std::size_t{0}](
                          Run&, Value& value) mutable {
      if (dict->size() != size) fail("dictionary changed size during iteration");
      if (at >= size) return false;
      value = part(dict->entries()[at++], kind);
      return true;
    };
    return std::make_shared<Iterator>(next);
  }
  std::optional<TextPtr> repr(Run& run) override {
    TextBuilder out(run);
    out.add(std::string(type_name()) + "([");
    for (std::size_t i = 0; i < dict_->size(); ++i) {
      if (i > 0) out.add(", ");
      out.add(*jinja::repr(run, part(dict_->entries()[i], kind_)));
    }
    out.add("])");
    return out.finish();
  }
  std::optional<bool> contains(Run& run, const Value& item) override {
    if (kind_ != ViewKind::kKeys) return std::nullopt;
    check_hashable(run, item);
    return dict_->find(item) != nullptr;
  }

 private:
  static Value part(const Dict::Entry& entry, ViewKind kind) {
    return kind == ViewKind::kKeys     ? entry.first
           : kind == ViewKind::kValues ? entry.second
                                       : Value::tuple({entry.first, entry.second});
  }
  DictPtr dict_;
  ViewKind kind_;
};

const DictPtr& self_dict(const Value& self) { return *self.as<DictPtr>(); }
const ListPtr& self_list(const Value& self) { return *self.as<ListPtr>(); }

template <ViewKind kKind>
Value view(Run&, const Value& self, Arguments& arguments) {
  expect_count("a view", arguments, 0, 0);
  return make_view(self_dict(self), kKind);
}

Value dict_get(Run& run, const Value& self, Arguments& arguments) {
  expect_count("get", arguments, 1, 2);
  check_hashable(run, arguments.positional[0]);
  const Value* found = self_dict(self)->find(arguments.positional[0]);
  if (found != nullptr) return *found;
  return arguments.positional.size() > 1 ? arguments.positional[1] : Value(None{});
}

Value dict_copy(Run& run, const Value& self, Arguments& arguments) {
  expect_count("copy", arguments, 0, 0);
  run.charge_items(self_dict(self)->size());
  auto copy = std::make_shared<Dict>(*self_dict(self));
  copy->kept = false;
  return Value(std::move(copy));
}

// jinja2's immutable sandbox refuses the methods that change a value. Templates written for
// laxer interpreters use some of them, on values that are copies made for this rendering.
Value dict_pop(Run& run, const Value& self, Arguments& arguments) {
  expect_count("pop", arguments, 1, 2);
  check_hashable(run, arguments.positional[0]);
  run.charge(self_dict(self)->size());
  const Value* found = self_dict(self)->find(arguments.positional[0]);
  if (found == nullptr) {
    if (arguments.positional.size() < 2) fail("pop(): no such key");
    return arguments.positional[1];
  }
  Value value = *found;
  self_dict(self)->erase(arguments.positional[0]);
  return value;
}

Value dict_update(Run& run, const Value& self, Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("update() takes at most 1 argument");
  run.keep(self_dict(self));
  if (!arguments.positional.empty()) {
    const Dict* other = arguments.positional[0].dict_or_null();
    if (other == nullptr) fail("update() takes a dictionary");
    const std::vector<Dict::Entry> entries = other->entries();
    run.charge_items(entries.size());
    for (const auto& [key, value] : entries) self_dict(self)->set(key, value);
  }
  for (const auto& [name, value] : arguments.keywords) {
    self_dict(self)->set(Value(name), value);
  }
  return None{};
}

Value list_append(Run& run, const Value& self, Arguments& arguments) {
  expect_count("append", arguments, 1, 1);
  run.charge_item(self_list(self)->items.size());
  run.keep(self_list(self));
  self_list(self)->items.push_back(arguments.positional[0]);
  return None{};
}

Value list_extend(Run& run, const Value& self, Arguments& arguments) {
  expect_count("extend", arguments, 1, 1);
  run.keep(self_list(self));
  for (Value& item : to_vector(run, arguments.positional[0])) {
    run.charge_item(self_list(self)->items.size());
    self_list(self)->items.push_back(std::move(item));
  }
  return None{};
}

Value list_insert(Run& run, const Value& self, Arguments& arguments) {
  expect_count("insert", arguments, 2, 2);
  run.keep(self_list(self));
  auto& items = self_list(self)->items;
  run.charge_items(items.size() + 1);
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t at = need_index(arguments.positional[0]);
  at = std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  items.insert(items.begin() + at, arguments.positional[1]);
  return None{};
}

Value list_pop(Run& run, const Value& self, Arguments& arguments) {
  expect_count("pop", arguments, 0, 1);
  auto& items = self_list(self)->items;
  run.charge(items.size());
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t at = arguments.positional.empty() ? -1 : need_index(arguments.positional[0]);
  if (at < 0) at += size;
  if (at < 0 || at >= size) fail("pop index out of range");
  Value value = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + at);
  return value;
}

Value list_reverse(Run& run, const Value& self, Arguments& arguments) {
  expect_count("reverse", arguments, 0, 0);
  run.charge(self_list(self)->items.size());
  std::reverse(self_list(self)->items.begin(), self_list(self)->items.end());
  return None{};
}

Value list_clear(Run&, const Value& self, Arguments& arguments) {
  expect_count("clear", arguments, 0, 0);
  self_list(self)->items.clear();
  return None{};
}

Value list_copy(Run& run, const Value& self, Arguments& arguments) {
  expect_count("copy", arguments, 0, 0);
  return Value::list(to_vector(run, self));
}

Value items_count(Run& run, const Value& self, Arguments& arguments) {
  expect_count("count", arguments, 1, 1);
  std::size_t found = 0;
  for (const Value& item : *self.items()) {
    if (equal(run, item, arguments.positional[0])) ++found;
  }
  return Value::size(found);
}

Value items_index(Run& run, const Value& self, Arguments& arguments) {
  expect_count("index", arguments, 1, 3);
  const auto& items = *self.items();
  const auto size = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t i, std::int64_t absent) {
    if (arguments.positional.size() <= i) return absent;
    const std::int64_t index = need_index(arguments.positional[i]);
    return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
  };
  for (std::int64_t i = bound(1, 0); i < bound(2, size); ++i) {
    if (equal(run, items[static_cast<std::size_t>(i)], arguments.positional[0])) {
      return Value::integer(i);
    }
  }
  fail("index(): the value is not there");
}

using MethodEntry = std::pair<std::string_view, Method>;
constexpr std::array kDictMethods = {
    MethodEntry{"copy", dict_copy},
    MethodEntry{"get", dict_get},
    MethodEntry{"items", view<ViewKind::kItems>},
    MethodEntry{"keys", view<ViewKind::kKeys>},
    MethodEntry{"pop", dict_pop},
    MethodEntry{"update", dict_update},
    MethodEntry{"values", view<ViewKind::kValues>},
};
constexpr std::array kListMethods = {
    MethodEntry{"append", list_append},   MethodEntry{"clear", list_clear},
    MethodEntry{"copy", list_copy},       MethodEntry{"count", items_count},
    MethodEntry{"extend", list_extend},   MethodEntry{"index", items_index},
    MethodEntry{"insert", list_insert},   MethodEntry{"pop", list_pop},
    MethodEntry{"reverse", list_reverse},
};
constexpr std::array kTupleMethods = {MethodEntry{"count", items_count},
                                      MethodEntry{"index", items_index}};

template <typename Table>
Method find_in(const Table& table, std::string_view name) {
  const auto* const found = std::find_if(
      table.begin(), table.end(), [&](const MethodEntry& entry) { return entry.first == name; });
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

Method find_list_method(std::string_view name) { return find_in(kListMethods, name); }
Method find_tuple_method(std::string_view name) { return find_in(kTupleMethods, name); }
Method find_dict_method(std::string_view name) { return find_in(kDictMethods, name); }

Value make_view(const DictPtr& dict, ViewKind kind) {
  return Value(ObjectPtr(std::make_shared<View>(dict, kind)));
}

std::optional<Value> find_method(const Value& self, std::string_view name) {
  Method method = nullptr;
  if (self.text_or_null() != nullptr) method = find_text_method(name);
  if (self.list_or_null() != nullptr) method = find_list_method(name);
  if (const Tuple* tuple = self.tuple_or_null()) {
    if (tuple->is_group && name == "grouper") return tuple->items[0];
    if (tuple->is_group && name == "list") return tuple->items[1];
    method = find_tuple_method(name);
  }
  if (self.dict_or_null() != nullptr) method = find_dict_method(name);
  if (method == nullptr) return std::nullopt;
  return Value(ObjectPtr(std::make_shared<BoundMethod>(self, name, method)));
}

}  // namespace moepack::jinja
