#include <ctime>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/builtin.h"
#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"

namespace moepack::jinja {
namespace {

class Function final : public Object {
 public:
  Function(std::string name, Builtin function)
      : name_(std::move(name)), function_(std::move(function)) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Run& run, Arguments& arguments) override { return function_(run, arguments); }
  std::optional<TextPtr> repr(Run&) override { return make_text("<function " + name_ + ">"); }

 private:
  std::string name_;
  Builtin function_;
};

class Namespace final : public Object {
 public:
  explicit Namespace(DictPtr attributes) : attributes_(std::move(attributes)) {}
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Run&, std::string_view name) override {
    const Value* found = attributes_->find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  std::optional<TextPtr> repr(Run& run) override {
    TextBuilder out(run);
    out.add("<Namespace ");
    out.add(*jinja::repr(run, Value(attributes_)));
    out.add(">");
    return out.finish();
  }
  const DictPtr& attributes() const { return attributes_; }

 private:
  DictPtr attributes_;
};

class Range final : public Object {
 public:
  Range(Integer start, Integer stop, Integer step) : start_(start), stop_(stop), step_(step) {
    const Integer distance =
        step > 0 ? subtract_integers(stop, start) : subtract_integers(start, stop);
    const Integer stride = step > 0 ? step : subtract_integers(0, step);
    if (distance > 0) size_ = (distance - 1) / stride + 1;
  }
  Integer size() const { return size_; }
  std::string_view type_name() const override { return "range"; }
  std::optional<std::size_t> length(Run&) override { return static_cast<std::size_t>(size_); }
  bool has_items() const override { return true; }
  IteratorPtr iterate(Run&) override {
    const auto next = [start = start_, step = step_, size = size_, i = Integer{0}](
                          Run&, Value& value) mutable {
      if (i >= size) return false;
      value = Value(start + step * i++);
      return true;
    };
    return std::make_shared<Iterator>(next);
  }
  std::optional<Value> item(Run&, const Value& key) override {
    if (!key.index()) return std::nullopt;
    const Integer at = *key.index() < 0 ? *key.index() + size_ : *key.index();
    if (at < 0 || at >= size_) return std::nullopt;
    return Value(start_ + step_ * at);
  }
  std::optional<Value> slice(Run&, const Value& start, const Value& stop,
                             const Value& step) override {
    const SliceRange cut = slice_range(static_cast<std::int64_t>(size_), &start, &stop, &step);
    return Value(ObjectPtr(std::make_shared<Range>(nth(cut.start), nth(cut.stop),
                                                   multiply_integers(cut.step, step_))));
  }
  std::optional<bool> contains(Run&, const Value& item) override {
    if (!item.index()) return std::nullopt;
    const Integer wanted = *item.index();
    if (step_ > 0 ? wanted < start_ || wanted >= stop_ : wanted > start_ || wanted <= stop_) {
      return false;
    }
    return (wanted - start_) % step_ == 0;
  }
  bool equals(Run&, const Object& other) override {
    const auto* range = dynamic_cast<const Range*>(&other);
    return range != nullptr && size_ == range->size_ &&
           (size_ == 0 || (start_ == range->start_ && (size_ == 1 || step_ == range->step_)));
  }
  std::optional<TextPtr> repr(Run&) override {
    return make_text("range(" + write_integer(start_) + ", " + write_integer(stop_) +
                     (step_ == 1 ? "" : ", " + write_integer(step_)) + ")");
  }

 private:
  Integer nth(Integer index) const { return add_integers(start_, multiply_integers(index, step_)); }
  Integer start_, stop_, step_;
  Integer size_ = 0;
};

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Run&, std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name == "pos") return Value::size(at_);
    if (name == "items") return Value::tuple(items_);
    if (name != "next" && name != "reset") return std::nullopt;
    const auto self = std::static_pointer_cast<Cycler>(shared_from_this());
    return make_function(std::string(name), [self, next = name == "next"](Run&, Arguments& given) {
      expect_count("a cycler's method", given, 0, 0);
      const Value current = self->items_[self->at_];
      self->at_ = next ? (self->at_ + 1) % self->items_.size() : 0;
      return next ? current : Value(None{});
    });
  }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

