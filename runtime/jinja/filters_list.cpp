#include <algorithm>
#include <array>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"

namespace moepack::jinja {
namespace {

Value count(Run& run, const Value& value, Arguments& arguments) {
  expect_count("length", arguments, 0, 0);
  return Value::size(need_length(run, value));
}

Value default_value(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && (!bound.flag(run, 1) || truth(run, value))) return value;
  return bound[0] == nullptr ? Value::text("") : *bound[0];
}

Value first(Run& run, const Value& value, Arguments& arguments) {
  expect_count("first", arguments, 0, 0);
  Value item;
  if (iterate(run, value)->next(run, item)) return item;
  return Value::undefined("No first item, sequence was empty.");
}

// The items from the last to the first; an error for what has no order from its end.
std::vector<Value> reversed(Run& run, const Value& value) {
  const Object* object = value.object_or_null();
  if (value.is_undefined() || object == nullptr || value.object_or_null()->length(run)) {
    std::vector<Value> items = to_vector(run, value);
    std::reverse(items.begin(), items.end());
    return items;
  }
  fail("'" + type_name(value) + "' object is not reversible");
}

Value last(Run& run, const Value& value, Arguments& arguments) {
  expect_count("last", arguments, 0, 0);
  if (const auto* items = value.items()) {
    if (!items->empty()) return items->back();
    return Value::undefined("No last item, sequence was empty.");
  }
  const std::vector<Value> items = reversed(run, value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.front();
}

Value reverse(Run& run, const Value& value, Arguments& arguments) {
  expect_count("reverse", arguments, 0, 0);
  if (value.text_or_null() != nullptr) {
    const Value back = Value::integer(-1);
    return get_slice(run, value, nullptr, nullptr, &back);
  }
  const Object* object = value.object_or_null();
  const bool lazy = object != nullptr && !value.object_or_null()->length(run);
  std::vector<Value> items = to_vector(run, value);
  std::reverse(items.begin(), items.end());
  if (lazy) return Value::list(std::move(items));
  return make_iterator([items = std::move(items), at = std::size_t{0}](Run&, Value& item) mutable {
    if (at >= items.size()) return false;
    item = items[at++];
    return true;
  });
}

Value list(Run& run, const Value& value, Arguments& arguments) {
  expect_count("list", arguments, 0, 0);
  return Value::list(to_vector(run, value));
}

Value items(Run&, const Value& value, Arguments& arguments) {
  expect_count("items", arguments, 0, 0);
  return make_iterator([value, under = IteratorPtr()](Run& at, Value& item) mutable {
    if (value.is_undefined()) return false;
    if (under == nullptr) {
      const DictPtr* dict = value.as<DictPtr>();
      if (dict == nullptr) fail("Can only get item pairs from a mapping.");
      under = iterate(at, make_view(*dict, ViewKind::kItems));
    }
    return under->next(at, item);
  });
}

Value join(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const ItemPath path(bound.given(1));
  const TextPtr separator = bound[0] == nullptr ? make_text("") : to_text(run, *bound[0]);
  const IteratorPtr under = iterate(run, value);
  TextBuilder out(run);
  Value item;
  for (bool is_first = true; under->next(run, item); is_first = false) {
    if (!is_first) out.add(*separator);
    out.add(*to_text(run, path.of(run, item)));
  }
  return out.finish();
}

Value dictsort(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] == nullptr ? "key" : to_text(run, *bound[1])->bytes;
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  need_defined(value);
  const Dict* dict = value.dict_or_null();
  if (dict == nullptr) fail("dictsort wants a mapping");
  const bool exact = bound.flag(run, 0);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, held] : dict->entries()) {
    const Value& looked = by == "key" ? key : held;
    keyed.emplace_back(exact ? looked : without_case(run, looked), Value::tuple({key, held}));
  }
  const bool backwards = bound.flag(run, 2);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less(run, b.first, a.first) : less(run, a.first, b.first);
  });
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::list(std::move(sorted));
}

