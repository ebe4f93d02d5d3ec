#include "convert/cli/cmd_perplexity.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "convert/cli/given_flags.h"
#include "convert/cli/kept_inputs.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/output.h"
#include "convert/cli/token_input.h"
#include "formats/base/elapsed.h"
#include "formats/base/limits.h"
#include "runtime/model/for_each_index.h"
#include "runtime/score/kl_format.h"
#include "runtime/score/kl_scoring.h"
#include "runtime/score/perplexity.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack::cli {
namespace {

struct PerplexityFlags {
  EngineFlags engine;
  std::string text_file;
  std::string token_ids;
  std::uint64_t context = 512;
  std::uint64_t windows = 0;
  bool all_positions = false;
  std::string base_file;
  bool compare_with_file = false;
  std::string base_model;
  std::string base_pack;
  std::string base_backend;
  bool json = false;
  GivenFlags given;

  bool compares_models() const {
    return !base_model.empty() || !base_pack.empty() || !base_backend.empty();
  }
  // Cache-aware routing is priced against the model's own where no other base is named.
  bool prices_car() const { return !engine.car.empty() && !compares_models() && base_file.empty(); }
  PerplexityOptions options(const PartLoop& loop) const {
    return {
        .context = context, .all_positions = all_positions, .max_windows = windows, .loop = loop};
  }
};

Status check_flags(const PerplexityFlags& flags) {
  const bool has_text = !flags.text_file.empty() || !flags.token_ids.empty();
  if (!has_text && !flags.compare_with_file) {
    return invalid_argument("there is nothing to score", "give -f TEXT or --token-ids FILE");
  }
  if (flags.compare_with_file && flags.base_file.empty()) {
    return invalid_argument("--kl-divergence needs --kl-divergence-base FILE");
  }
  if (!flags.base_file.empty() && (flags.all_positions || flags.compares_models())) {
    return invalid_argument(
        "--kl-divergence-base goes with neither --all-positions nor the --base options");
  }
  if (!flags.base_file.empty() && !flags.compare_with_file) {
    const std::array<std::filesystem::path, 3> inputs{flags.engine.model, flags.text_file,
                                                      flags.token_ids};
    return check_named_output("--kl-divergence-base", flags.base_file, inputs);
  }
  return Status::ok();
}

struct ScoredText {
  std::vector<std::int32_t> ids;
  // What each window begins with; none where the ids are given or every token is scored.
  std::vector<std::int32_t> begin;
};

Result<ScoredText> read_scored_text(const PerplexityFlags& flags) {
  ScoredText scored;
  if (!flags.token_ids.empty()) {
    MOE_ASSIGN_OR_RETURN(scored.ids, read_token_ids(flags.token_ids));
    return scored;
  }
  const std::filesystem::path file = std::filesystem::path(flags.engine.model) / "tokenizer.json";
  std::error_code ignored;
  if (flags.text_file.empty() && !std::filesystem::exists(file, ignored)) return scored;
  MOE_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(file));
  const auto begin = tokenizer.begin_of_text();
  if (!flags.all_positions) scored.begin.assign(begin.begin(), begin.end());
  if (flags.text_file.empty()) return scored;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_utf8_text(flags.text_file));
  MOE_ASSIGN_OR_RETURN(scored.ids, tokenizer.encode(text));
  tokenizer.begin_text(scored.ids);
  return scored;
}

// As many threads as the engine has, for what is computed between its calls.
PartLoop scoring_loop(const Engine& engine) {
  return [pool = std::make_shared<ThreadPool>(engine.options().threads)](
             std::size_t count, const std::function<void(std::size_t)>& body) {
    for_each_index(*pool, count, body);
  };
}

// A line of stderr that is ended with the scoring, however that ends.
struct OpenLine {
  bool is_open = false;
  ~OpenLine() {
    if (is_open) std::cerr << "\n";
  }
};

// Progress as llama-perplexity prints it, on stderr.
PerplexityProgress ppl_progress() {
  return
      [line = std::make_shared<OpenLine>()](std::size_t done, std::size_t, const NllStats& so_far) {
        std::cerr << format_window_ppl(done, so_far.perplexity());
        line->is_open = true;
      };
}

KlProgress kl_progress() {
  return [](std::size_t done, std::size_t, const KlSummary& so_far) {
    if (done == 1) std::cerr << format_kl_window_head() << "\n";
    std::cerr << format_kl_window(done, so_far) << "\n";
  };
}

