#include "convert/cli/cmd_bench.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#include "convert/cli/bench_output.h"
#include "convert/cli/bench_replay.h"
#include "convert/cli/given_flags.h"
#include "convert/cli/live_line.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/number_range.h"
#include "convert/cli/progress.h"
#include "convert/cli/timeline_output.h"
#include "convert/cli/timing_output.h"
#include "formats/base/limits.h"
#include "runtime/speed/processor_name.h"
#include "runtime/speed/read_rate.h"
#include "runtime/speed/speed_runner.h"

namespace moepack::cli {
namespace {

constexpr std::uint64_t kMostRepetitions = 1000;
constexpr std::uint64_t kMostThreads = 1024;

struct BenchFlags {
  EngineFlags engine;
  std::vector<std::uint32_t> threads;
  std::vector<std::uint64_t> prompts;
  std::vector<std::uint64_t> generated;
  std::vector<std::string> pairs;
  std::vector<std::uint64_t> depths;
  std::uint32_t repetitions = 5;
  bool no_warmup = false;
  bool timing = false;
  TimelineFile timeline;
  std::string output = "md";
  std::vector<std::uint64_t> cache_mib;  // empty: 0
  std::vector<std::string> policies;     // empty: lru
  ReplayFlags replay;
  const CLI::App* command = nullptr;  // which knows what was given
};

// "PP,TG"; false where the text is none.
bool parse_pair(const std::string& text, SpeedTest& test) {
  const char* end = text.data() + text.size();
  const auto prompt = std::from_chars(text.data(), end, test.prompt);
  if (prompt.ec != std::errc() || prompt.ptr == end || *prompt.ptr != ',') return false;
  const auto generated = std::from_chars(prompt.ptr + 1, end, test.generated);
  return generated.ec == std::errc() && generated.ptr == end && test.prompt <= kMaxSequenceTokens &&
         test.generated <= kMaxSequenceTokens;
}

std::string check_pair(const std::string& text) {
  SpeedTest test;
  return parse_pair(text, test) ? ""
                                : printable(text, 64) + " is no pair of numbers, as in 512,128";
}

template <typename Value>
std::vector<Value> or_default(const std::vector<Value>& values, Value value) {
  return values.empty() ? std::vector<Value>{value} : values;
}

// In llama-bench's order: for each depth the prompts, the generated, the pairs.
std::vector<SpeedTest> tests_of(const BenchFlags& flags) {
  std::vector<SpeedTest> tests;
  const auto add = [&](SpeedTest test) {
    if (test.tokens() > 0) tests.push_back(test);
  };
  for (const std::uint64_t depth : or_default(flags.depths, std::uint64_t{0})) {
    for (const std::uint64_t n : or_default(flags.prompts, std::uint64_t{512})) {
      add({.prompt = n, .generated = 0, .depth = depth});
    }
    for (const std::uint64_t n : or_default(flags.generated, std::uint64_t{128})) {
      add({.prompt = 0, .generated = n, .depth = depth});
    }
    for (const std::string& pair : flags.pairs) {
      SpeedTest test;
      test.depth = depth;
      if (parse_pair(pair, test)) add(test);
    }
  }
  return tests;
}

// Measures memory beside the tests. None for a GPU, and none where experts come from a disk: its
// buffer would take the place of what the tests have read.
Result<std::unique_ptr<ReadRateMeter>> meter_for(const Engine& engine, std::uint32_t threads) {
  if (engine.device_use().has_value() || !engine.memory_plan().holds_all_experts()) {
    return std::unique_ptr<ReadRateMeter>();
  }
  return ReadRateMeter::create(threads);
}

// Once before all tests, of the memory that the weights are read from.
Result<double> read_rate_of(Engine& engine, std::uint32_t threads) {
  if (engine.device_use().has_value()) return engine.device_read_rate();
  return measure_read_rate(threads);
}

// Of the disk that holds the experts, at requests of their size; nullopt where all fit in memory.
Result<std::optional<double>> disk_rate_of(const Engine& engine) {
  const std::optional<DeviceUse>& device = engine.device_use();
  const bool are_on_device = device.has_value() && device->plan.holds_all_experts();
  if (are_on_device || engine.memory_plan().holds_all_experts()) return std::optional<double>();
  MOE_ASSIGN_OR_RETURN(const DiskRate rate, engine.disk_rate());
  return std::optional<double>(rate.bytes_per_second);
}

// One engine that is measured.
struct EngineChoice {
  std::uint32_t threads = 0;
  std::uint64_t cache_mib = 0;
  std::string policy;
};

// By threads, then memory, then policy.
std::vector<EngineChoice> engines_of(const BenchFlags& flags) {
  std::vector<EngineChoice> engines;
  for (const std::uint32_t threads : or_default(flags.threads, 0U)) {
    for (const std::uint64_t mib : or_default(flags.cache_mib, std::uint64_t{0})) {
      for (const std::string& policy : or_default(flags.policies, std::string("lru"))) {
        engines.push_back({thread_count(threads), mib, policy});
      }
    }
  }
  return engines;
}

Status run_tests(const BenchFlags& flags, const std::vector<SpeedTest>& tests,
                 const EngineChoice& choice, BenchOutput& output) {
  const std::uint32_t threads = choice.threads;
  std::uint64_t context = 0;
  for (const SpeedTest& test : tests) context = std::max(context, test.context());
  BenchSubject subject;
  subject.model = flags.engine.model;
  subject.processor = processor_name();
  subject.threads = threads;
  subject.has_timing = flags.timing;
  MOE_RETURN_IF_ERROR(select_model(flags.engine).status());
  TimelineFile timeline = flags.timeline;  // outlives the engine
  MOE_RETURN_IF_ERROR(timeline.prepare(flags.engine.model));
  EngineFlags engine_flags = flags.engine;
  engine_flags.threads = threads;
  engine_flags.timeline = timeline.timeline();
  engine_flags.cache_mib = choice.cache_mib;
  engine_flags.cache_policy = choice.policy;
  // The sequence at the tests' depth, and the copy that a repetition uses up.
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, open_engine(engine_flags, context, 2));
  note_long_context(context, engine->config());
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadRateMeter> meter, meter_for(*engine, threads));
  if (meter == nullptr) {
    MOE_ASSIGN_OR_RETURN(subject.read_rate, read_rate_of(*engine, threads));
  }
  if (flags.timing || engine_flags.timeline != nullptr) engine->stage_times().start();
  subject.engine = engine.get();
  subject.chunk_tokens = engine->options().chunk_tokens;
  if (flags.cache_mib.size() > 1 || flags.policies.size() > 1) {
    subject.cache =
        ", " + std::to_string(engine->memory_plan().cache_bytes >> 20) + " MiB " + choice.policy;
  }
  SpeedRunner runner(
      *engine,
      {.repetitions = flags.repetitions, .warm_up = !flags.no_warmup, .meter = meter.get()});
  for (const SpeedTest& test : tests) {
    MOE_ASSIGN_OR_RETURN(subject.disk_rate, disk_rate_of(*engine));
    const std::string name = speed_test_name(test);
    LiveLine live(*engine, name, stderr_is_terminal(), subject.disk_rate.value_or(0));
    live.set_phase(name, test.prompt == 0);
    const auto measured = runner.run(test);
    live.stop();
    MOE_ASSIGN_OR_RETURN(const SpeedResult result, measured);
    if (meter != nullptr) subject.read_rate = result.read_rate;
    output.add(subject, result);
    if (engine->options().car.is_on()) std::cerr << agreement_text(result.agreement);
    if (engine->device_report().has_value()) {
      std::cerr << lanes_text(engine->device_report()->lanes);
    }
  }
  MOE_RETURN_IF_ERROR(engine->finish());
  if (flags.timing && engine->device_report().has_value()) {
    std::cerr << device_table(*engine->device_report());
  }
  return timeline.write();
}