// "name,other.part": several paths. An item's keys are compared one after the other.
std::vector<ItemPath> paths_of(const Value* attribute) {
  const Text* text = attribute == nullptr ? nullptr : attribute->text_or_null();
  std::vector<ItemPath> paths;
  if (text == nullptr) {
    paths.emplace_back(attribute);
    return paths;
  }
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = std::min(text->bytes.find(',', begin), text->bytes.size());
    const Value part = Value::text(std::string_view(text->bytes).substr(begin, end - begin));
    paths.emplace_back(&part);
    if (end == text->bytes.size()) return paths;
    begin = end + 1;
  }
}

Value sort(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const std::vector<ItemPath> paths = paths_of(bound.given(2));
  const bool exact = bound.flag(run, 1);
  const bool backwards = bound.flag(run, 0);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(run, value)) {
    std::vector<Value> keys;
    for (const ItemPath& path : paths) {
      const Value key = path.of(run, item);
      keys.push_back(exact ? key : without_case(run, key));
    }
    keyed.emplace_back(Value::list(std::move(keys)), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less(run, b.first, a.first) : less(run, a.first, b.first);
  });
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::list(std::move(sorted));
}

template <bool kMost>
Value extreme(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound(kMost ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const ItemPath path(bound.given(1));
  const bool exact = bound.flag(run, 0);
  const IteratorPtr under = iterate(run, value);
  Value item;
  if (!under->next(run, item)) {
    return Value::undefined("No aggregated item, sequence was empty.");
  }
  const auto key_of = [&](const Value& of) {
    const Value key = path.of(run, of);
    return exact ? key : without_case(run, key);
  };
  Value best = item;
  Value best_key = key_of(best);
  while (under->next(run, item)) {
    Value key = key_of(item);
    if (kMost ? less(run, best_key, key) : less(run, key, best_key)) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value sum(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const ItemPath path(bound.given(0));
  Value total = bound[1] == nullptr ? Value::integer(0) : *bound[1];
  if (total.text_or_null() != nullptr) fail("sum() can't sum strings");
  const IteratorPtr under = iterate(run, value);
  Value item;
  while (under->next(run, item)) {
    total = binary(run, Operation::kAdd, total, path.of(run, item));
  }
  return total;
}

Value unique(Run&, const Value& value, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const Value exact = bound[0] == nullptr ? Value(false) : *bound[0];
  return make_iterator([value, exact, path = ItemPath(bound.given(1)), seen = DictPtr(),
                        under = IteratorPtr()](Run& run, Value& item) mutable {
    if (under == nullptr) {
      under = iterate(run, value);
      seen = std::make_shared<Dict>();
    }
    while (under->next(run, item)) {
      Value key = path.of(run, item);
      if (!truth(run, exact)) key = without_case(run, key);
      check_hashable(run, key);
      run.charge(8);
      if (seen->find(key) != nullptr) continue;
      seen->set(key, Value());
      count_held(run, Value(seen), 0);
      return true;
    }
    return false;
  });
}

Value batch(Run&, const Value& value, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const Value size = *bound[0];
  const Value fill = bound[1] == nullptr ? Value(None{}) : *bound[1];
  return make_iterator([value, size, fill, under = IteratorPtr()](Run& run, Value& row) mutable {
    if (under == nullptr) under = iterate(run, value);
    std::vector<Value> held;
    Value item;
    bool more = true;
    const auto full = [&] { return equal(run, Value::size(held.size()), size) && !held.empty(); };
    while (!full() && (more = under->next(run, item))) {
      run.charge_item(held.size());
      held.push_back(item);
    }
    if (held.empty()) return false;
    if (!more && !fill.is_none()) {
      need_defined(size);
      if (!size.index()) fail("batch wants an integer");
      while (static_cast<Integer>(held.size()) < *size.index()) {
        run.charge_item(held.size());
        held.push_back(fill);
      }
    }
    row = Value::list(std::move(held));
    return true;
  });
}

std::vector<Value> slices_of(Run& run, const Value& value, const Value& slices, const Value& fill) {
  const std::vector<Value> all = to_vector(run, value);
  need_defined(slices);
  if (!slices.index()) fail("slice wants an integer");
  const auto count = static_cast<std::int64_t>(std::min<Integer>(*slices.index(), 1LL << 40));
  if (count == 0) fail("integer division or modulo by zero");
  std::vector<Value> out;
  if (count < 0) return out;
  run.charge_items(static_cast<std::uint64_t>(count));
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t each = size / count;
  const std::int64_t longer = size % count;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = at + each + (i < longer ? 1 : 0);
    std::vector<Value> part(all.begin() + at, all.begin() + end);
    if (!fill.is_none() && i >= longer) part.push_back(fill);
    out.push_back(Value::list(std::move(part)));
    at = end;
  }
  return out;
}

Value slice(Run&, const Value& value, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const Value slices = *bound[0];
  const Value fill = bound[1] == nullptr ? Value(None{}) : *bound[1];
  return make_iterator([=, parts = std::optional<std::vector<Value>>(), at = std::size_t{0}](
                           Run& run, Value& item) mutable {
    if (!parts) parts = slices_of(run, value, slices, fill);
    if (at >= parts->size()) return false;
    item = (*parts)[at++];
    return true;
  });
}

Value groupby(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const ItemPath path(bound.given(0));
  const Value* absent = bound.given(1);
  const bool exact = bound.flag(run, 2);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(run, value)) {
    const Value key = path.of(run, item, absent);
    keyed.emplace_back(exact ? key : without_case(run, key), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return less(run, a.first, b.first); });
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    while (end < keyed.size() && equal(run, keyed[begin].first, keyed[end].first)) {
      members.push_back(keyed[end++].second);
    }
    const Value key = exact ? keyed[begin].first : path.of(run, members.front(), absent);
    auto group = std::make_shared<Tuple>();
    group->items = {key, Value::list(std::move(members))};
    group->is_group = true;
    groups.emplace_back(TuplePtr(std::move(group)));
    begin = end;
  }
  return Value::list(std::move(groups));
}

