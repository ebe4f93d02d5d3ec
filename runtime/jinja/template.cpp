#include "runtime/jinja/template.h"

#include <algorithm>

#include "formats/base/utf8.h"
#include "runtime/jinja/ast.h"
#include "runtime/jinja/interpreter.h"

namespace moepack::jinja {
namespace {

using Json = nlohmann::ordered_json;

bool is_own_word(const Variables& variables, const std::string& name, const Json& value) {
  if (variables.word_member.empty() || name != variables.word_member) return false;
  return value.is_string() &&
         std::find(variables.words.begin(), variables.words.end(),
                   value.get_ref<const std::string&>()) != variables.words.end();
}

Value counted(Run& run, Value value) {
  count_held(run, value, 0);
  return value;
}

Value from_json(Run& run, const Json& json, const Variables& variables, bool from_user) {
  const Run::Depth depth(run);
  run.charge(1);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return Value(static_cast<Integer>(json.get<std::uint64_t>()));
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      TextBuilder builder(run);
      builder.add(text, from_user);
      return Value(builder.finish());
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(run, item, variables, from_user));
      return counted(run, Value::list(std::move(items)));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) {
        const bool is_marked = from_user && !is_own_word(variables, key, value);
        dict->set(Value(make_text(key, from_user)), from_json(run, value, variables, is_marked));
      }
      return counted(run, Value(std::move(dict)));
    }
    default:
      return Value(None{});
  }
}

void add_variables(Run& run, const Variables& variables, bool from_user, Dict& names) {
  for (const auto& [name, value] : (from_user ? variables.user : variables.own).items()) {
    names.set(Value::text(name), from_json(run, value, variables, from_user));
  }
}

std::string place(const Position& at) {
  return "line " + std::to_string(at.line) + ", column " + std::to_string(at.column) + ": ";
}

StatusCode code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kSyntax:
      return StatusCode::kCorrupt;
    case ErrorKind::kLimit:
    case ErrorKind::kUnsupported:
      return StatusCode::kUnsupported;
    default:
      return StatusCode::kInvalidArgument;
  }
}

Status status_of(const Error& error, const std::string& name, const Position& at) {
  const std::string said = printable(error.message, 1000);
  const std::string what =
      error.kind == ErrorKind::kRaised ? "the template refuses this: " + said : said;
  return make_error(code_of(error.kind), Where{.file = name}, place(at) + what);
}

}  // namespace

struct Template::Impl {
  std::string name;
  Limits limits;
  Tree tree;
};

Template::Template(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::compile(std::string_view source, std::string name,
                                   const Limits& limits) {
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  impl->limits = limits;
  const std::size_t invalid = find_invalid_utf8(source);
  if (invalid != std::string_view::npos) {
    return corrupt(Where{.file = impl->name, .tensor = {}, .offset = invalid}, "not valid UTF-8");
  }
  Position at;
  try {
    impl->tree = parse(source, impl->limits, at);
    bind_names(impl->tree, at);
  } catch (const Error& error) {
    return status_of(error, impl->name, at);
  }
  return Template(std::move(impl));
}

Result<Rendered> Template::render(const Variables& variables) const {
  Run run(impl_->limits, variables.clock);
  try {
    Dict names;
    add_globals(names);
    add_variables(run, variables, false, names);
    add_variables(run, variables, true, names);
    const TextPtr text = Interpreter(run, names).render(impl_->tree);
    if (find_invalid_utf8(text->bytes) != std::string::npos) {
      fail("the text holds what is not UTF-8");
    }
    return Rendered{text->bytes, text->user};
  } catch (const Error& error) {
    return status_of(error, impl_->name, run.at);
  }
}

}  // namespace moepack::jinja
