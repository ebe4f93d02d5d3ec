// What the subcommands share: how they register, how they fail, the options of every command that
// runs a model.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "formats/status.h"
#include "runtime/engine.h"

namespace moepack::cli {

constexpr int kExitOk = 0;
constexpr int kExitDifference = 1;  // a check found a difference
constexpr int kExitError = 2;       // an error or bad usage

// A subcommand's work; returns the exit code. Set by the parser when the subcommand is given.
using Action = std::function<int()>;

// Prints "moepack: MESSAGE" on stderr; returns kExitError.
int fail(const Status& status);

// The options of commands that run a model.
struct EngineFlags {
  std::string model;
  std::string pack;
  std::string backend = "auto";
  std::string cpu = "auto";
  std::uint32_t threads = 0;    // 0: one per processor
  std::uint64_t context = 0;    // 0: the command's default
  std::uint64_t cache_mib = 0;  // 0: automatic
  std::uint32_t chunk_tokens = 512;
};

// Adds -m/positional MODEL, --pack, --backend, --cpu, -t to `command`.
void add_model_flags(CLI::App& command, EngineFlags& flags);
// Adds -m/positional MODEL, --pack, --backend, --cpu, -t, --cache-mb, --chunk to `command`.
void add_engine_flags(CLI::App& command, EngineFlags& flags);

// `flag` as -t gives it; 0: one per processor.
std::uint32_t thread_count(std::uint32_t flag);

// Checks the flags and opens the engine with a context of at least `context` tokens.
Result<std::unique_ptr<Engine>> open_engine(const EngineFlags& flags, std::uint64_t context);

}  // namespace moepack::cli