// What is scored and by which kernels, in front of the numbers of a report.
nlohmann::ordered_json json_head(const PerplexityFlags& flags, const Engine& engine,
                                 double seconds) {
  nlohmann::ordered_json head{{"context", flags.context},
                              {"all_positions", flags.all_positions},
                              {"kernels", engine.kernels_name()},
                              {"seconds", seconds}};
  if (engine.options().car.is_on()) head["routing_agreement"] = engine.routing_agreement().share();
  return head;
}

// What cache-aware routing has changed of the choices that the numbers come of.
void note_agreement(const Engine& engine) {
  if (engine.options().car.is_on()) std::cerr << agreement_text(engine.routing_agreement());
}

// The same text by the model's own routing, and what --car has changed.
struct CarPrice {
  PerplexityReport base;
  PerplexityChange change;
};

void print(const PerplexityFlags& flags, const PerplexityReport& report,
           const nlohmann::ordered_json& head, const std::optional<CarPrice>& price = {}) {
  if (!flags.json) {
    std::cout << format_final_ppl(report) << "\n";
    if (price.has_value()) std::cout << format_ppl_change(price->base, price->change) << "\n";
    return;
  }
  nlohmann::ordered_json object{{"ppl", report.ppl},
                                {"ppl_error", report.ppl_error},
                                {"mean_nll", report.mean_nll},
                                {"tokens_scored", report.tokens_scored},
                                {"windows", report.windows}};
  if (price.has_value()) {
    object["ppl_base"] = price->base.ppl;
    object["ppl_base_error"] = price->base.ppl_error;
    object["ppl_ratio"] = price->change.ratio;
    object["ppl_ratio_error"] = price->change.ratio_error;
    object["ppl_difference"] = price->change.difference;
  }
  object.update(head);
  print_json_line(object);
}

void print(const PerplexityFlags& flags, const KlReport& report, const Engine& engine,
           double seconds) {
  note_agreement(engine);
  if (!flags.json) {
    std::cout << format_kl_report(report);
    return;
  }
  nlohmann::ordered_json object;
  for (const NamedNumber& number : kl_report_numbers(report)) object[number.key] = number.value;
  object["tokens_scored"] = report.summary.tokens_scored;
  object.update(json_head(flags, engine, seconds));
  print_json_line(object);
}

WindowForward forward_of(Engine& engine, const ScoredText& text) {
  return with_begin_of_text(engine.window_forward(), text.begin);
}

Result<KlReport> compare_with_model(const PerplexityFlags& flags, const ScoredText& text,
                                    Engine& engine) {
  EngineFlags base = flags.engine;
  base.activations.clear();  // a base is as exact as can be
  base.trace.clear();        // of the model itself, as the profile is
  base.pin.clear();
  base.car.clear();
  if (!flags.base_model.empty()) {
    base.model = flags.base_model;
    base.pack.clear();
    base.pack_directories.clear();
  }
  if (!flags.base_pack.empty()) {
    base.pack = flags.base_pack;
    base.pack_directories.clear();
  }
  if (!flags.base_backend.empty()) base.backend = flags.base_backend;
  if (base.backend == "reference") base.kv_cache_type = base.cache_type_k = base.cache_type_v = "";
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> base_engine, open_engine(base, flags.context));
  if (base_engine->config().vocab_size != engine.config().vocab_size) {
    return invalid_argument("the two models have vocabularies of different size");
  }
  return compare_models(text.ids, flags.options(scoring_loop(engine)),
                        forward_of(*base_engine, text), forward_of(engine, text), kl_progress());
}

bool begins_with(std::span<const std::int32_t> ids, std::span<const std::int32_t> begin) {
  return ids.size() >= begin.size() && std::equal(begin.begin(), begin.end(), ids.begin());
}

Result<KlReport> compare_with_base_file(PerplexityFlags& flags, ScoredText text) {
  MOE_ASSIGN_OR_RETURN(KldBaseReader base, KldBaseReader::open(flags.base_file));
  if (flags.given.has("--ctx-size") && flags.context != base.context()) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = flags.base_file},
                      "has windows of " + std::to_string(base.context()) + " tokens, not of " +
                          std::to_string(flags.context),
                      "leave -c out");
  }
  flags.context = base.context();
  if (!text.ids.empty()) MOE_RETURN_IF_ERROR(base.check_text(flags.context, text.ids));
  // A file that was made of ids may lack them: then its windows lacked them too.
  if (!begins_with(base.tokens(), text.begin)) text.begin.clear();
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                       open_engine(flags.engine, flags.context));
  note_long_context(flags.context, engine->config());
  MOE_RETURN_IF_ERROR(base.check_vocab(engine->config().vocab_size));
  const Clock::time_point start = Clock::now();
  MOE_ASSIGN_OR_RETURN(KlReport report,
                       score_against_base(base, flags.windows, forward_of(*engine, text),
                                          kl_progress(), scoring_loop(*engine)));
  print(flags, report, *engine, seconds_since(start));
  MOE_RETURN_IF_ERROR(engine->finish());
  return report;
}

