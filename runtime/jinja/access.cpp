#include <algorithm>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"

namespace moepack::jinja {
namespace {

constexpr std::size_t kMostShown = 200;  // bytes of a name

std::string shown_type(const Value& value) {
  if (value.is_none()) return "None";
  return type_name(value) + " object";
}

Value missing_attribute(const Value& value, std::string_view name) {
  return Value::undefined("'" + shown_type(value) + "' has no attribute '" +
                          std::string(name.substr(0, kMostShown)) + "'");
}

Value missing_item(Run& run, const Value& value, const Value& key) {
  if (const Text* text = key.text_or_null()) return missing_attribute(value, text->bytes);
  return Value::undefined(shown_type(value) + " has no element " +
                          repr(run, key)->bytes.substr(0, kMostShown));
}

std::optional<Value> attribute_of(Run& run, const Value& value, std::string_view name) {
  if (name.starts_with("_")) return std::nullopt;
  if (Object* object = value.object_or_null()) return object->attribute(run, name);
  return find_method(value, name);
}

// Python's value[key], without an error where it has none.
std::optional<Value> item_of(Run& run, const Value& value, const Value& key) {
  charge_key(run, key);
  if (const Dict* dict = value.dict_or_null()) {
    if (key.list_or_null() != nullptr || key.dict_or_null() != nullptr) return std::nullopt;
    const Value* found = dict->find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (Object* object = value.object_or_null()) return object->item(run, key);
  if (!key.index()) return std::nullopt;
  const auto size = static_cast<Integer>(length(run, value).value_or(0));
  const Integer wanted = *key.index() < 0 ? *key.index() + size : *key.index();
  if (wanted < 0 || wanted >= size) return std::nullopt;
  if (const auto* items = value.items()) return (*items)[static_cast<std::size_t>(wanted)];
  if (const TextPtr* text = value.as<TextPtr>()) {
    run.charge(is_ascii(**text) ? 0 : (*text)->bytes.size() / 16);
    const std::size_t begin = byte_offset(**text, static_cast<std::size_t>(wanted));
    const std::size_t end = byte_offset(**text, static_cast<std::size_t>(wanted) + 1);
    return Value(slice_bytes(run, *text, begin, end));
  }
  return std::nullopt;
}

Value slice_text(Run& run, const TextPtr& text, const SliceRange& range) {
  const auto start = static_cast<std::size_t>(range.start);
  if (range.step == 1) {
    const std::size_t end = start + static_cast<std::size_t>(range.count);
    run.charge(text->bytes.size() / (is_ascii(*text) ? 256 : 16));
    return slice_bytes(run, text, byte_offset(*text, start), byte_offset(*text, end));
  }
  run.charge(text->bytes.size() / 8);
  Share share;
  share.set(run.memory(), sizeof(std::uint32_t) * (text->characters + 1));
  std::vector<std::uint32_t> offsets;  // limits make texts shorter than they can count
  offsets.reserve(text->characters + 1);
  for (std::size_t i = 0; i < text->bytes.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text->bytes[i]) & 0xC0) != 0x80;
    if (begins) offsets.push_back(static_cast<std::uint32_t>(i));
  }
  offsets.push_back(static_cast<std::uint32_t>(text->bytes.size()));
  TextBuilder sliced(run);
  for (std::int64_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<std::size_t>(range.start + i * range.step);
    sliced.add(*text, offsets[at], offsets[at + 1]);
  }
  sliced.set_safe(text->safe);
  return sliced.finish();
}

}  // namespace

SliceRange slice_range(std::int64_t size, const Value* start, const Value* stop,
                       const Value* step) {
  const auto given = [](const Value* bound) { return bound != nullptr && !bound->is_none(); };
  SliceRange range;
  if (given(step)) range.step = need_index(*step);
  if (range.step == 0) fail("slice step cannot be zero");
  const bool back = range.step < 0;
  const std::int64_t least = back ? -1 : 0;
  const std::int64_t most = back ? size - 1 : size;
  const auto bound = [&](const Value* value, std::int64_t absent) {
    if (!given(value)) return absent;
    const std::int64_t index = need_index(*value);
    return std::clamp(index < 0 ? std::max(index, -size - 1) + size : index, least, most);
  };
  range.start = bound(start, back ? most : least);
  range.stop = bound(stop, back ? least : most);
  const std::int64_t distance = back ? range.start - range.stop : range.stop - range.start;
  const std::int64_t stride = back ? -range.step : range.step;
  if (distance > 0) range.count = (distance - 1) / stride + 1;
  return range;
}

Value get_attribute(Run& run, const Value& value, std::string_view name) {
  run.charge(name.size() / 64);
  need_defined(value);
  if (auto attribute = attribute_of(run, value, name)) return *std::move(attribute);
  if (const Dict* dict = value.dict_or_null()) {
    if (const Value* found = dict->find(name)) return *found;
  } else if (auto item = item_of(run, value, Value::text(name))) {
    return *std::move(item);
  }
  return missing_attribute(value, name);
}

Value get_item(Run& run, const Value& value, const Value& key) {
  need_defined(value);
  if (auto item = item_of(run, value, key)) return *std::move(item);
  if (const Text* name = key.text_or_null()) {
    if (auto attribute = attribute_of(run, value, name->bytes)) return *std::move(attribute);
  }
  return missing_item(run, value, key);
}

Value get_slice(Run& run, const Value& value, const Value* start, const Value* stop,
                const Value* step) {
  need_defined(value);
  if (Object* object = value.object_or_null()) {
    const auto bound = [](const Value* given) { return given == nullptr ? Value(None{}) : *given; };
    if (auto slice = object->slice(run, bound(start), bound(stop), bound(step))) return *slice;
  }
  const TextPtr* text = value.as<TextPtr>();
  const auto* items = value.items();
  if (text == nullptr && items == nullptr) {
    fail("'" + type_name(value) + "' object cannot be sliced");
  }
  const auto size = static_cast<std::int64_t>(need_length(run, value));
  const SliceRange range = slice_range(size, start, stop, step);
  if (text != nullptr) return slice_text(run, *text, range);
  run.charge_items(static_cast<std::uint64_t>(range.count));
  std::vector<Value> sliced;
  for (std::int64_t i = 0; i < range.count; ++i) {
    sliced.push_back((*items)[static_cast<std::size_t>(range.start + i * range.step)]);
  }
  return value.list_or_null() != nullptr ? Value::list(std::move(sliced))
                                         : Value::tuple(std::move(sliced));
}

}  // namespace moepack::jinja