Status replay(const BenchFlags& flags) {
  ReplayFlags replayed = flags.replay;
  replayed.model = flags.engine.model;
  replayed.pack = flags.engine.pack;
  replayed.pin = flags.engine.pin;
  replayed.pack_directories.assign(flags.engine.pack_directories.begin(),
                                   flags.engine.pack_directories.end());
  replayed.cache_mib = flags.cache_mib;
  replayed.policies = flags.policies;
  replayed.format = *bench_format(flags.output);
  return run_replay(replayed);
}

Status check_flags(const BenchFlags& flags, std::size_t tests, std::size_t engines) {
  if (flags.engine.model.empty()) {
    return invalid_argument("there is no model to measure", "give --model DIR, or --replay TRACE");
  }
  if (tests == 0) {
    return invalid_argument("no test has tokens", "give -p, -n or -pg a number above 0");
  }
  if (engines > 1 && !flags.engine.trace.empty()) {
    return invalid_argument("--trace records one engine, not " + std::to_string(engines),
                            "give one number of threads, one --cache-mb and one --cache-policy");
  }
  return Status::ok();
}

// Of a replay alone, of one with a model, and of any bench.
constexpr std::array<std::string_view, 4> kReplayAlone{"replay", "skip", "disk-gbs", "token-ms"};
constexpr std::array<std::string_view, 2> kReplayOfModel{"pack", "pack-dir"};
constexpr std::array<std::string_view, 5> kReplayToo{"model", "pin", "cache-mb", "cache-policy",
                                                     "output"};

