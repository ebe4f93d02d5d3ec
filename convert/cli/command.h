// What the subcommands share: how they register, how they fail, and the options of every command
// that runs a model. All of it is called from the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/status.h"
#include "runtime/engine.h"

namespace moepack::cli {

constexpr int kExitOk = 0;
constexpr int kExitDifference = 1;  // a check found a difference
constexpr int kExitError = 2;       // an error or bad usage

// A subcommand's work; returns the exit code. Set by the parser when the subcommand is given.
using Action = std::function<int()>;

// Prints "moepack: MESSAGE" on stderr; returns kExitError.
int fail(const Status& status);

// Prints `json` as one line on stdout; bytes that are not UTF-8 become U+FFFD.
void print_json_line(const nlohmann::ordered_json& json);

// Makes `action` do run(*flags), which returns a Status, when `command` is given.
template <typename Flags, typename Run>
void set_action(CLI::App& command, Action& action, std::shared_ptr<Flags> flags, Run run) {
  command.callback([&action, flags, run] {
    action = [flags, run] {
      const Status status = run(*flags);
      return status.is_ok() ? kExitOk : fail(status);
    };
  });
}

// set_action() for a command that reports what it did: in words unless --quiet, as JSON with
// --json.
template <typename Flags, typename Report>
void set_reporting_action(CLI::App& command, Action& action, std::shared_ptr<Flags> flags,
                          Result<Report> (*run)(const Flags&),
                          void (*print_summary)(const Report&, const Flags&),
                          void (*print_json)(const Report&, const Flags&)) {
  set_action(command, action, flags, [=](const Flags& f) {
    MOE_ASSIGN_OR_RETURN(const Report report, run(f));
    if (!f.quiet) print_summary(report, f);
    if (f.json) print_json(report, f);
    return Status::ok();
  });
}

// Adds --json and --quiet to such a command.
void add_report_flags(CLI::App& command, bool& json, bool& quiet);
// Adds -t.
void add_threads(CLI::App& command, std::uint32_t& threads);

// The options of commands that run a model.
struct EngineFlags {
  std::string model;
  std::string pack;
  std::vector<std::string> overlays;
  std::string backend = "auto";
  std::string cpu = "auto";
  std::uint32_t threads = 0;    // 0: one per processor
  std::uint64_t context = 0;    // 0: the command's default
  std::uint64_t cache_mib = 0;  // 0: automatic
  std::uint32_t chunk_tokens = 512;
};

// Adds -m/positional MODEL, --pack, --overlay, --backend, --cpu, -t to `command`.
void add_model_flags(CLI::App& command, EngineFlags& flags);
// Adds the flags of add_model_flags(), --cache-mb and --chunk.
void add_engine_flags(CLI::App& command, EngineFlags& flags);

// The number of threads that -t asks for, where 0 stands for one per processor.
std::uint32_t thread_count(std::uint32_t flag);

// The groups that --overlay names, each once; "all" stands for those that the model has.
Result<std::vector<OverlayGroup>> overlay_groups(const EngineFlags& flags);
// Checks the flags and opens the engine with a context of `context` tokens.
Result<std::unique_ptr<Engine>> open_engine(const EngineFlags& flags, std::uint64_t context);
// Says on stderr that -c asks for more than the model was made for: it may do badly there, but it
// can be run.
void note_long_context(std::uint64_t context, const ModelConfig& config);

}  // namespace moepack::cli
