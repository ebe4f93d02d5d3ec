// The whole server over a script (scripted_service.h), for tests with real clients. Prints
// "listening on HOST:PORT", and ends with its standard input.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "runtime/serve/server.h"
#include "tests/serve/scripted_service.h"

namespace {

struct ScriptedFlags {
  std::string script;
  double loading_seconds = 0;
  double grace_seconds = 0;
  moepack::ServerOptions server;
};

void add_flags(CLI::App& app, ScriptedFlags& flags) {
  moepack::ServerOptions& server = flags.server;
  server.http.port = 0;
  app.add_option("--script", flags.script, "JSON file")->required();
  app.add_option("--host", server.http.host);
  app.add_option("--port", server.http.port);
  app.add_option("--api-key", server.access.api_keys);
  app.add_option("--allow-host", server.access.hosts);
  app.add_option("--cors-origins", server.access.cors_origins);
  app.add_option("--alias", server.model_id);
  app.add_option("--ping-seconds", server.ping_seconds);
  app.add_flag("--slots", server.shows_slots);
  app.add_option("--max-body", server.http.max_body_bytes, "Bytes");
  app.add_option("--max-connections", server.http.max_connections);
  app.add_option("--max-queued", server.http.max_queued_bytes, "Bytes");
  app.add_option("--header-seconds", server.http.header_seconds);
  app.add_option("--body-seconds", server.http.body_seconds);
  app.add_option("--idle-seconds", server.http.idle_seconds);
  app.add_option("--write-seconds", server.http.write_seconds);
  app.add_option("--linger-seconds", server.http.linger_seconds);
  app.add_option("--loading-seconds", flags.loading_seconds, "Before there is a service");
  app.add_option("--grace-seconds", flags.grace_seconds, "At the end");
}

int serve(ScriptedFlags& flags) {
  std::ifstream file(flags.script);
  std::stringstream text;
  text << file.rdbuf();
  const auto service =
      moepack::test::make_scripted_service(moepack::OrderedJson::parse(text.str()));
  auto started = moepack::Server::start(flags.server);
  if (!started.is_ok()) {
    std::cerr << started.status().message() << "\n";
    return 2;
  }
  const std::unique_ptr<moepack::Server> server = std::move(started).value();
  for (const std::string& address : server->addresses()) {
    std::cout << "listening on " << address << std::endl;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(flags.loading_seconds));
  server->set_service(*service);
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  server->finish(flags.grace_seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The server over a script", "scripted_server");
  ScriptedFlags flags;
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  return serve(flags);
}
