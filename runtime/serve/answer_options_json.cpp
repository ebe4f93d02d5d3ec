#include "runtime/serve/answer_options_json.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "formats/base/json.h"
#include "formats/base/status.h"
#include "runtime/serve/request_limits.h"

namespace moepack {
namespace {

constexpr std::size_t kMostBiases = 65536;
constexpr std::int64_t kMostChoices = 64;
constexpr std::size_t kMostChoiceStopBytes = std::size_t{1} << 20U;
constexpr double kLowestBias = -1e6;

// The first of two names that is there.
std::optional<double> either_number(const BodyFields& request, const char* name, const char* other,
                                    double low, double high) {
  const auto value = request.number(name, low, high);
  return value.has_value() ? value : request.number(other, low, high);
}

void set_float(float& target, std::optional<double> value) {
  if (value.has_value()) target = static_cast<float>(*value);
}

void read_sampling(const BodyFields& request, SamplerOptions& sampling) {
  set_float(sampling.temperature, request.number("temperature", 0, 100));
  set_float(sampling.top_p, request.number("top_p", 0, 1));
  set_float(sampling.min_p, request.number("min_p", 0, 1));
  set_float(sampling.typical_p, either_number(request, "typical_p", "typical", 0, 1));
  set_float(sampling.frequency_penalty, request.number("frequency_penalty", -2, 2));
  set_float(sampling.presence_penalty, request.number("presence_penalty", -2, 2));
  set_float(sampling.repetition_penalty,
            either_number(request, "repeat_penalty", "repetition_penalty", 0.01, 100));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (const auto k = request.whole("top_k", -1, kMost)) {
    sampling.top_k = static_cast<std::int32_t>(*k);
  }
  if (const auto last = request.whole("repeat_last_n", -1, kMost)) {
    sampling.repeat_last_n = static_cast<std::int32_t>(*last);
  }
  // A negative seed stands for a random one, which the defaults bring.
  const auto seed = request.whole("seed", std::numeric_limits<std::int64_t>::min(),
                                  std::numeric_limits<std::int64_t>::max());
  if (seed.has_value() && *seed >= 0) sampling.seed = static_cast<std::uint64_t>(*seed);
}

std::optional<std::int32_t> token_id(std::string_view text) {
  std::int32_t id = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), id);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || id < 0) return {};
  return id;
}

void add_bias(const BodyFields& request, std::optional<std::int32_t> id, const OrderedJson& value,
              std::vector<LogitBias>& biases) {
  if (!id.has_value()) return request.fail("logit_bias", "logit_bias names tokens by their ids");
  if (value == false) {
    return biases.push_back({.id = *id, .bias = -std::numeric_limits<float>::infinity()});
  }
  const double bias = value.is_number() ? value.get<double>() : kLowestBias * 2;
  if (bias < kLowestBias || bias > -kLowestBias) {
    return request.fail("logit_bias", "a logit_bias must be a number, -100 to 100 as a rule");
  }
  biases.push_back({.id = *id, .bias = static_cast<float>(bias)});
}

// {"15": -100}, or llama.cpp's [[15, -100], [16, false]].
void read_logit_bias(const BodyFields& request, std::vector<LogitBias>& biases) {
  const OrderedJson* json = request.find("logit_bias");
  if (json == nullptr) return;
  if (json->is_structured() && json->size() > kMostBiases) {
    return request.fail("logit_bias",
                        "logit_bias has more than " + std::to_string(kMostBiases) + " tokens");
  }
  if (json->is_object()) {
    for (const auto& [key, value] : json->items()) {
      add_bias(request, token_id(key), value, biases);
    }
    return;
  }
  if (!json->is_array()) return request.fail("logit_bias", "logit_bias must be an object");
  for (const OrderedJson& pair : *json) {
    if (!pair.is_array() || pair.size() != 2) {
      return request.fail("logit_bias", "logit_bias must be an object, or pairs of id and bias");
    }
    const bool is_id = pair[0].is_number_unsigned() && pair[0].get<std::uint64_t>() <= INT32_MAX;
    add_bias(request, is_id ? std::optional(pair[0].get<std::int32_t>()) : std::nullopt, pair[1],
             biases);
  }
}

void read_stops(const BodyFields& request, std::vector<std::string>& stops) {
  const OrderedJson* json = request.find("stop");
  if (json == nullptr) return;
  stops.clear();
  if (!json->is_array()) return add_stop_text(request, "stop", *json, stops);
  for (const OrderedJson& stop : *json) {
    add_stop_text(request, "stop", stop, stops);
    if (request.fault().is_set()) return;
  }
}

