#include "runtime/jinja/filters.h"

#include <algorithm>
#include <array>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/tests.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

// The arguments behind the first `count` positional ones.
Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

template <typename Found>
Found named(Run& run, const Value& name, Found (*find)(std::string_view), std::string_view what) {
  const Text* text = name.text_or_null();
  check_hashable(run, name);
  const Found found = text == nullptr ? nullptr : find(text->bytes);
  if (found == nullptr) {
    fail("no " + std::string(what) + " named '" + (text == nullptr ? "" : text->bytes) + "'");
  }
  return found;
}

using Change = std::function<Value(Run&, const Value&)>;

Change change_of(Run& run, const Arguments& arguments) {
  const auto attribute =
      std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                   [](const auto& entry) { return entry.first->bytes == "attribute"; });
  if (arguments.positional.empty() && attribute != arguments.keywords.end()) {
    const Bound bound("map", arguments, {"attribute", "default"});
    const Value* absent = bound.given(1);
    return [path = ItemPath(bound.given(0)), other = absent == nullptr ? Value(None{}) : *absent](
               Run& at, const Value& item) {
      return path.of(at, item, other.is_none() ? nullptr : &other);
    };
  }
  if (arguments.positional.empty()) fail("map requires a filter argument");
  const Filter filter = named(run, arguments.positional[0], find_filter, "filter");
  return [filter, rest = without_first(arguments, 1)](Run& at, const Value& item) {
    Arguments given = rest;
    return filter(at, item, given);
  };
}

Value map(Run&, const Value& value, Arguments& arguments) {
  return make_iterator(
      [value, arguments, change = Change(), under = IteratorPtr()](Run& run, Value& item) mutable {
        if (under == nullptr) {
          if (!truth(run, value)) return false;
          change = change_of(run, arguments);
          under = iterate(run, value);
        }
        if (!under->next(run, item)) return false;
        item = change(run, item);
        return true;
      });
}

using Condition = std::function<bool(Run&, const Value&)>;

Condition condition_of(const Arguments& arguments, bool by_attribute) {
  std::optional<ItemPath> path;
  if (by_attribute) {
    if (arguments.positional.empty()) fail("Missing parameter for attribute name");
    path.emplace(arguments.positional[0].is_none() ? nullptr : &arguments.positional[0]);
  }
  const std::size_t used = by_attribute ? 1 : 0;
  const auto looked = [path](Run& run, const Value& item) {
    return path ? path->of(run, item) : item;
  };
  if (arguments.positional.size() <= used) {
    return [looked](Run& run, const Value& item) { return truth(run, looked(run, item)); };
  }
  return [looked, name = arguments.positional[used], rest = without_first(arguments, used + 1)](
             Run& run, const Value& item) {
    const Value of = looked(run, item);
    Arguments given = rest;
    return named(run, name, find_test, "test")(run, of, given);
  };
}

template <bool kKeep, bool kByAttribute>
Value select(Run&, const Value& value, Arguments& arguments) {
  return make_iterator([value, arguments, condition = Condition(), under = IteratorPtr()](
                           Run& run, Value& item) mutable {
    if (under == nullptr) {
      if (!truth(run, value)) return false;
      condition = condition_of(arguments, kByAttribute);
      under = iterate(run, value);
    }
    while (under->next(run, item)) {
      if (condition(run, item) == kKeep) return true;
    }
    return false;
  });
}

template <int kWhich>
Value refuse(Run&, const Value&, Arguments&) {
  fail("this filter of jinja2 is not supported", ErrorKind::kUnsupported);
}

using FilterEntry = std::pair<std::string_view, Filter>;
constexpr std::array kFilters = {
    FilterEntry{"map", map},
    FilterEntry{"pprint", refuse<0>},
    FilterEntry{"random", refuse<0>},
    FilterEntry{"reject", select<false, false>},
    FilterEntry{"rejectattr", select<false, true>},
    FilterEntry{"select", select<true, false>},
    FilterEntry{"selectattr", select<true, true>},
    FilterEntry{"striptags", refuse<0>},
    FilterEntry{"urlize", refuse<0>},
    FilterEntry{"wordwrap", refuse<0>},
    FilterEntry{"xmlattr", refuse<0>},
};

}  // namespace

Filter find_selecting_filter(std::string_view name) {
  const auto* const found =
      std::find_if(kFilters.begin(), kFilters.end(),
                   [&](const FilterEntry& entry) { return entry.first == name; });
  return found == kFilters.end() ? nullptr : found->second;
}

Filter find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_list_filter, find_selecting_filter, find_number_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

ItemPath::ItemPath(const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return;
  const Text* text = attribute->text_or_null();
  if (text == nullptr) {
    parts_.push_back(*attribute);
    return;
  }
  std::string_view rest = text->bytes;
  for (;;) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(number ? Value(parse_integer(part, 10)) : Value::text(part));
    if (end == rest.size()) return;
    rest.remove_prefix(end + 1);
  }
}

Value ItemPath::of(Run& run, const Value& item, const Value* absent) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(run, value, part);
    if (absent != nullptr && value.is_undefined()) value = *absent;
  }
  return value;
}

Value without_case(Run& run, const Value& value) {
  const Text* text = value.text_or_null();
  return text == nullptr ? value : Value(change_case(run, *text, CaseChange::kLower));
}

}  // namespace moepack::jinja
