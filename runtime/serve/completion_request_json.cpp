#include "runtime/serve/completion_request_json.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/serve/answer_options_json.h"
#include "runtime/serve/body_fields.h"
#include "runtime/serve/request_limits.h"

namespace moepack {
namespace {

constexpr std::size_t kMostPrompts = 256;
constexpr std::int64_t kMostCompletionLogprobs = 20;
constexpr std::size_t kMostTexts = 1024;  // prompts times choices
// What all prompts have in common is each one's: so many bytes of it altogether.
constexpr std::size_t kMostCommonBytes = std::size_t{8} << 20U;
// Each prompt compiles the schema.
constexpr std::size_t kMostCommonSchemaBytes = std::size_t{256} << 10U;

using CompletionPrompt = std::variant<std::string, std::vector<std::int32_t>>;

std::optional<std::vector<std::int32_t>> prompt_ids(const OrderedJson& json) {
  std::vector<std::int32_t> ids;
  ids.reserve(json.size());
  for (const OrderedJson& id : json) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) return std::nullopt;
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

void add_prompt(const BodyFields& request, const OrderedJson& json,
                std::vector<CompletionPrompt>& prompts) {
  if (json.is_string()) {
    prompts.emplace_back(json.get<std::string>());
    return;
  }
  auto ids = json.is_array() ? prompt_ids(json) : std::nullopt;
  if (!ids.has_value() || ids->empty()) {
    return request.fail("prompt", "prompt must be a string, token ids, or an array of either");
  }
  prompts.emplace_back(std::move(*ids));
}

std::vector<CompletionPrompt> read_prompts(const BodyFields& request) {
  std::vector<CompletionPrompt> prompts;
  const OrderedJson* json = request.find("prompt");
  if (json == nullptr) {
    request.fail("prompt", "prompt is missing");
  } else if (json->is_array() && !json->empty() && !(*json)[0].is_number()) {
    if (json->size() > kMostPrompts) {
      request.fail("prompt", "more than " + std::to_string(kMostPrompts) + " prompts");
      return prompts;
    }
    for (const OrderedJson& each : *json) add_prompt(request, each, prompts);
  } else {
    add_prompt(request, *json, prompts);
  }
  return prompts;
}

// A count here, and not a flag; some clients send the flag of chats all the same.
void read_completion_logprobs(const BodyFields& request, AnswerOptions& options) {
  const OrderedJson* json = request.find("logprobs");
  if (json == nullptr || *json == false) return;
  if (*json == true) {
    options.top_logprobs = 1;
  } else if (const auto count = request.whole("logprobs", 0, kMostCompletionLogprobs)) {
    options.top_logprobs = static_cast<std::uint32_t>(*count);
  }
}

AnswerForm read_completion_form(const BodyFields& request) {
  AnswerForm form;
  form.streams = request.flag("stream").value_or(false);
  if (const OrderedJson* options = request.object("stream_options")) {
    const BodyFields fields(*options, "stream_options.", request.fault());
    form.has_usage = fields.flag("include_usage").value_or(false);
  }
  form.has_progress = request.flag("return_progress").value_or(false);
  return form;
}

CompletionRequest common_parts(const BodyFields& request, const AnswerOptions& defaults) {
  CompletionRequest common;
  common.options = read_answer_options(request, defaults);
  if (const auto limit = request.whole("max_tokens", INT64_MIN, INT64_MAX); limit == 0) {
    common.options.max_tokens = 0;
  }
  read_completion_logprobs(request, common.options);
  common.format = read_response_format(request);
  common.suffix = request.text("suffix").value_or("");
  common.echo = request.flag("echo").value_or(false);
  const auto best = request.whole("best_of", 1, INT32_MAX);
  if (best.has_value() && static_cast<std::uint64_t>(*best) > common.options.choices) {
    request.fail("best_of", "best_of beyond n is not supported");
  }
  return common;
}

// What comes many times because there are many prompts must not become large.
void check_common_parts(const BodyFields& request, const CompletionRequest& common,
                        std::size_t prompts) {
  if (prompts < 2) return;
  const auto check = [&](std::size_t bytes, std::size_t most, const char* name) {
    if (bytes <= most / prompts) return;
    request.fail(name, std::string(name) + " is too large for " + std::to_string(prompts) +
                           " prompts: send fewer at once");
  };
  std::size_t stops = 0;
  for (const std::string& stop : common.options.stop) stops += sizeof(stop) + stop.size();
  const OrderedJson& schema = common.format.schema;
  check(common.suffix.size(), kMostCommonBytes, "suffix");
  check(common.options.sampling.logit_bias.size() * sizeof(LogitBias), kMostCommonBytes,
        "logit_bias");
  check(stops, kMostCommonBytes, "stop");
  check(json_size(schema, kMostCommonSchemaBytes).bytes, kMostCommonSchemaBytes, "response_format");
  if (common.options.choices > kMostTexts / prompts) {
    request.fail("n", "n times prompts is more than " + std::to_string(kMostTexts));
  }
}

}  // namespace

std::variant<ParsedCompletionRequest, ApiError> parse_completion_request(
    const OrderedJson& json, const AnswerOptions& defaults) {
  RequestFault fault;
  const BodyFields request(json, "", fault);
  ParsedCompletionRequest parsed;
  parsed.model = read_model_name(request);
  parsed.form = read_completion_form(request);
  const CompletionRequest common = common_parts(request, defaults);
  std::vector<CompletionPrompt> prompts = read_prompts(request);
  check_common_parts(request, common, prompts.size());
  if (fault.is_set()) return *fault.error();
  for (CompletionPrompt& prompt : prompts) {
    parsed.requests.push_back(common);
    parsed.requests.back().prompt = std::move(prompt);
  }
  return parsed;
}

}  // namespace moepack
