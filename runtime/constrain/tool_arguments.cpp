#include "runtime/constrain/tool_arguments.h"

#include <algorithm>
#include <bitset>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "runtime/constrain/schema_compiler.h"
#include "runtime/schema/schema_limits.h"
#include "runtime/schema/tool_parameters.h"

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

void add_constants(const std::vector<OrderedJson>& constants, TaggedValue& value) {
  for (const OrderedJson& constant : constants) {
    if (constant.is_string()) {
      value.texts.insert(constant.get<std::string>());
    } else {
      value.words.insert(constant.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    }
  }
}

// One schema without references and choices.
Status add_plain_value(SchemaCompiler& compiler, const OrderedJson& base, TaggedValue& value) {
  if (!base.is_object()) {
    value.is_text = value.is_text || base == OrderedJson(true);
  } else if (base.contains("const") || base.contains("enum")) {
    MOE_ASSIGN_OR_RETURN(const std::vector<OrderedJson> constants, compiler.constants(base));
    add_constants(constants, value);
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

// Where a string is possible any text is: it may look like anything.
Result<TaggedValue> tagged_value(SchemaCompiler& compiler, const OrderedJson& schema) {
  MOE_ASSIGN_OR_RETURN(const PlainWays plain, compiler.flattener().plain_ways(schema));
  TaggedValue value;
  value.is_text = !plain.is_complete;
  for (const OrderedJson& way : plain.ways) {
    MOE_RETURN_IF_ERROR(add_plain_value(compiler, way, value));
  }
  return value;
}

// Any key with any text.
GrammarNodeId free_pair(const TaggedArguments& tags, GrammarNodeId text) {
  return tags.before_text({}, text);
}

// What must be given of the keys that have a place: one of these sets of places. None of them holds
// another, which would add nothing.
std::vector<std::uint64_t> required_sets(
    const ToolParameters& view, const std::map<std::string, std::size_t, std::less<>>& places) {
  const auto bit_of = [&places](const std::string& name) {
    const auto place = places.find(name);
    return place == places.end() ? std::uint64_t{0} : std::uint64_t{1} << place->second;
  };
  std::vector<std::uint64_t> sets(std::max<std::size_t>(view.required_ways.size(), 1), 0);
  for (std::size_t i = 0; i < view.required_ways.size(); ++i) {
    for (const std::string& name : view.required_ways[i]) sets[i] |= bit_of(name);
  }
  if (view.required_ways.empty()) {
    for (const ToolParameter& one : view.named) sets[0] |= one.is_required ? bit_of(one.name) : 0;
  }
  const auto bits_of = [](std::uint64_t set) { return std::bitset<64>(set).count(); };
  std::sort(sets.begin(), sets.end(), [&](std::uint64_t a, std::uint64_t b) {
    return std::pair(bits_of(a), a) < std::pair(bits_of(b), b);
  });
  std::vector<std::uint64_t> least;
  for (const std::uint64_t set : sets) {
    const auto is_within = [set](std::uint64_t one) { return (one & ~set) == 0; };
    if (std::none_of(least.begin(), least.end(), is_within)) least.push_back(set);
  }
  return least;
}

std::vector<std::string> sorted_names(const ToolParameters& parameters) {
  std::vector<std::string> names;
  for (const ToolParameter& one : parameters.named) names.push_back(one.name);
  std::sort(names.begin(), names.end());
  return names;
}

GrammarNodeId one_of(GrammarGraph& graph, const std::set<std::string>& texts, GrammarNodeId next) {
  std::vector<std::pair<std::string, GrammarNodeId>> all;
  for (const std::string& text : texts) all.emplace_back(text, next);
  return graph.literals(std::move(all));
}

struct NamedBody {
  std::string_view name;
  GrammarNodeId body = 0;
  bool is_required = false;  // by one of the ways at least
};

// A key with its value, as a part. `text` is any text to the end of the value.
GrammarNodeId pair_of(GrammarGraph& graph, SchemaCompiler& compiler, const TaggedArguments& tags,
                      const TaggedKey& key, TaggedValue value, GrammarNodeId text) {
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

// A key of letters, digits and "_.-" that is none of some names.
class OtherKey {
 public:
  OtherKey(GrammarGraph& graph, GrammarNodeId next) : graph_(graph), next_(next) {}

  // Sorted, each once.
  GrammarNodeId build(std::span<const std::string> names) { return after(0, names); }

 private:
  static constexpr std::uint32_t kMaxKeyLength = 64;

  static ByteSet key_bytes() {
    return byte_range('a', 'z') | byte_range('A', 'Z') | byte_range('0', '9') | bytes_of("_.-");
  }

  // Behind `length` bytes with which all `names`, and no others, begin.
  GrammarNodeId after(std::uint32_t length, std::span<const std::string> names) {
    const bool is_name = !names.empty() && names.front().size() == length;
    if (is_name) names = names.subspan(1);
    ByteSet leaving = key_bytes();
    std::vector<GrammarEdge> edges;
    while (!names.empty() && length < kMaxKeyLength) {
      const char byte = names.front()[length];
      const auto other = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
        return name[length] != byte;
      });
      const auto count = static_cast<std::size_t>(other - names.begin());
      const ByteSet one = bytes_of(std::string_view(&byte, 1)) & key_bytes();
      if (one.any()) edges.push_back({one, after(length + 1, names.first(count))});
      leaving &= ~one;
      names = names.subspan(count);
    }
    if (length < kMaxKeyLength) edges.push_back({leaving, rest(kMaxKeyLength - length - 1)});
    const GrammarNodeId more = graph_.bytes(edges);
    return is_name || length == 0 ? more : graph_.choice({more, next_});
  }

  GrammarNodeId rest(std::uint32_t most) {
    if (byte_ == 0) byte_ = graph_.bytes(key_bytes(), graph_.part_end());
    return graph_.repeat(byte_, 0, most, next_);
  }

  GrammarGraph& graph_;
  const GrammarNodeId next_;
  GrammarNodeId byte_ = 0;  // of what is no name any more, as a part; 0: not yet built
};

}  // namespace

bool is_key_size(std::size_t bytes) {
  constexpr std::size_t kLongestKey = 230;
  return bytes > 0 && bytes <= kLongestKey;
}

bool is_carried_by_tag(std::string_view key) {
  constexpr std::string_view kTakenOff = " \t\r\"'";
  return is_key_size(key.size()) && key.find_first_of(">\n") == std::string_view::npos &&
         kTakenOff.find(key.front()) == std::string_view::npos &&
         kTakenOff.find(key.back()) == std::string_view::npos;
}

GrammarNodeId tagged_key(GrammarGraph& graph, const TaggedKey& key, GrammarNodeId next) {
  if (!key.name.empty()) return graph.literal(key.name, next);
  return OtherKey(graph, next).build(key.others);
}

void ToolArguments::warn(const ToolSpec& tool, std::string_view what) {
  constexpr std::size_t kMostWarnings = 50;
  if (warnings_ == nullptr || warnings_->size() >= kMostWarnings) return;
  std::string text = "parameters of the tool " + printable(tool.name, 60) + ": " +
                     std::string(what) + "; any arguments are allowed";
  // A family with two frames asks for the arguments of each.
  const bool is_told = std::find(warnings_->begin(), warnings_->end(), text) != warnings_->end();
  if (!is_told) warnings_->push_back(std::move(text));
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
  if (graph_.is_too_large()) return graph_.never();
  if (text_ == 0) text_ = tags.text_and_end(graph_.part_end());
  const Result<GrammarNodeId> keys = tagged_keys(tool, tags, next);
  if (keys.is_ok()) return keys.value();
  warn(tool, keys.status().message());
  return graph_.repeat(free_pair(tags, text_), 0, GrammarNode::kNoMaximum, next);
}

Result<GrammarNodeId> ToolArguments::tagged_keys(const ToolSpec& tool, const TaggedArguments& tags,
                                                 GrammarNodeId next) {
  const OrderedJson schema = arguments_schema(tool);
  MOE_RETURN_IF_ERROR(check_schema_size(schema));
  SchemaCompiler compiler(schema, graph_, rules_, work_, warnings_);
  MOE_ASSIGN_OR_RETURN(const ToolParameters view, tool_parameters(schema, compiler.flattener()));
  std::vector<NamedBody> named;
  const auto pair = [&](const TaggedKey& key, const OrderedJson& of_key) -> Result<GrammarNodeId> {
    MOE_ASSIGN_OR_RETURN(TaggedValue value, tagged_value(compiler, of_key));
    return pair_of(graph_, compiler, tags, key, std::move(value), text_);
  };
  for (const bool now : {true, false}) {
    for (const ToolParameter& one : view.named) {
      if (one.is_required_somewhere != now || named.size() >= GrammarGraph::kMaxKeys) continue;
      if (!tags.carries(one.name)) {
        if (now) return invalid_argument("tags cannot hold the key " + printable(one.name, 60));
        continue;
      }
      MOE_ASSIGN_OR_RETURN(const GrammarNodeId body, pair({.name = one.name}, one.schema));
      named.push_back({one.name, body, now});
    }
  }
  GrammarNodeId behind = next;
  if (view.others.has_value() && *view.others != OrderedJson(false)) {
    const std::vector<std::string> names = sorted_names(view);
    MOE_ASSIGN_OR_RETURN(const GrammarNodeId other, pair({.others = names}, *view.others));
    behind = graph_.repeat(other, 0, GrammarNode::kNoMaximum, next);
  }
  MOE_RETURN_IF_ERROR(compiler.finish());
  settle();
  std::vector<GrammarNodeId> bodies;
  std::map<std::string, std::size_t, std::less<>> places;
  for (const NamedBody& one : named) {
    if (one.body == graph_.never() || graph_.node(one.body).need == GrammarNode::kNever) {
      if (one.is_required) return invalid_argument("no value satisfies the schema of a key");
      continue;  // the key cannot be given
    }
    places.emplace(one.name, bodies.size());
    bodies.push_back(one.body);
  }
  if (bodies.empty()) return behind;
  std::vector<GrammarNodeId> ways;
  for (const std::uint64_t required : required_sets(view, places)) {
    ways.push_back(graph_.keys(bodies, required, behind));
  }
  return ways.size() == 1 ? ways.front() : graph_.choice(ways);
}

}  // namespace moepack
