#include "convert/cli/cmd_serve.h"

#include <iostream>
#include <memory>
#include <mutex>
#include <utility>

#include "convert/cli/live_line.h"
#include "convert/cli/model_path.h"
#include "convert/cli/progress.h"
#include "convert/cli/serve_flags.h"
#include "convert/cli/signal_watch.h"

namespace moepack::cli {
namespace {

constexpr std::string_view kServeLoopback[] = {"127.0.0.1", "localhost", "::1"};

// One write a line: threads do not mix them.
void print_request(const RequestRecord& record) {
  std::cerr << line_start() + ("moepack: " + request_line(record) + "\n");
}

// A word about a server that others can reach.
void note_exposure(const ServerOptions& options) {
  const std::string& host = options.http.host;
  for (const std::string_view local : kServeLoopback) {
    if (host == local) return;
  }
  if (!options.access.api_keys.empty()) return;
  std::cerr << "moepack: note: everybody who reaches " << printable(host)
            << " may use this server; --api-key-file asks for a key\n";
}

void print_addresses(const Server& server) {
  for (const std::string& address : server.addresses()) {
    std::cout << "listening on http://" << address << "\n";
  }
  std::cout << std::flush;
}

Result<std::unique_ptr<ModelService>> open_service(const ServeFlags& flags,
                                                   ModelServiceOptions options) {
  EngineFlags engine_flags = flags.engine;
  engine_flags.snapshot_bytes = options.scheduler.snapshot_bytes;
  engine_flags.saves_sequence = !options.scheduler.save_path.empty();
  const std::uint64_t context = flags.context != 0 ? flags.context : kServeContext;
  // One sequence more than run: a short request passes a long one, and a conversation stays while
  // another is answered.
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                       open_engine(engine_flags, context, flags.parallel + 1));
  note_long_context(flags.context, engine->config());
  MOE_ASSIGN_OR_RETURN(
      Tokenizer tokenizer,
      Tokenizer::load(std::filesystem::path(flags.engine.model) / "tokenizer.json"));
  const auto mutex = std::make_shared<std::mutex>();
  options.on_notice = [mutex](const std::string& line) {
    const std::lock_guard lock(*mutex);
    std::cerr << line_start() + ("moepack: note: " + line + "\n");
  };
  return ModelService::open(std::move(engine), std::move(tokenizer), options);
}

void print_ready(const ModelService& service, const ServeFlags& flags) {
  const ServiceModel model = service.model();
  std::cerr << "moepack: ready: " << model.id << ", " << model.context << " tokens of context, "
            << flags.parallel << (flags.parallel == 1 ? " answer" : " answers")
            << " at a time, kernels " << service.engine().kernels_name()
            << (model.chat_template.empty()
                    ? "; no chat template: texts are completed, chats refused\n"
                    : "\n");
}

// What is answered just now, for the line on a terminal.
LiveReading read_live(const ModelService& service) {
  const ServiceStats stats = service.stats();
  LiveReading reading;
  reading.experts.hits = stats.expert_hits;
  reading.experts.misses = stats.expert_misses;
  reading.experts.bytes_read = stats.expert_bytes_read;
  reading.when = Clock::now();
  reading.tokens = stats.decode_tokens;
  reading.phase = std::to_string(stats.requests_running) +
                  (stats.requests_running == 1 ? " answer" : " answers");
  if (stats.requests_waiting > 0) {
    reading.phase += ", " + std::to_string(stats.requests_waiting) + " waiting";
  }
  reading.is_idle = stats.requests_running == 0;
  return reading;
}

Status serve(const ServeFlags& flags) {
  MOE_RETURN_IF_ERROR(check_model_path(flags.engine.model));
  MOE_ASSIGN_OR_RETURN(ServerOptions options, server_options(flags));
  if (flags.is_verbose) options.on_request = print_request;
  MOE_ASSIGN_OR_RETURN(ModelServiceOptions asked, service_options(flags));
  SignalWatch signals;
  std::unique_ptr<ModelService> service;  // outlives the server
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::start(options));
  note_exposure(options);
  MOE_ASSIGN_OR_RETURN(service, open_service(flags, std::move(asked)));
  signals.set_ready();  // whoever is answered may end it as it should end
  server->set_service(*service);
  print_addresses(*server);  // last: what can fail has not
  print_ready(*service, flags);
  const bool is_live = stderr_is_terminal() && !service->engine().device_use().has_value();
  LiveLine live([&service] { return read_live(*service); }, "", is_live,
                static_cast<double>(service->engine().io_choice().disk_bytes_per_second));
  signals.wait();
  live.stop();
  std::cerr << "moepack: ending; again: at once\n";
  server->finish(flags.grace_seconds);
  return service->finish(0);
}

}  // namespace

void register_serve(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Answer requests over HTTP");
  add_serve_flags(*command, *flags);
  set_action(*command, action, flags, serve);
}

}  // namespace moepack::cli
