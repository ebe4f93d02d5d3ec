// Whether given strings match a pattern: the grammar that writes such strings reads them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "formats/base/status.h"
#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/grammar_machine.h"
#include "runtime/constrain/json_rules.h"
#include "runtime/constrain/string_pattern.h"
#include "runtime/schema/flat_schema.h"
#include "runtime/schema/schema_limits.h"

namespace moepack {

class PatternMatcher {
 public:
  explicit PatternMatcher(const StringPattern& pattern);
  PatternMatcher(const PatternMatcher&) = delete;  // the machine holds on to the graph
  PatternMatcher& operator=(const PatternMatcher&) = delete;
  bool matches(std::string_view text);
  std::size_t nodes() const { return graph_.size(); }

 private:
  GrammarGraph graph_;
  JsonRules rules_;
  GrammarNodeId start_ = 0;
  std::optional<GrammarMachine> machine_;
};

// The matchers of a document's schemas, each pattern once.
class PatternMatchers {
 public:
  PatternMatchers(SchemaWork& work, SchemaFlattener::Listener on_warning)
      : work_(work), on_warning_(std::move(on_warning)) {}

  // What "pattern" or "format" of a schema says of strings; nullptr: nothing.
  Result<PatternMatcher*> of(const OrderedJson& schema);

 private:
  SchemaWork& work_;
  SchemaFlattener::Listener on_warning_;
  std::map<std::string, std::unique_ptr<PatternMatcher>> known_;  // by the keywords' text
};

}  // namespace moepack
