#include "runtime/constrain/tool_arguments.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "runtime/constrain/schema_compiler.h"
#include "runtime/constrain/schema_limits.h"

namespace moepack {
namespace {

// The schema of the arguments, which are an object.
OrderedJson arguments_schema(const ToolSpec& tool) {
  if (!tool.parameters.is_object()) {
    return {
        {"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
  }
  OrderedJson schema = tool.parameters;
  schema["type"] = "object";
  return schema;
}

// What the value of a key may be between tags.
struct TaggedValue {
  bool is_text = false;                // anything
  std::set<std::string> texts, words;  // one of these texts, or of these JSON values
  std::vector<OrderedJson> json;       // a value of one of these schemas
};

void add_type(const OrderedJson& base, const std::string& type, TaggedValue& value) {
  if (type == "string") {
    value.is_text = true;
  } else if (type == "boolean") {
    value.words.insert({"true", "false"});
  } else if (type == "null") {
    value.words.insert("null");
  } else {
    OrderedJson schema = base;
    schema["type"] = type;
    value.json.push_back(std::move(schema));
  }
}

void add_constants(const OrderedJson& constants, TaggedValue& value) {
  for (const OrderedJson& constant : constants) {
    if (constant.is_string()) {
      value.texts.insert(constant.get<std::string>());
    } else {
      value.words.insert(constant.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    }
  }
}

// Where a string is possible any text is: it may look like anything.
Status add_value(SchemaCompiler& compiler, const OrderedJson& schema, int depth,
                 TaggedValue& value) {
  MOE_ASSIGN_OR_RETURN(const FlatSchema flat, compiler.flatten(schema));
  constexpr int kMaxDepth = 8;
  if (!flat.choices.empty()) {
    if (flat.choices.size() > 1 || depth >= kMaxDepth || !flat.choices.front().is_array()) {
      value.is_text = true;
      return Status::ok();
    }
    for (const OrderedJson& way : flat.choices.front()) {
      MOE_RETURN_IF_ERROR(add_value(compiler, way, depth + 1, value));
    }
    return Status::ok();
  }
  const OrderedJson& base = flat.base;
  if (!base.is_object()) {
    value.is_text = value.is_text || base == OrderedJson(true);
  } else if (base.contains("const")) {
    add_constants(OrderedJson::array({base["const"]}), value);
  } else if (base.contains("enum") && base["enum"].is_array()) {
    add_constants(base["enum"], value);
  } else if (!base.contains("type")) {
    value.is_text = true;
  } else {
    const OrderedJson types =
        base["type"].is_array() ? base["type"] : OrderedJson::array({base["type"]});
    std::set<std::string> names;
    for (const OrderedJson& type : types) {
      if (!type.is_string() || !names.insert(type.get<std::string>()).second) continue;
      if (names.size() > kMostTypeNames) return invalid_argument("\"type\" names too many types");
      add_type(base, type.get<std::string>(), value);
    }
  }
  return Status::ok();
}

// A key that the schema does not name.
GrammarNodeId free_pair(const TaggedArguments& tags, GrammarNodeId text) {
  return tags.before_text("", text);
}

GrammarNodeId one_of(GrammarGraph& graph, const std::set<std::string>& texts, GrammarNodeId next) {
  std::vector<std::pair<std::string, GrammarNodeId>> all;
  for (const std::string& text : texts) all.emplace_back(text, next);
  return graph.literals(std::move(all));
}

// A key with its value, as a part. `text` is any text to the end of the value.
GrammarNodeId pair_of(GrammarGraph& graph, SchemaCompiler& compiler, const TaggedArguments& tags,
                      const std::string& key, TaggedValue value, GrammarNodeId text) {
  const GrammarNodeId end = graph.part_end();
  if (value.is_text) return tags.before_text(key, text);
  const GrammarNodeId after = tags.after_json(end);
  std::vector<GrammarNodeId> ways, values;
  if (!value.texts.empty()) {
    ways.push_back(tags.before_text(key, one_of(graph, value.texts, after)));
  }
  // Templates in Python print its spelling, so that models write it too.
  if (tags.writes_python() && value.words.count("true") > 0) value.words.insert("True");
  if (tags.writes_python() && value.words.count("false") > 0) value.words.insert("False");
  if (!value.words.empty()) values.push_back(one_of(graph, value.words, after));
  for (const OrderedJson& of_value : value.json) {
    values.push_back(graph.call(compiler.part_of(of_value), after));
  }
  if (!values.empty()) ways.push_back(tags.before_json(key, graph.choice(values)));
  return graph.choice(ways);
}

}  // namespace

GrammarNodeId tagged_key(GrammarGraph& graph, std::string_view key, GrammarNodeId next) {
  if (!key.empty()) return graph.literal(key, next);
  constexpr std::uint32_t kMaxKeyLength = 64;
  const ByteSet bytes =
      byte_range('a', 'z') | byte_range('A', 'Z') | byte_range('0', '9') | bytes_of("_.-");
  return graph.repeat(graph.bytes(bytes, graph.part_end()), 1, kMaxKeyLength, next);
}

void ToolArguments::warn(const ToolSpec& tool, std::string_view what) {
  constexpr std::size_t kMostWarnings = 50;
  if (warnings_ == nullptr || warnings_->size() >= kMostWarnings) return;
  warnings_->push_back("parameters of the tool " + printable(tool.name, 60) + ": " +
                       std::string(what) + "; any arguments are allowed");
}

// Only what was added since the last time: tools are many.
void ToolArguments::settle() {
  graph_.finish(settled_);
  settled_ = static_cast<GrammarNodeId>(graph_.size());
}

GrammarNodeId ToolArguments::json(const ToolSpec& tool, GrammarNodeId next) {
  if (graph_.is_too_large()) return graph_.never();
  const OrderedJson schema = arguments_schema(tool);
  const Status size = check_schema_size(schema);
  if (!size.is_ok()) {
    warn(tool, size.message());
    return rules_.object(next);
  }
  SchemaCompiler compiler(schema, graph_, rules_, work_, warnings_);
  const GrammarNodeId part = compiler.part_of(schema);
  const Status status = compiler.finish();
  if (status.is_ok()) {
    settle();
    if (graph_.node(part).need != GrammarNode::kNever) return graph_.call(part, next);
  }
  warn(tool, status.is_ok() ? "no value satisfies the schema" : status.message());
  return rules_.object(next);
}

GrammarNodeId ToolArguments::tagged(const ToolSpec& tool, const TaggedArguments& tags,
                                    GrammarNodeId next) {
  constexpr std::uint32_t kNoMaximum = GrammarNode::kNoMaximum;
  if (graph_.is_too_large()) return graph_.never();
  if (text_ == 0) text_ = tags.text_and_end(graph_.part_end());
  const GrammarNodeId text = text_;
  const OrderedJson schema = arguments_schema(tool);
  SchemaCompiler compiler(schema, graph_, rules_, work_, warnings_);
  const auto any = [&](std::string_view what) {
    warn(tool, what);
    return graph_.repeat(free_pair(tags, text), 0, kNoMaximum, next);
  };
  const Status size = check_schema_size(schema);
  if (!size.is_ok()) return any(size.message());
  const auto flat = compiler.flatten(schema);
  if (!flat.is_ok()) return any(flat.status().message());
  const OrderedJson& base = flat.value().base;
  const OrderedJson named =
      base.is_object() ? base.value("properties", OrderedJson::object()) : OrderedJson::object();
  if (!named.is_object()) return any("\"properties\" must be an object");
  if (named.empty()) {
    const bool is_open = base.is_object() && base.contains("additionalProperties") &&
                         base["additionalProperties"] != OrderedJson(false);
    return is_open ? graph_.repeat(free_pair(tags, text), 0, kNoMaximum, next) : next;
  }
  const OrderedJson required = base.value("required", OrderedJson::array());
  std::set<std::string> needed;
  for (const OrderedJson& key : required) {
    if (key.is_string()) needed.insert(key.get<std::string>());
  }
  const auto is_required = [&](const std::string& key) { return needed.count(key) > 0; };
  std::vector<GrammarNodeId> bodies;
  std::uint64_t required_bits = 0;
  for (const bool now : {true, false}) {
    for (const auto& [key, of_key] : named.items()) {
      if (is_required(key) != now || bodies.size() >= GrammarGraph::kMaxKeys) continue;
      TaggedValue value;
      const Status status = add_value(compiler, of_key, 0, value);
      if (!status.is_ok()) return any(status.message());
      if (now) required_bits |= std::uint64_t{1} << bodies.size();
      bodies.push_back(pair_of(graph_, compiler, tags, key, std::move(value), text));
    }
  }
  const Status status = compiler.finish();
  if (!status.is_ok()) return any(status.message());
  settle();
  const GrammarNodeId keys = graph_.keys(bodies, required_bits, next);
  const bool is_possible = std::all_of(bodies.begin(), bodies.end(), [&](GrammarNodeId body) {
    return body != graph_.never() && graph_.node(body).need != GrammarNode::kNever;
  });
  if (is_possible) return keys;
  return any("no value satisfies the schema of a key");
}

}  // namespace moepack
