// Texts with a limit: whatever is chosen, they are complete before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>

#include "runtime/constrain/grammar.h"
#include "runtime/constrain/grammar_machine.h"
#include "tests/runtime/constrain/constrain_support.h"

namespace moepack::closing_test {
namespace {

using test::kEndId;
using test::make_vocabulary;
using test::usual_pieces;

std::uint64_t fewest_of(const Grammar& grammar, const TokenBytes& tokens) {
  std::vector<bool> is_bound;
  for (const std::string& text : grammar.graph.markers()) {
    is_bound.push_back(tokens.find_marker(text) >= 0);
  }
  GrammarMachine machine(grammar.graph, is_bound);
  return machine.fewest(machine.start(grammar.start));
}

// How far a token leads from the end, as a guess: what opens and goes on first, what closes last.
int lengthening(std::string_view bytes) {
  if (bytes.find_first_of("[{,") != std::string_view::npos) return 3;
  if (bytes.find_first_of("}]\">") != std::string_view::npos) return 0;
  return std::isalnum(static_cast<unsigned char>(bytes[0])) != 0 ? 2 : 1;
}

struct LimitedWalk {
  std::vector<std::int32_t> ids;  // without the end
  std::string text;
  bool has_ended = false;
};

// Takes the end only where nothing else is allowed.
LimitedWalk lengthening_walk(TokenFilter& filter, const TokenBytes& tokens, std::mt19937& random,
                             std::uint64_t limit) {
  LimitedWalk walk;
  std::vector<float> logits(tokens.size());
  for (std::uint64_t left = limit; left > 0; --left) {
    filter.set_remaining(left);
    // What allows() says is asked before the mask is known in half of the steps.
    const auto asked = static_cast<std::int32_t>(random() % tokens.size());
    const bool is_asked_before = random() % 2 == 0;
    const bool was_allowed = is_asked_before && filter.allows(asked);
    std::fill(logits.begin(), logits.end(), 0.0F);
    filter.mask(logits);
    const bool is_masked = std::isinf(logits[static_cast<std::size_t>(asked)]);
    if (is_asked_before) {
      EXPECT_EQ(was_allowed, !is_masked) << asked << " after " << walk.text;
    }
    std::vector<std::int32_t> best;
    const int wanted = random() % 4 == 0 ? 2 : 3;
    int highest = -2;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      if (random() % 16 == 0) {
        EXPECT_EQ(filter.allows(id), !std::isinf(logits[i])) << walk.text;
      }
      if (std::isinf(logits[i])) continue;
      const int far = id == kEndId ? -1 : std::min(wanted, lengthening(tokens.bytes(id)));
      if (far > highest) best.clear();
      highest = std::max(highest, far);
      if (far == highest) best.push_back(id);
    }
    if (best.empty()) return walk;
    const std::int32_t id = best[random() % best.size()];
    filter.accept(id);
    walk.has_ended = id == kEndId;
    if (walk.has_ended) return walk;
    walk.ids.push_back(id);
    walk.text += tokens.bytes(id);
  }
  return walk;
}

TEST(Closing, StoredSchemasAreCompleteInTime) {
  std::ifstream file(MOEPACK_SOURCE_DIR "/tests/golden/schemas/cases.json");
  const OrderedJson cases = OrderedJson::parse(file);
  const auto tokens = make_vocabulary(usual_pieces());
  std::mt19937 random(21);
  for (const OrderedJson& c : cases) {
    std::vector<std::string> warnings;
    const auto grammar = make_schema_grammar(c["schema"], &warnings);
    ASSERT_TRUE(grammar.is_ok());
    const std::uint64_t fewest = fewest_of(*grammar.value(), *tokens);
    ASSERT_LT(fewest, 10000U) << c["schema"];
    for (const std::uint64_t more : {0U, 8U, 11U, 24U, 57U, 120U, 200U}) {
      const auto filter = make_constraint(grammar.value(), tokens, "");
      const LimitedWalk walk = lengthening_walk(*filter, *tokens, random, fewest + 1 + more);
      ASSERT_TRUE(walk.has_ended) << walk.text << " by " << c["schema"] << " and " << more;
      const OrderedJson value = OrderedJson::parse(walk.text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << walk.text << " by " << c["schema"];
      EXPECT_TRUE(test::is_valid_json(c["schema"], c["schema"], value))
          << walk.text << " by " << c["schema"];
    }
  }
}

ToolSpec tool(const std::string& name, const std::string& parameters) {
  ToolSpec spec;
  spec.name = name;
  spec.parameters = OrderedJson::parse(parameters);
  return spec;
}

TEST(Closing, CallsAreCompleteInTime) {
  ToolGrammarOptions options;
  options.tools = {tool("sum", R"({"type":"object","properties":{"values":{"type":"array",
          "items":{"type":"number"}},"note":{"type":"string"}},"required":["values"]})"),
                   tool("now", R"({"type":"object","properties":{}})")};
  options.is_required = true;
  const std::vector<std::pair<ToolFormat, std::vector<std::string>>> families = {
      {ToolFormat::kHermes, {"<tool_call>", "</tool_call>"}},
      {ToolFormat::kQwenXml, {"<tool_call>", "</tool_call>"}},
      {ToolFormat::kGlm,
       {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
      {ToolFormat::kKimi,
       {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
        "<|tool_call_end|>", "<|tool_call_argument_begin|>"}},
      {ToolFormat::kMinimax, {"<minimax:tool_call>", "</minimax:tool_call>"}}};
  std::mt19937 random(22);
  for (const auto& [format, markers] : families) {
    options.format = format;
    for (const bool has_markers : {true, false}) {
      const auto tokens =
          make_vocabulary(usual_pieces(), has_markers ? markers : std::vector<std::string>{});
      for (const bool is_parallel : {true, false}) {
        options.is_parallel = is_parallel;
        const auto grammar = make_tool_grammar(options, nullptr);
        ASSERT_TRUE(grammar.is_ok());
        const std::uint64_t fewest = fewest_of(*grammar.value(), *tokens);
        for (const std::uint64_t more : {0U, 8U, 11U, 24U, 57U, 120U, 200U}) {
          const auto filter = make_constraint(grammar.value(), tokens, "");
          const LimitedWalk walk = lengthening_walk(*filter, *tokens, random, fewest + 1 + more);
          EXPECT_TRUE(walk.has_ended) << walk.text << " and " << more;
          EXPECT_TRUE(test::accepts(grammar.value(), tokens, walk.ids)) << walk.text;
        }
      }
    }
  }
}

class Values : public ::testing::Test {
 protected:
  void accept(std::string_view text) {
    for (const char c : text) filter_->accept(static_cast<unsigned char>(c));
  }
  std::string allowed(std::uint64_t remaining) {
    filter_->set_remaining(remaining);
    std::vector<float> logits(tokens_->size());
    filter_->mask(logits);
    std::string text;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_EQ(filter_->allows(static_cast<std::int32_t>(i)), !std::isinf(logits[i])) << i;
      if (std::isinf(logits[i])) continue;
      text += i == kEndId ? "end" : std::string(tokens_->bytes(static_cast<std::int32_t>(i)));
    }
    return text;
  }

  std::shared_ptr<const TokenBytes> tokens_ = make_vocabulary({"}", ",1", "]}"});
  std::shared_ptr<const Grammar> grammar_ =
      make_schema_grammar(OrderedJson::parse(R"({"type":"object","properties":{"v":{"type":"array",
          "items":{"type":"integer"},"minItems":2}},"required":["v"]})"),
                          nullptr)
          .value();
  std::unique_ptr<TokenFilter> filter_ = make_constraint(grammar_, tokens_, "");
};

TEST_F(Values, CountedByHand) {
  EXPECT_EQ(fewest_of(*grammar_, *tokens_), std::string(R"({"v":[0,0]})").size());
  accept(R"({"v":[8)");
  // `,0]}` and the end are five tokens; a digit more is a sixth, `,1` saves one.
  EXPECT_EQ(allowed(7), ",0123456789,1");
  EXPECT_EQ(allowed(6), ",0123456789,1");
  EXPECT_EQ(allowed(5), ",,1");
  EXPECT_EQ(allowed(4), ",1");
  // Nothing is in time: as without a limit.
  EXPECT_EQ(allowed(3), allowed(1000));
  EXPECT_EQ(allowed(1000), ",0123456789,1");
}

TEST_F(Values, ALoopIsClosed) {
  accept(R"({"v":[8)");
  std::uint64_t remaining = 100;
  for (; allowed(remaining).find(',') != std::string::npos; --remaining) accept(",8");
  EXPECT_EQ(allowed(3), "]]}");
  EXPECT_EQ(allowed(2), "]}");
  accept("]}");
  EXPECT_EQ(allowed(1), "end");
}

}  // namespace
}  // namespace moepack::closing_test
