// The frames of calls, a family at a time (runtime/chat/tool_format.h).
//
// Sources: the chat templates of the families and what their models write: Qwen2.5 and Qwen3
// (Hermes), Qwen3-Coder, gpt-oss (harmony), DeepSeek V3.1 and V3.2, GLM-4.5 and 4.7, Kimi K2,
// MiniMax M2.
#include <functional>
#include <optional>
#include <utility>

#include "runtime/constrain/constraint.h"
#include "runtime/constrain/grammar.h"
#include "runtime/constrain/json_rules.h"
#include "runtime/constrain/schema_compiler.h"
#include "runtime/constrain/text_bytes.h"
#include "runtime/constrain/tool_arguments.h"

namespace moepack {
namespace {

constexpr std::string_view kDsmlTag = "｜DSML｜";

// A tag of DeepSeek V3.2, whose word is a token where the vocabulary has it.
GrammarNodeId dsml_frame(GrammarGraph& graph, std::string_view before, std::string_view behind,
                         GrammarNodeId next) {
  const GrammarNodeId rest = graph.literal(behind, next, ByteKind::kFrame);
  return graph.literal(before, graph.marker(kDsmlTag, rest), ByteKind::kFrame);
}

class ToolFrames {
 public:
  ToolFrames(const ToolGrammarOptions& options, Grammar& grammar,
             std::vector<std::string>* warnings)
      : options_(options),
        grammar_(grammar),
        graph_(grammar.graph),
        rules_(graph_),
        arguments_(graph_, rules_, warnings),
        warnings_(warnings) {}

  // Behind build(): the text may be an answer as well. Where the answer begins, or an error of the
  // schema.
  Result<GrammarNodeId> or_answer(const OrderedJson& schema) {
    MOE_RETURN_IF_ERROR(check_form_schema(schema));
    SchemaWork work;
    SchemaCompiler compiler(schema, graph_, rules_, work, warnings_);
    const GrammarNodeId value = graph_.call(compiler.part_of(schema), graph_.text_end());
    if (options_.format == ToolFormat::kHarmony) {
      graph_.set_later(answer_, harmony_answer(value));
    } else {
      grammar_.start = graph_.choice({grammar_.start, beginning(value)});
    }
    MOE_RETURN_IF_ERROR(compiler.finish());
    return value;
  }

  // False where the family is not known.
  bool build() {
    switch (options_.format) {
      case ToolFormat::kHermes:
        return calls_alone("<tool_call>", hermes());
      case ToolFormat::kQwenXml:
        return qwen_xml();
      case ToolFormat::kGlm:
        return calls_alone("<tool_call>", glm());
      case ToolFormat::kKimi:
        return calls_in_section("<|tool_calls_section_begin|>", kimi());
      case ToolFormat::kDeepseek:
        return calls_in_section("<｜tool▁calls▁begin｜>", deepseek());
      case ToolFormat::kMinimax:
        return calls_in_section("<minimax:tool_call>", minimax());
      case ToolFormat::kDsml:
        return dsml();
      case ToolFormat::kHarmony:
        return harmony();
      case ToolFormat::kNone:
        return false;
    }
    return false;
  }

 private:
  // A part of the text that is given what follows it.
  using Part = std::function<GrammarNodeId(GrammarNodeId next)>;

  GrammarNodeId frame(std::string_view text, GrammarNodeId next) {
    return graph_.literal(text, next, ByteKind::kFrame);
  }
  GrammarNodeId maybe_line_end(GrammarNodeId next) {
    return graph_.choice({next, frame("\n", next)});
  }
  // The name of one of the tools, then what `after` says of it.
  GrammarNodeId named(const std::function<GrammarNodeId(const ToolSpec&)>& after) {
    std::vector<std::pair<std::string, GrammarNodeId>> names;
    for (const ToolSpec& tool : options_.tools) names.emplace_back(tool.name, after(tool));
    return graph_.literals(std::move(names));
  }
  // Line ends that models write before a call.
  GrammarNodeId beginning(GrammarNodeId next) {
    return graph_.repeat(frame("\n", graph_.part_end()), 0, 2, next);
  }

  void add_trigger(std::string_view text, GrammarNodeId entry) {
    grammar_.triggers.push_back({std::string(text), entry});
  }
  // The end, or text that is free again: the token that ends the calls may reach into it.
  GrammarNodeId after_calls() {
    if (!grammar_.sleeps_again) return graph_.text_end();
    const GrammarNodeId free = graph_.later();
    graph_.set_later(free,
                     graph_.choice({graph_.text_end(), graph_.bytes(byte_range(0, 255), free)}));
    return free;
  }

