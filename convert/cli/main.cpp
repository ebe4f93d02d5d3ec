// The one executable. Only this layer prints and exits.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "convert/cli/cmd_bench.h"
#include "convert/cli/cmd_calibrate.h"
#include "convert/cli/cmd_chat.h"
#include "convert/cli/cmd_convert.h"
#include "convert/cli/cmd_doctor.h"
#include "convert/cli/cmd_export.h"
#include "convert/cli/cmd_extract.h"
#include "convert/cli/cmd_import.h"
#include "convert/cli/cmd_index.h"
#include "convert/cli/cmd_inspect.h"
#include "convert/cli/cmd_logits.h"
#include "convert/cli/cmd_overlay.h"
#include "convert/cli/cmd_perplexity.h"
#include "convert/cli/cmd_plan.h"
#include "convert/cli/cmd_profile.h"
#include "convert/cli/cmd_quantize.h"
#include "convert/cli/cmd_run.h"
#include "convert/cli/cmd_sensitivity.h"
#include "convert/cli/cmd_serve.h"
#include "convert/cli/cmd_tier.h"
#include "convert/cli/cmd_verify.h"
#include "convert/cli/command.h"
#include "convert/cli/command_names.h"
#include "convert/cli/device_list.h"
#include "convert/cli/standard_streams.h"

namespace moepack::cli {
namespace {

// Names for llama.cpp's short options of several letters, which CLI11 would read as one letter and
// a value.
std::vector<std::string> long_names(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "-ctk") argument = "--cache-type-k";
    if (argument == "-ctv") argument = "--cache-type-v";
  }
  return arguments;
}

// An empty value is mostly a variable of a shell that is not set: nothing that was asked for is
// left out in silence. Prompts are texts, which may be empty.
Status check_no_empty_values(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      const std::vector<std::string>& values = option->results();
      const std::string name = option->get_name();
      if (name == "--prompt" || name == "--system" ||
          std::find(values.begin(), values.end(), "") == values.end()) {
        continue;
      }
      return invalid_argument(name + " is empty", "give a value, or leave it out");
    }
  }
  return Status::ok();
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Convert Mixture-of-Experts checkpoints to expert packs, and run them", "moepack");
  app.set_version_flag("--version", std::string("moepack ") + MOEPACK_VERSION);
  app.require_subcommand(1);
  app.add_flag_callback(
      "--list-devices", [] { throw CLI::RuntimeError(list_devices()); },
      "List the GPUs that Vulkan has here, and stop");
  Action action;
  register_convert(app, action);
  register_export(app, action);
  register_inspect(app, action);
  register_index(app, action);
  register_extract(app, action);
  register_verify(app, action);
  register_import(app, action);
  register_calibrate(app, action);
  register_profile(app, action);
  register_quantize(app, action);
  register_sensitivity(app, action);
  register_tier(app, action);
  register_overlay(app, action);
  register_plan(app, action);
  register_doctor(app, action);
  register_run(app, action);
  register_chat(app, action);
  register_serve(app, action);
  register_bench(app, action);
  register_logits(app, action);
  register_perplexity(app, action);
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (!first.starts_with('-')) {
    const Status known = check_command_name(app, first);
    if (!known.is_ok()) return fail(known);
  }
  try {
    app.parse(long_names(bench_words(argc, argv)));
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::RuntimeError& done) {
    return done.get_exit_code();  // --list-devices
  } catch (const CLI::ParseError& error) {
    std::cerr << "moepack: " << printable(error.what(), 1024) << "; see moepack --help\n";
    return kExitError;
  }
  const Status values = check_no_empty_values(app);
  return values.is_ok() ? action() : fail(values);
}

int run_guarded(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::cerr << "moepack: out of memory; lower --cache-mb, --chunk, -c or --max-tokens\n";
  } catch (const std::system_error& error) {
    // std::thread throws this when it cannot start.
    if (error.code() == std::errc::resource_unavailable_try_again) {
      std::cerr << "moepack: cannot start a thread: " << error.code().message()
                << "; lower -t, or raise the limit of processes or of memory (ulimit -u, -v)\n";
    } else {
      std::cerr << "moepack: internal error: " << error.what() << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << "moepack: internal error: " << error.what() << "\n";
  }
  return kExitError;
}

}  // namespace
}  // namespace moepack::cli

int main(int argc, char** argv) {
  moepack::cli::hold_standard_descriptors();
  moepack::cli::take_size_limit_as_error();
  return moepack::cli::finish_stdout(moepack::cli::run_guarded(argc, argv));
}