Value range(Run& run, Arguments& arguments) {
  expect_count("range", arguments, 1, 3);
  std::vector<Integer> bounds;
  for (const Value& argument : arguments.positional) {
    need_defined(argument);
    if (!argument.index()) fail("range() wants integers, not '" + type_name(argument) + "'");
    bounds.push_back(*argument.index());
    if (bounds.back() > (Integer{1} << 100) || bounds.back() < -(Integer{1} << 100)) {
      fail("range() of integers this large", ErrorKind::kLimit);
    }
  }
  const Integer start = bounds.size() > 1 ? bounds[0] : 0;
  const Integer stop = bounds.size() > 1 ? bounds[1] : bounds[0];
  const Integer step = bounds.size() > 2 ? bounds[2] : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  auto made = std::make_shared<Range>(start, stop, step);
  if (made->size() > static_cast<Integer>(run.limits().range_items)) {
    fail("range() of more than " + std::to_string(run.limits().range_items) + " integers",
         ErrorKind::kLimit);
  }
  return Value(ObjectPtr(std::move(made)));
}

DictPtr make_dict(Run& run, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("dict expected at most 1 argument");
  auto dict = std::make_shared<Dict>();
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    need_defined(from);
    if (const Dict* other = from.dict_or_null()) {
      for (const auto& [key, value] : other->entries()) dict->set(key, value);
    } else {
      for (const Value& entry : to_vector(run, from)) {
        const std::vector<Value> pair = to_vector(run, entry);
        if (pair.size() != 2) fail("dict() wants pairs");
        check_hashable(run, pair[0]);
        dict->set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) dict->set(Value(name), value);
  run.charge_items(dict->size());
  return dict;
}

Value dict(Run& run, Arguments& arguments) { return Value(make_dict(run, arguments)); }

Value make_namespace(Run& run, Arguments& arguments) {
  DictPtr attributes = make_dict(run, arguments);
  run.keep(attributes);
  return Value(ObjectPtr(std::make_shared<Namespace>(std::move(attributes))));
}

Value cycler(Run&, Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return Value(ObjectPtr(std::make_shared<Cycler>(arguments.positional)));
}

Value joiner(Run&, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  const Value separator = bound[0] == nullptr ? Value::text(", ") : *bound[0];
  return make_function("joiner", [separator, used = false](Run&, Arguments& given) mutable {
    expect_count("joiner", given, 0, 0);
    if (std::exchange(used, true)) return separator;
    return Value::text("");
  });
}

Value raise_exception(Run& run, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  fail(to_text(run, *bound[0])->bytes, ErrorKind::kRaised);
}

// The format for a date without a zone, as datetime.now() of Python is: its zone has no name and no
// offset. Its %f, which C lacks, are microseconds; the clock has whole seconds.
std::string without_zone(std::string_view format) {
  std::string plain;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain += format[i];
      continue;
    }
    const char kind = format[++i];
    if (kind == 'f') {
      plain += "000000";
    } else if (kind != 'z' && kind != 'Z') {
      plain.append({'%', kind});
    }
  }
  return plain;
}

Value strftime_now(Run& run, Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  // A blank behind it tells an empty result from one that does not fit.
  const std::string format = without_zone(need_text(*bound[0])->bytes) + " ";
  if (format.size() > 1024) fail("a format of a date this long", ErrorKind::kLimit);
  run.charge(format.size() / 2);
  std::string text(16 * format.size() + 256, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &run.clock());
#pragma GCC diagnostic pop
  if (size == 0) fail("strftime_now: the date does not fit");
  return Value::text(std::string_view(text).substr(0, size - 1));
}

Value lipsum(Run&, Arguments&) { fail("lipsum() is not supported", ErrorKind::kUnsupported); }

}  // namespace

Value make_function(std::string name, Builtin function) {
  return Value(ObjectPtr(std::make_shared<Function>(std::move(name), std::move(function))));
}

bool is_namespace(const Value& value) { return value.object_as<Namespace>() != nullptr; }

void set_namespace_attribute(Run&, const Value& target, const std::string& name, Value value) {
  const Namespace* space = target.object_as<Namespace>();
  if (space == nullptr) fail("cannot assign attribute on non-namespace object");
  space->attributes()->set(Value::text(name), std::move(value));
}

void add_globals(Dict& variables) {
  const auto add = [&](const char* name, Builtin function) {
    variables.set(Value::text(name), make_function(name, std::move(function)));
  };
  add("range", range);
  add("dict", dict);
  add("namespace", make_namespace);
  add("cycler", cycler);
  add("joiner", joiner);
  add("lipsum", lipsum);
  add("raise_exception", raise_exception);
  add("strftime_now", strftime_now);
}

}  // namespace moepack::jinja