  // A section, from behind its opening mark, where it is the last thing in the text or free text
  // follows.
  bool finish_sections(const std::vector<std::string>& openings, const Part& section) {
    grammar_.is_lazy = !options_.is_required;
    grammar_.sleeps_again = grammar_.is_lazy && options_.is_parallel;
    const GrammarNodeId inside = section(after_calls());
    std::vector<GrammarNodeId> starts;
    for (const std::string& opening : openings) {
      add_trigger(opening, inside);
      starts.push_back(graph_.marker(opening, inside));
    }
    grammar_.start = beginning(graph_.choice(starts));
    return true;
  }

  // Each call has an opening mark of its own; `call` is from behind it to the end of the call.
  bool calls_alone(const std::string& opening, const Part& call) {
    if (!options_.is_required || !options_.is_parallel) return finish_sections({opening}, call);
    const GrammarNodeId again = graph_.later();
    const GrammarNodeId inside = call(graph_.choice({graph_.text_end(), again}));
    const GrammarNodeId begin = graph_.marker(opening, inside);
    add_trigger(opening, inside);
    graph_.set_later(again, maybe_line_end(begin));
    grammar_.start = beginning(begin);
    return true;
  }

  // All calls are in one section. `calls` is given what may follow a call: another call (later) or
  // the end; it returns the node of a call and the closing of the section.
  struct Section {
    std::function<GrammarNodeId(GrammarNodeId after_call)> call;
    Part closing;
    std::string between;  // two calls, may be left out
  };
  Part in_section(Section section) {
    return [this, section = std::move(section)](GrammarNodeId next) {
      const GrammarNodeId again = graph_.later();
      const GrammarNodeId closing = section.closing(next);
      const GrammarNodeId call =
          section.call(options_.is_parallel ? graph_.choice({closing, again}) : closing);
      graph_.set_later(again, section.between.empty()
                                  ? call
                                  : graph_.choice({call, frame(section.between, call)}));
      return call;
    };
  }
  bool calls_in_section(const std::string& opening, Section section) {
    return finish_sections({opening}, in_section(std::move(section)));
  }

  Part hermes() {
    return [this](GrammarNodeId next) {
      const GrammarNodeId close = rules_.space(graph_.marker("</tool_call>", next));
      const GrammarNodeId end = rules_.space(graph_.literal("}", close));
      const auto after = [&](const ToolSpec& tool) {
        const GrammarNodeId arguments = rules_.space(arguments_.json(tool, end));
        const GrammarNodeId key = graph_.literal("\"arguments\":", arguments);
        return graph_.literal(",", rules_.space(key));
      };
      std::vector<std::pair<std::string, GrammarNodeId>> names;
      for (const ToolSpec& tool : options_.tools) {
        names.emplace_back(JsonRules::quoted(tool.name), after(tool));
      }
      const GrammarNodeId name =
          graph_.literal("\"name\":", rules_.space(graph_.literals(std::move(names))));
      return rules_.space(graph_.literal("{", rules_.space(name)));
    };
  }

  // <parameter=k>\nV\n</parameter>\n
  class QwenTags : public TaggedArguments {
   public:
    explicit QwenTags(GrammarGraph& graph) : graph_(graph) {}
    GrammarNodeId before_text(const TaggedKey& key, GrammarNodeId next) const override {
      const GrammarNodeId close = graph_.literal(">\n", next, ByteKind::kFrame);
      return graph_.literal("<parameter=", tagged_key(graph_, key, close), ByteKind::kFrame);
    }
    GrammarNodeId before_json(const TaggedKey& key, GrammarNodeId next) const override {
      return before_text(key, next);
    }
    GrammarNodeId after_json(GrammarNodeId next) const override {
      return graph_.literal("\n</parameter>\n", next, ByteKind::kFrame);
    }
    GrammarNodeId text_and_end(GrammarNodeId next) const override {
      const GrammarNodeId line_end = graph_.literal("\n", next, ByteKind::kFrame);
      return text_until(graph_, "</parameter>", graph_.marker("</parameter>", line_end));
    }
    bool carries(std::string_view key) const override { return is_carried_by_tag(key); }
    bool writes_python() const override { return true; }

   private:
    GrammarGraph& graph_;
  };

  GrammarNodeId qwen_arguments(const ToolSpec& tool, GrammarNodeId next) {
    const GrammarNodeId end = frame("</function>", next);
    return frame(">\n", arguments_.tagged(tool, QwenTags(graph_), end));
  }