template <std::size_t Count>
bool is_among(const std::array<std::string_view, Count>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A replay computes nothing, and nothing but a replay has its options.
Status check_replay_flags(const BenchFlags& flags) {
  const bool is_replay = !flags.replay.trace.empty();
  for (const CLI::Option* option : flags.command->get_options()) {
    if (option->get_lnames().empty() || !is_given(*option)) continue;
    const std::string& name = option->get_lnames().front();
    if (!is_replay && is_among(kReplayAlone, name)) {
      return invalid_argument("--" + name + " is of --replay alone", "leave it out");
    }
    if (!is_replay || is_among(kReplayAlone, name) || is_among(kReplayToo, name)) continue;
    if (!is_among(kReplayOfModel, name)) {
      return invalid_argument("--" + name + " means nothing to --replay", "leave one of them out");
    }
    if (flags.engine.model.empty()) {
      return invalid_argument("--" + name + " of a replay is of a model", "name MODEL too");
    }
  }
  return Status::ok();
}

Status run_bench(const BenchFlags& flags) {
  MOE_RETURN_IF_ERROR(check_replay_flags(flags));
  if (!flags.replay.trace.empty()) return replay(flags);
  const std::vector<SpeedTest> tests = tests_of(flags);
  const std::vector<EngineChoice> engines = engines_of(flags);
  MOE_RETURN_IF_ERROR(check_flags(flags, tests.size(), engines.size()));
  BenchOutput output(*bench_format(flags.output));
  for (const EngineChoice& engine : engines) {
    MOE_RETURN_IF_ERROR(run_tests(flags, tests, engine, output));
  }
  output.finish();
  return Status::ok();
}

// An option that takes numbers separated by commas; what follows may be MODEL.
template <typename Number>
void add_list(CLI::App& command, const std::string& name, std::vector<Number>& values,
              std::uint64_t most, const std::string& help) {
  command.add_option(name, values, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(0, most));
}

// In the place of flags that take one value elsewhere.
void add_cache_lists(CLI::App& command, BenchFlags& flags) {
  command.remove_option(command.get_option("--cache-mb"));
  command.remove_option(command.get_option("--cache-policy"));
  add_list(command, "--cache-mb", flags.cache_mib, kMaxMebibytes,
           "Memory for experts in MiB, as a list; without it or 0: what the machine can spare; "
           "with --replay without it 1/32 to all of the experts, 0: all");
  command
      .add_option("--cache-policy", flags.policies,
                  "Which experts leave that memory first, as a list of lru and lfru (see moepack "
                  "run); without it lru, with --replay both")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"lru", "lfru"}));
}

void add_replay_flags(CLI::App& command, ReplayFlags& flags) {
  command.add_option("--replay", flags.trace,
                     "Measure nothing: run this trace of --trace, or synthetic:SPEC, through "
                     "caches of --cache-mb and --cache-policy and predict hits and tokens/s");
  command
      .add_option("--skip", flags.skip,
                  "Passes at the start of the trace that fill the caches and are not counted")
      ->check(whole_number(0, kMaxCount))
      ->capture_default_str();
  command
      .add_option("--disk-gbs", flags.disk_gbs,
                  "With --replay: GB/s of the disk with many reads at once, and after a comma with "
                  "one at a time; without it measured under MODEL, else as in the trace")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(real_number(0.001, 1e6));
  command
      .add_option("--token-ms", flags.token_ms,
                  "With --replay: milliseconds that a generated token computes with all experts in "
                  "memory; 0: as in the trace")
      ->check(real_number(0, 1e9))
      ->capture_default_str();
}

void add_flags(CLI::App& command, BenchFlags& flags) {
  flags.engine.kv_cache_default = "bf16";
  flags.engine.default_activations = kAnswerActivations;
  add_engine_flags_but_threads(command, flags.engine);
  add_lane_flags(command, flags.engine);
  command.get_option("--model")->required(false);
  add_cache_lists(command, flags);
  add_list(command, "-t,--threads", flags.threads, kMostThreads,
           "Threads, as a list; 0: one per processor");
  add_list(command, "-p,--n-prompt", flags.prompts, kMaxSequenceTokens,
           "Prompts of so many tokens, as a list; without it 512, 0: none");
  add_list(command, "-n,--n-gen", flags.generated, kMaxSequenceTokens,
           "Generate so many tokens, as a list; without it 128, 0: none");
  command
      .add_option("--pg", flags.pairs,
                  "A prompt of PP tokens and TG generated ones in one test, as PP,TG; also -pg")
      ->allow_extra_args(false)
      ->check(CLI::Validator(check_pair, "PP,TG"));
  add_list(command, "-d,--n-depth", flags.depths, kMaxSequenceTokens,
           "Tokens that the model has seen before a test, as a list; without it 0");
  command.add_option("-r,--repetitions", flags.repetitions, "Timed runs of each test")
      ->check(whole_number(1, kMostRepetitions))
      ->capture_default_str();
  command.add_flag("--no-warmup", flags.no_warmup, "No untimed run before each test");
  command.add_flag("--timing", flags.timing, "Say how long each stage of a token takes");
  flags.timeline.add_flag(command);
  command.add_option("-o,--output", flags.output, "How results are printed on stdout")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  add_replay_flags(command, flags.replay);
}

}  // namespace

void register_bench(CLI::App& app, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Measure tokens a second");
  add_flags(*command, *flags);
  flags->command = command;
  set_action(*command, action, flags, run_bench);
}

std::vector<std::string> bench_words(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  if (!words.empty() && words.front() == "bench") {
    std::replace(reversed.begin(), reversed.end(), std::string("-pg"), std::string("--pg"));
  }
  return reversed;
}

}  // namespace moepack::cli
