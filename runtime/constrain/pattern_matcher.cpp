#include "runtime/constrain/pattern_matcher.h"

#include "runtime/constrain/schema_keywords.h"

namespace moepack {
namespace {

// What a node of a pattern's graph counts for: it is kept while the document is compiled.
constexpr std::size_t kNodeBytes = 16;

}  // namespace

PatternMatcher::PatternMatcher(const StringPattern& pattern) : rules_(graph_) {
  const auto whole =
      pattern.json_string(graph_, rules_, 0, GrammarNode::kNoMaximum, graph_.text_end());
  start_ = whole.value_or(graph_.never());
  graph_.finish();
  machine_.emplace(graph_, std::vector<bool>());
}

bool PatternMatcher::matches(std::string_view text) {
  GrammarMachine::State state = machine_->start(start_);
  for (const char byte : JsonRules::quoted(text)) {
    if (machine_->is_full()) state = machine_->forget_all_but(state);
    state = machine_->step(state, static_cast<std::uint8_t>(byte), false);
  }
  return machine_->may_end(state);
}

Result<PatternMatcher*> PatternMatchers::of(const OrderedJson& schema) {
  OrderedJson keywords = OrderedJson::array();
  for (const char* key : {"pattern", "format"})
    keywords.push_back(schema.value(key, OrderedJson()));
  if (keywords[0].is_null() && keywords[1].is_null()) return nullptr;
  const auto [at, is_new] =
      known_.emplace(keywords.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), nullptr);
  if (!is_new) return at->second.get();
  MOE_ASSIGN_OR_RETURN(const std::optional<StringPattern> pattern,
                       pattern_keyword(schema, on_warning_));
  if (!pattern.has_value()) return nullptr;
  at->second = std::make_unique<PatternMatcher>(*pattern);
  if (!work_.spend(kNodeBytes * at->second->nodes())) return too_large_schema();
  return at->second.get();
}

}  // namespace moepack