  bool qwen_xml() {
    const Part call = [this](GrammarNodeId next) {
      const GrammarNodeId close = frame("\n", graph_.marker("</tool_call>", next));
      const GrammarNodeId name =
          named([&](const ToolSpec& tool) { return qwen_arguments(tool, close); });
      return maybe_line_end(frame("<function=", name));
    };
    calls_alone("<tool_call>", call);
    // Each name is looked for in all that is written.
    constexpr std::size_t kMostNameTriggers = 64;
    if (!grammar_.is_lazy || options_.tools.size() > kMostNameTriggers) return true;
    // Models leave the first tag out. The name is part of the trigger: text may be about functions.
    const GrammarNodeId close = frame("\n", graph_.marker("</tool_call>", after_calls()));
    for (const ToolSpec& tool : options_.tools) {
      add_trigger(
          "<function=" + tool.name + ">",
          maybe_line_end(arguments_.tagged(tool, QwenTags(graph_), frame("</function>", close))));
    }
    return true;
  }

  // <arg_key>k</arg_key>\n<arg_value>V</arg_value>\n
  class GlmTags : public TaggedArguments {
   public:
    explicit GlmTags(GrammarGraph& graph) : graph_(graph) {}
    GrammarNodeId before_text(const TaggedKey& key, GrammarNodeId next) const override {
      const GrammarNodeId value = graph_.marker("<arg_value>", next);
      const GrammarNodeId close = graph_.marker("</arg_key>", line_end(value));
      return graph_.marker("<arg_key>", tagged_key(graph_, key, close));
    }
    GrammarNodeId before_json(const TaggedKey& key, GrammarNodeId next) const override {
      return before_text(key, next);
    }
    GrammarNodeId after_json(GrammarNodeId next) const override {
      return graph_.marker("</arg_value>", line_end(next));
    }
    GrammarNodeId text_and_end(GrammarNodeId next) const override {
      return text_until(graph_, "</arg_value>", graph_.marker("</arg_value>", line_end(next)));
    }
    bool carries(std::string_view key) const override {
      return is_key_size(key.size()) && key.find("</arg_key>") == std::string_view::npos;
    }

   private:
    GrammarNodeId line_end(GrammarNodeId next) const {
      return graph_.choice({next, graph_.literal("\n", next, ByteKind::kFrame)});
    }
    GrammarGraph& graph_;
  };

  Part glm() {
    return [this](GrammarNodeId next) {
      const GrammarNodeId close = graph_.marker("</tool_call>", next);
      return maybe_line_end(named([&](const ToolSpec& tool) {
        return maybe_line_end(arguments_.tagged(tool, GlmTags(graph_), close));
      }));
    };
  }

  Section kimi() {
    Section section;
    section.call = [this](GrammarNodeId after_call) {
      const GrammarNodeId end = graph_.marker("<|tool_call_end|>", after_call);
      const GrammarNodeId name = named([&](const ToolSpec& tool) {
        const GrammarNodeId arguments =
            graph_.marker("<|tool_call_argument_begin|>", arguments_.json(tool, end));
        const GrammarNodeId digit = graph_.bytes(byte_range('0', '9'), graph_.part_end());
        return frame(":", graph_.repeat(digit, 1, 4, arguments));
      });
      return graph_.marker("<|tool_call_begin|>", frame("functions.", name));
    };
    section.closing = [this](GrammarNodeId next) {
      return graph_.marker("<|tool_calls_section_end|>", next);
    };
    return section;
  }

  // V3.1 writes the name before the separator; V3 and R1 a word, then the name and a block of code.
  Section deepseek() {
    Section section;
    section.between = "\n";
    section.call = [this](GrammarNodeId after_call) {
      const GrammarNodeId end = graph_.marker("<｜tool▁call▁end｜>", after_call);
      const GrammarNodeId fence = frame("\n```", end);
      const GrammarNodeId name = named([&](const ToolSpec& tool) {
        return graph_.marker("<｜tool▁sep｜>", arguments_.json(tool, end));
      });
      const GrammarNodeId old_name = named(
          [&](const ToolSpec& tool) { return frame("\n```json\n", arguments_.json(tool, fence)); });
      const GrammarNodeId word = frame("function", graph_.marker("<｜tool▁sep｜>", old_name));
      return graph_.marker("<｜tool▁call▁begin｜>", graph_.choice({name, word}));
    };
    section.closing = [this](GrammarNodeId next) {
      return graph_.marker("<｜tool▁calls▁end｜>", next);
    };
    return section;
  }