void read_limit(const BodyFields& request, AnswerOptions& options) {
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    const auto limit = request.whole(name, -2, std::numeric_limits<std::int64_t>::max());
    if (!limit.has_value()) continue;
    options.max_tokens = std::nullopt;
    if (*limit > 0) options.max_tokens = static_cast<std::uint64_t>(*limit);
    return;
  }
}

void use_schema(ResponseFormat& format, OrderedJson schema) {
  format.kind = ResponseFormat::Kind::kJsonSchema;
  format.schema = std::move(schema);
}

// The member `name`: a schema or, as vLLM's clients send it, its text. Whether there is one.
bool use_schema_of(const BodyFields& fields, const char* name, ResponseFormat& format) {
  const OrderedJson* found = fields.find(name);
  if (found == nullptr || *found == "") return false;
  if (found->is_object()) {
    use_schema(format, *found);
    return true;
  }
  if (found->is_string()) {
    auto parsed = parse_ordered_json(found->get_ref<const std::string&>(), Where{.file = name});
    if (parsed.is_ok() && parsed.value().is_object()) {
      use_schema(format, std::move(parsed).value());
      return true;
    }
  }
  fields.fail(name, fields.place_of(name) + " must be a JSON schema, an object or its text");
  return false;
}

void read_format_object(const BodyFields& request, const OrderedJson& json,
                        ResponseFormat& format) {
  const BodyFields fields(json, "response_format.", request.fault());
  const std::string type = fields.text("type").value_or("text");
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema") {
    return fields.fail("type", "response_format.type must be text, json_object or json_schema");
  }
  format.kind = ResponseFormat::Kind::kJsonObject;
  if (const OrderedJson* schema = fields.object("schema")) return use_schema(format, *schema);
  if (type == "json_object") return;
  const OrderedJson* named = fields.object("json_schema");
  const OrderedJson* schema =
      named == nullptr
          ? nullptr
          : BodyFields(*named, "response_format.json_schema.", request.fault()).object("schema");
  if (schema == nullptr) {
    return fields.fail("json_schema", "response_format.json_schema.schema is missing");
  }
  use_schema(format, *schema);
}

// vLLM's.
void read_structured(const BodyFields& request, ResponseFormat& format) {
  const OrderedJson* json = request.object("structured_outputs");
  if (json == nullptr) return;
  const BodyFields fields(*json, "structured_outputs.", request.fault());
  if (use_schema_of(fields, "json", format)) return;
  if (fields.flag("json_object").value_or(false)) format.kind = ResponseFormat::Kind::kJsonObject;
  for (const char* name : {"regex", "choice", "grammar", "structural_tag"}) {
    if (fields.find(name) != nullptr) {
      fields.fail(name, fields.place_of(name) + " is not supported; give a JSON schema");
    }
  }
}

}  // namespace

AnswerOptions read_answer_options(const BodyFields& request, const AnswerOptions& defaults) {
  AnswerOptions options = defaults;
  read_sampling(request, options.sampling);
  read_logit_bias(request, options.sampling.logit_bias);
  read_stops(request, options.stop);
  read_limit(request, options);
  if (const auto n = request.whole("n", 1, kMostChoices)) {
    options.choices = static_cast<std::uint32_t>(*n);
  }
  std::size_t stop_bytes = 0;  // each choice looks for its own
  for (const std::string& stop : options.stop) stop_bytes += stop.size();
  if (stop_bytes > kMostChoiceStopBytes / options.choices) {
    request.fail("stop", "stop is too large for so many choices");
  }
  options.ignores_end = request.flag("ignore_eos").value_or(options.ignores_end);
  options.reuses_states = request.flag("cache_prompt").value_or(options.reuses_states);
  return options;
}

ResponseFormat read_response_format(const BodyFields& request) {
  ResponseFormat format;
  for (const char* name : {"grammar", "guided_regex", "guided_choice", "guided_grammar"}) {
    const OrderedJson* found = request.find(name);
    if (found != nullptr && *found != "") {
      request.fail(name, std::string(name) + " is not supported; give a JSON schema");
    }
  }
  for (const char* name : {"json_schema", "guided_json"}) use_schema_of(request, name, format);
  read_structured(request, format);
  if (const OrderedJson* json = request.object("response_format")) {
    read_format_object(request, *json, format);
  }
  return format;
}

}  // namespace moepack