// With --car, then by the model's own routing and everything else the same. The first engine ends
// before the second begins: both at once might not fit.
Status price_car(const PerplexityFlags& flags, const ScoredText& text,
                 std::unique_ptr<Engine> engine) {
  const Clock::time_point start = Clock::now();
  MOE_ASSIGN_OR_RETURN(const PerplexityReport report,
                       score_perplexity(text.ids, flags.options(scoring_loop(*engine)),
                                        forward_of(*engine, text), ppl_progress()));
  MOE_RETURN_IF_ERROR(engine->finish());
  note_agreement(*engine);
  const nlohmann::ordered_json head = json_head(flags, *engine, seconds_since(start));
  engine.reset();
  EngineFlags plain = flags.engine;
  plain.car.clear();
  plain.trace.clear();
  std::cerr << "moepack: note: once more, by the model's own routing\n";
  MOE_ASSIGN_OR_RETURN(engine, open_engine(plain, flags.context));
  CarPrice price;
  MOE_ASSIGN_OR_RETURN(price.base, score_perplexity(text.ids, flags.options(scoring_loop(*engine)),
                                                    forward_of(*engine, text), ppl_progress()));
  MOE_ASSIGN_OR_RETURN(price.change, perplexity_change(price.base, report));
  print(flags, report, head, price);
  return Status::ok();
}

Status run_perplexity(PerplexityFlags flags) {
  MOE_RETURN_IF_ERROR(check_flags(flags));
  MOE_RETURN_IF_ERROR(check_model_path(flags.engine.model));
  MOE_ASSIGN_OR_RETURN(const ScoredText text, read_scored_text(flags));
  if (flags.compare_with_file) return compare_with_base_file(flags, text).status();
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, open_engine(flags.engine, flags.context));
  note_long_context(flags.context, engine->config());
  if (flags.prices_car()) return price_car(flags, text, std::move(engine));
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return seconds_since(start); };
  if (flags.compares_models()) {
    MOE_ASSIGN_OR_RETURN(const KlReport report, compare_with_model(flags, text, *engine));
    print(flags, report, *engine, seconds());
    return engine->finish();
  }
  if (!flags.base_file.empty()) {
    MOE_ASSIGN_OR_RETURN(
        const PerplexityReport report,
        write_kld_base(flags.base_file, text.ids, flags.options(scoring_loop(*engine)),
                       engine->config().vocab_size, forward_of(*engine, text), ppl_progress()));
    note_agreement(*engine);
    print(flags, report, json_head(flags, *engine, seconds()));
    return engine->finish();
  }
  MOE_ASSIGN_OR_RETURN(const PerplexityReport report,
                       score_perplexity(text.ids, flags.options(scoring_loop(*engine)),
                                        forward_of(*engine, text), ppl_progress()));
  note_agreement(*engine);
  print(flags, report, json_head(flags, *engine, seconds()));
  return engine->finish();
}

void add_flags(CLI::App& command, PerplexityFlags& flags) {
  add_engine_flags(command, flags.engine);
  CLI::Option* text = command.add_option("-f,--file", flags.text_file, "Text to score");
  command
      .add_option("--token-ids", flags.token_ids,
                  "Score these ids: raw little-endian int32, or a JSON list")
      ->excludes(text);
  command.add_option("-c,--ctx-size", flags.context, "Tokens of a window")
      ->check(whole_number(3, kMaxSequenceTokens))
      ->capture_default_str();
  command.add_option("--chunks", flags.windows, "Score only the first N windows; 0: all")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command.add_flag("--all-positions", flags.all_positions,
                   "Score every token, not only the second half of full windows");
  command.add_option("--kl-divergence-base", flags.base_file,
                     "File of log-probabilities in llama-perplexity's format: written, or read "
                     "with --kl-divergence");
  command.add_flag("--kl-divergence", flags.compare_with_file,
                   "Compare with the base file (its tokens and window size are used)");
  command.add_option("--base-model", flags.base_model, "Compare with another model, exactly");
  command.add_option("--base-pack", flags.base_pack, "Compare with another pack, exactly");
  command.add_option("--base-backend", flags.base_backend, "Compare with another backend, exactly");
  command.add_flag("--json", flags.json, "Print one JSON object on stdout");
}

}  // namespace

void register_perplexity(CLI::App& app, Action& action) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command =
      app.add_subcommand("perplexity", "Score a text; compare two models token by token");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_action(*command, action, flags, run_perplexity);
}

}  // namespace moepack::cli