  // <parameter name="k">V</parameter>\n
  class MinimaxTags : public TaggedArguments {
   public:
    explicit MinimaxTags(GrammarGraph& graph) : graph_(graph) {}
    GrammarNodeId before_text(const TaggedKey& key, GrammarNodeId next) const override {
      const GrammarNodeId close = graph_.literal("\">", next, ByteKind::kFrame);
      return graph_.literal("<parameter name=\"", tagged_key(graph_, key, close), ByteKind::kFrame);
    }
    GrammarNodeId before_json(const TaggedKey& key, GrammarNodeId next) const override {
      return before_text(key, next);
    }
    GrammarNodeId after_json(GrammarNodeId next) const override {
      return graph_.literal("</parameter>\n", next, ByteKind::kFrame);
    }
    GrammarNodeId text_and_end(GrammarNodeId next) const override {
      const GrammarNodeId line_end = graph_.literal("\n", next, ByteKind::kFrame);
      return text_until(graph_, "</parameter>", graph_.marker("</parameter>", line_end));
    }
    bool carries(std::string_view key) const override {
      return is_carried_by_tag(key) && key.find('"') == std::string_view::npos;
    }

   private:
    GrammarGraph& graph_;
  };

  Section minimax() {
    Section section;
    section.call = [this](GrammarNodeId after_call) {
      const GrammarNodeId end = frame("</invoke>\n", after_call);
      const GrammarNodeId name = named([&](const ToolSpec& tool) {
        return frame("\">\n", arguments_.tagged(tool, MinimaxTags(graph_), end));
      });
      return maybe_line_end(frame("<invoke name=\"", name));
    };
    section.closing = [this](GrammarNodeId next) {
      return graph_.marker("</minimax:tool_call>", next);
    };
    return section;
  }

  // <｜DSML｜parameter name="k" string="true">V</｜DSML｜parameter>\n; JSON with "false".
  class DsmlTags : public TaggedArguments {
   public:
    explicit DsmlTags(GrammarGraph& graph) : graph_(graph) {}
    GrammarNodeId before_text(const TaggedKey& key, GrammarNodeId next) const override {
      return before(key, "\" string=\"true\">", next);
    }
    GrammarNodeId before_json(const TaggedKey& key, GrammarNodeId next) const override {
      return before(key, "\" string=\"false\">", next);
    }
    GrammarNodeId after_json(GrammarNodeId next) const override {
      return dsml_frame(graph_, "</", "parameter>\n", next);
    }
    GrammarNodeId text_and_end(GrammarNodeId next) const override {
      return text_until(graph_, "</" + std::string(kDsmlTag) + "parameter>", after_json(next));
    }
    bool carries(std::string_view key) const override {
      return is_carried_by_tag(key) && key.find('"') == std::string_view::npos;
    }

   private:
    GrammarNodeId before(const TaggedKey& key, std::string_view close, GrammarNodeId next) const {
      const GrammarNodeId after = graph_.literal(close, next, ByteKind::kFrame);
      return dsml_frame(graph_, "<", "parameter name=\"", tagged_key(graph_, key, after));
    }
    GrammarGraph& graph_;
  };

  // The section is called function_calls in V3.2, tool_calls in V4.
  bool dsml() {
    grammar_.is_lazy = !options_.is_required;
    grammar_.sleeps_again = grammar_.is_lazy && options_.is_parallel;
    std::vector<GrammarNodeId> starts;
    for (const char* name : {"function_calls", "tool_calls"}) {
      Section section;
      section.call = [this](GrammarNodeId after_call) {
        const GrammarNodeId end = dsml_frame(graph_, "</", "invoke>\n", after_call);
        const GrammarNodeId of_tool = named([&](const ToolSpec& tool) {
          return frame("\">\n", arguments_.tagged(tool, DsmlTags(graph_), end));
        });
        return maybe_line_end(dsml_frame(graph_, "<", "invoke name=\"", of_tool));
      };
      section.closing = [this, name](GrammarNodeId next) {
        return dsml_frame(graph_, "</", std::string(name) + ">", next);
      };
      const GrammarNodeId inside = in_section(std::move(section))(after_calls());
      add_trigger("<" + std::string(kDsmlTag) + name + ">", inside);
      starts.push_back(dsml_frame(graph_, "<", std::string(name) + ">", inside));
    }
    grammar_.start = beginning(graph_.choice(starts));
    return true;
  }

