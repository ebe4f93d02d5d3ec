// `moepack chat` over a script (tests/serve/scripted_service.h) instead of a model.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "convert/cli/chat_interrupt.h"
#include "convert/cli/chat_run.h"
#include "tests/serve/scripted_service.h"

int main(int argc, char** argv) {
  CLI::App app("moepack chat over a script", "chat_scripted");
  std::string script;
  moepack::cli::ChatRunOptions options;
  bool no_history = false;
  app.add_option("--script", script)->required();
  app.add_option("-p,--prompt", options.prompt);
  app.add_option("--system", options.system);
  app.add_option("--tools", options.tools_file);
  app.add_option("--allow-tool", options.allow_tools)->take_all();
  app.add_option("--tool-seconds", options.tool_seconds);
  app.add_flag("--show-thoughts", options.shows_thoughts);
  app.add_flag("--no-history", no_history);
  CLI11_PARSE(app, argc, argv);
  options.keeps_history = !no_history;
  std::ifstream file(script);
  std::stringstream text;
  text << file.rdbuf();
  const auto service =
      moepack::test::make_scripted_service(moepack::OrderedJson::parse(text.str()));
  moepack::cli::hold_interrupts();
  moepack::Status status = moepack::cli::prepare_chat(options);
  if (status.is_ok()) {
    const auto is_stopped = moepack::cli::run_chat(*service, options);
    if (is_stopped.is_ok()) return is_stopped.value() ? 130 : 0;
    status = is_stopped.status();
  }
  std::cerr << "moepack: " << status.message() << "\n";
  return 2;
}
