// What the subcommands share: how they register and how they fail. All of it is called from the
// main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/status.h"

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

// The number of threads that -t asks for, where 0 stands for one per processor.
std::uint32_t thread_count(std::uint32_t flag);

}  // namespace moepack::cli