  // One call ends the turn. The recipient stands behind the channel or before it; thoughts come
  // first, as messages of the channel "analysis".
  bool harmony() {
    grammar_.is_lazy = !options_.is_required;
    const GrammarNodeId end =
        graph_.choice({graph_.text_end(), graph_.marker("<|call|>", graph_.text_end())});
    const auto channel = [this](GrammarNodeId next) {
      const GrammarNodeId names = graph_.literals({{"commentary", next}, {"analysis", next}});
      return graph_.marker("<|channel|>", names);
    };
    const auto after_name = [&](bool has_channel) {
      return named([&](const ToolSpec& tool) {
        const GrammarNodeId rest =
            harmony_header(graph_.marker("<|message|>", arguments_.json(tool, end)));
        return has_channel ? rest : graph_.choice({rest, channel(rest)});
      });
    };
    const GrammarNodeId behind_channel = after_name(true);
    const GrammarNodeId behind_role = after_name(false);
    if (grammar_.is_lazy) {
      add_trigger("<|channel|>commentary to=functions.", behind_channel);
      add_trigger("<|channel|>analysis to=functions.", behind_channel);
      add_trigger("<|start|>assistant to=functions.", behind_role);
      return true;
    }
    const GrammarNodeId again = graph_.later();
    const GrammarNodeId role = graph_.marker("<|start|>", frame("assistant", again));
    const GrammarNodeId thoughts = graph_.marker(
        "<|channel|>",
        frame("analysis",
              graph_.marker("<|message|>",
                            text_until(graph_, "<|end|>", graph_.marker("<|end|>", role)))));
    const GrammarNodeId call = graph_.choice(
        {channel(frame(" to=functions.", behind_channel)), frame(" to=functions.", behind_role)});
    std::vector<GrammarNodeId> messages{thoughts, call};
    if (options_.answer_schema.has_value()) messages.push_back(answer_ = graph_.later());
    graph_.set_later(again, graph_.choice(messages));
    grammar_.start = again;
    return true;
  }
  // What may stand behind a recipient or a channel: that JSON follows.
  GrammarNodeId harmony_header(GrammarNodeId message) {
    const GrammarNodeId json = frame("json", message);
    const GrammarNodeId constrained = graph_.marker("<|constrain|>", json);
    // Without the blank the word would be part of the name before it.
    const GrammarNodeId apart = frame(" ", graph_.choice({message, json, constrained}));
    return graph_.choice({message, constrained, apart});
  }
  GrammarNodeId harmony_answer(GrammarNodeId value) {
    const GrammarNodeId message = graph_.marker("<|message|>", value);
    return graph_.marker("<|channel|>", frame("final", harmony_header(message)));
  }

  const ToolGrammarOptions& options_;
  Grammar& grammar_;
  GrammarGraph& graph_;
  JsonRules rules_;
  ToolArguments arguments_;
  std::vector<std::string>* warnings_;
  GrammarNodeId answer_ = 0;  // of harmony, behind thoughts
};

}  // namespace

Result<std::shared_ptr<const Grammar>> make_tool_grammar(const ToolGrammarOptions& options,
                                                         std::vector<std::string>* warnings) {
  const std::shared_ptr<const Grammar> none;
  if (options.tools.empty() && !options.answer_schema.has_value()) return none;
  auto grammar = std::make_shared<Grammar>();
  ToolFrames frames(options, *grammar, warnings);
  if (!frames.build()) return none;
  std::optional<GrammarNodeId> answer;
  if (options.answer_schema.has_value()) {
    MOE_ASSIGN_OR_RETURN(answer, frames.or_answer(*options.answer_schema));
  }
  grammar->graph.finish();
  if (answer.has_value() && !grammar->graph.is_too_large()) {
    MOE_RETURN_IF_ERROR(check_form_possible(grammar->graph, *answer));
  }
  const auto is_possible = [&](GrammarNodeId node) {
    return grammar->graph.node(node).need != GrammarNode::kNever;
  };
  bool are_possible = options.is_required ? is_possible(grammar->start) : true;
  for (const GrammarTrigger& trigger : grammar->triggers) {
    are_possible = are_possible && is_possible(trigger.entry);
  }
  if (!grammar->graph.is_too_large() && are_possible) {
    return std::shared_ptr<const Grammar>(std::move(grammar));
  }
  if (options.is_required) {
    return invalid_argument("the schemas of the tools are too large", "offer fewer tools");
  }
  if (warnings != nullptr) {
    warnings->push_back("the schemas of the tools are too large; calls are not constrained");
  }
  return none;
}

}  // namespace moepack