Value attr(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  need_defined(value);
  const TextPtr name = to_text(run, *bound[0]);
  run.charge(name->bytes.size() / 64);
  std::optional<Value> found;
  if (!name->bytes.starts_with("_")) {
    found = value.object_or_null() != nullptr ? value.object_or_null()->attribute(run, name->bytes)
                                              : find_method(value, name->bytes);
  }
  return found ? *found : Value::undefined("no attribute '" + name->bytes.substr(0, 200) + "'");
}

using FilterEntry = std::pair<std::string_view, Filter>;
constexpr std::array kListFilters = {
    FilterEntry{"attr", attr},
    FilterEntry{"batch", batch},
    FilterEntry{"count", count},
    FilterEntry{"d", default_value},
    FilterEntry{"default", default_value},
    FilterEntry{"dictsort", dictsort},
    FilterEntry{"first", first},
    FilterEntry{"groupby", groupby},
    FilterEntry{"items", items},
    FilterEntry{"join", join},
    FilterEntry{"last", last},
    FilterEntry{"length", count},
    FilterEntry{"list", list},
    FilterEntry{"max", extreme<true>},
    FilterEntry{"min", extreme<false>},
    FilterEntry{"reverse", reverse},
    FilterEntry{"slice", slice},
    FilterEntry{"sort", sort},
    FilterEntry{"sum", sum},
    FilterEntry{"unique", unique},
};

}  // namespace

Filter find_list_filter(std::string_view name) {
  const auto* const found =
      std::find_if(kListFilters.begin(), kListFilters.end(),
                   [&](const FilterEntry& entry) { return entry.first == name; });
  return found == kListFilters.end() ? nullptr : found->second;
}

}  // namespace moepack::jinja
