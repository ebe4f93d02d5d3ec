#include "runtime/jinja/arguments.h"
#include "runtime/jinja/builtin.h"
#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/numbers.h"

namespace moepack::jinja {

Loop::Loop(Run& run, Interpreter& interpreter, Value items, const Statement* recurse,
           ActivationPtr outer, std::size_t depth)
    : interpreter_(interpreter),
      items_(std::move(items)),
      iterator_(jinja::iterate(run, items_)),
      recurse_(recurse),
      outer_(std::move(outer)),
      depth_(depth) {}

bool Loop::peek(Run& run) {
  if (after_) return true;
  Value value;
  if (!iterator_->next(run, value)) return false;
  after_ = std::move(value);
  return true;
}

bool Loop::next(Run& run, Value& value) {
  if (!peek(run)) return false;
  value = *after_;
  after_.reset();
  ++index_;
  before_ = std::move(current_);
  current_ = value;
  return true;
}

std::optional<std::size_t> Loop::length(Run& run) {
  if (length_) return length_;
  length_ = jinja::length(run, items_);
  if (length_) return length_;
  // Without a length of their own the rest of the items is computed now.
  std::vector<Value> rest = to_vector(run, Value(ObjectPtr(iterator_)));
  length_ = rest.size() + static_cast<std::size_t>(index_ + 1) + (after_ ? 1 : 0);
  iterator_ = jinja::iterate(run, Value::list(std::move(rest)));
  return length_;
}

Value Loop::changed(Run& run, const Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("changed() takes no keyword arguments");
  const auto same = [&](const std::vector<Value>& before) {
    return equal(run, Value::tuple(before), Value::tuple(arguments.positional));
  };
  if (last_changed_ != nullptr && same(last_changed_->items)) return Value(false);
  if (last_changed_ == nullptr) last_changed_ = std::make_shared<List>();
  run.keep(last_changed_);
  last_changed_->items = arguments.positional;
  return Value(true);
}

std::optional<Value> Loop::attribute(Run& run, std::string_view name) {
  const auto count = [&] { return static_cast<std::int64_t>(*length(run)); };
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "index0") return Value::integer(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!peek(run));
  if (name == "length") return Value::integer(count());
  if (name == "revindex") return Value::integer(count() - index_);
  if (name == "revindex0") return Value::integer(count() - index_ - 1);
  if (name == "depth") return Value::size(depth_ + 1);
  if (name == "depth0") return Value::size(depth_);
  if (name == "previtem") {
    return index_ == 0 || !before_ ? Value::undefined("there is no previous item") : *before_;
  }
  if (name == "nextitem") {
    return peek(run) ? *after_ : Value::undefined("there is no next item");
  }
  const std::weak_ptr<Object> self = shared_from_this();
  if (name == "cycle") {
    return make_function("cycle", [self](Run&, Arguments& arguments) {
      const auto loop = std::static_pointer_cast<Loop>(self.lock());
      if (!arguments.keywords.empty()) fail("cycle() takes no keyword arguments");
      if (arguments.positional.empty()) fail("no items for cycling given");
      if (loop == nullptr) fail("the loop is over");
      const auto size = static_cast<std::int64_t>(arguments.positional.size());
      return arguments.positional[static_cast<std::size_t>(
          static_cast<std::int64_t>(floor_modulo(loop->index_, size)))];
    });
  }
  if (name == "changed") {
    return make_function("changed", [self](Run& at, Arguments& arguments) {
      const auto loop = std::static_pointer_cast<Loop>(self.lock());
      if (loop == nullptr) fail("the loop is over");
      return loop->changed(at, arguments);
    });
  }
  return std::nullopt;
}

Value Loop::call(Run&, Arguments& arguments) {
  expect_count("loop", arguments, 1, 1);
  if (recurse_ == nullptr) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  return interpreter_.run_recursive_loop(*recurse_, outer_, arguments.positional[0], depth_ + 1);
}

std::optional<TextPtr> Loop::repr(Run& run) {
  return make_text("<LoopContext " + std::to_string(index_ + 1) + "/" +
                   std::to_string(*length(run)) + ">");
}

}  // namespace moepack::jinja
