// How much a request may bring of what is copied, compiled or sent back: everything a client sends
// is somebody's who may mean harm. What is beyond these is a 400 that names the field.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/body_fields.h"

namespace moepack {

constexpr std::size_t kMostNameBytes = 256;  // of a model, which every event repeats
constexpr std::size_t kMostToolNameBytes = 128;
constexpr std::size_t kMostWordBytes = 64;  // of a word such as reasoning_effort
constexpr std::size_t kMostTools = 4096;
constexpr std::size_t kMostToolBytes = std::size_t{1} << 20U;        // of all tools together
constexpr std::size_t kMostChoiceToolBytes = std::size_t{4} << 20U;  // times the choices
constexpr std::size_t kMostStopTexts = 64;
constexpr std::size_t kMostStopBytes = 4096;  // of one
constexpr std::size_t kMostTemplateArguments = 256;
constexpr std::size_t kMostTemplateValues = 4096;  // within arguments
constexpr std::size_t kMostTemplateBytes = std::size_t{256} << 10U;
constexpr std::size_t kMostTemplateDepth = 16;
constexpr std::size_t kMostEchoBytes = std::size_t{64} << 10U;  // of metadata and the like

struct JsonSize {
  std::size_t bytes = 0;   // of names and texts, and a few for each other value
  std::size_t values = 0;  // names left out
  std::size_t depth = 0;   // of the deepest value; 1: a value without others
};
// Walks no further than `most_bytes`: what is larger has more bytes than that.
JsonSize json_size(const OrderedJson& json, std::size_t most_bytes);

// "model"; empty if it is absent.
std::string read_model_name(const BodyFields& request);

// A list of tools, or of names of tools.
void check_tools(const BodyFields& request, std::string_view field, const OrderedJson& list);
// Each choice of an answer is read by a parser with tools of its own.
void check_choices(const BodyFields& request, std::size_t choices);
// The "name" of a tool; empty, with a fault, if it is absent, too long, or has a character that
// some family's form of a call cannot hold: a control character, a space, a quote, '<' or '>'.
std::string read_tool_name(const BodyFields& tool);

// Appends a text that ends an answer. Empty ones are skipped.
void add_stop_text(const BodyFields& request, std::string_view field, const OrderedJson& text,
                   std::vector<std::string>& texts);

// "chat_template_kwargs".
void check_template_arguments(const BodyFields& request, const OrderedJson& arguments);

// A word that goes on to the template; nullopt if it is absent or too long.
std::optional<std::string> read_word(const BodyFields& fields, std::string_view name);

// What an answer repeats as it came.
void check_echo(const BodyFields& request, std::string_view name);

}  // namespace moepack
