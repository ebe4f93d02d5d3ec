// Texts a second of several clients at once on one engine, through the scheduler: how much of a
// step they share, in time and in bytes read.
//
//   schedule_bench MODEL [--clients 1,4,8] [--tokens 64] [--prompt 64] [--cache-mb N] [--threads N]
//                        [--io direct] [--turns auto|on|off]
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/schedule/scheduler.h"

namespace moepack {
namespace {

struct ScheduleBenchFlags {
  std::filesystem::path model;
  std::vector<std::uint32_t> clients{1, 4, 8};
  std::uint64_t tokens = 64;
  std::uint64_t prompt = 64;
  std::uint64_t cache_mb = 0;
  std::uint32_t threads = 2;
  std::string io = "auto";
  std::string turns = "auto";
};

// Counts texts that end.
class EndCounter {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  void wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
};

class CountingListener final : public TextListener {
 public:
  explicit CountingListener(EndCounter& ends) : ends_(&ends) {}
  void on_queued(std::size_t) override {}
  void on_started(std::uint64_t, std::uint64_t) override {}
  void on_prompt(std::uint64_t, double) override {}
  void on_prompt_token(const TokenStep&) override {}
  Next on_token(const TokenStep&) override { return {}; }
  void on_end(TextEnd, const Status&, const TextTimes&) override { ends_->add(); }

 private:
  EndCounter* ends_;
};

// `first`: prompts of different runs begin differently, so that nothing is reused.
double run_clients(Scheduler& scheduler, const ScheduleBenchFlags& flags, std::uint32_t clients,
                   std::uint32_t vocab, std::uint64_t first) {
  EndCounter ends;
  std::vector<std::unique_ptr<TextTicket>> tickets;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t c = 0; c < clients; ++c) {
    TextJob job;
    for (std::uint64_t i = 0; i < flags.prompt; ++i) {
      job.prompt.push_back(static_cast<std::int32_t>(((i + 1) * (977 + 2 * (first + c))) % vocab));
    }
    job.max_tokens = flags.tokens;
    job.sampling.temperature = 0;
    tickets.push_back(scheduler.submit(std::move(job), {std::make_shared<CountingListener>(ends)}));
  }
  ends.wait(clients);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status measure(const ScheduleBenchFlags& flags) {
  EngineOptions options;
  options.model = flags.model;
  options.backend = Backend::kCpu;
  options.cpu_level = detect_cpu_level();
  options.activations = ActivationType::kInt8;
  options.threads = flags.threads;
  options.cache_bytes = flags.cache_mb << 20U;
  MOE_ASSIGN_OR_RETURN(options.store.io, parse_io_mode(flags.io));
  options.store.is_lookahead_automatic = true;  // as the command does
  options.context = flags.prompt + flags.tokens + 1;
  for (const std::uint32_t clients : flags.clients) {
    options.sequences = std::max(options.sequences, clients);
  }
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(options));
  SchedulerOptions scheduling;
  scheduling.parallel = options.sequences;
  MOE_ASSIGN_OR_RETURN(scheduling.turns, parse_turn_use(flags.turns));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler,
                       Scheduler::start(*engine, scheduling));
  const std::uint32_t vocab = engine->config().vocab_size;
  std::uint64_t first = 0;
  run_clients(*scheduler, flags, 1, vocab, first++);  // warms up
  std::printf("%8s %12s %14s %16s\n", "clients", "tokens/s", "s of a client", "KiB read/token");
  for (const std::uint32_t clients : flags.clients) {
    const std::uint64_t before = scheduler->stats().experts.bytes_read;
    const double seconds = run_clients(*scheduler, flags, clients, vocab, first);
    first += clients;
    const double tokens = static_cast<double>(clients) * static_cast<double>(flags.tokens);
    const double read = static_cast<double>(scheduler->stats().experts.bytes_read - before) / 1024;
    std::printf("%8u %12.1f %14.2f %16.1f\n", clients, tokens / seconds, seconds, read / tokens);
  }
  return Status::ok();
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  moepack::ScheduleBenchFlags flags;
  CLI::App app("Clients at once through the scheduler, prompts included");
  app.add_option("MODEL", flags.model)->required();
  app.add_option("--clients", flags.clients, "numbers of clients to measure")->delimiter(',');
  app.add_option("--tokens", flags.tokens, "tokens of every answer");
  app.add_option("--prompt", flags.prompt, "tokens of every prompt");
  app.add_option("--cache-mb", flags.cache_mb, "memory for experts; 0: chosen");
  app.add_option("--threads", flags.threads);
  app.add_option("--io", flags.io, "how experts are read: auto, buffered, direct, mmap");
  app.add_option("--turns", flags.turns, "auto, on, off");
  CLI11_PARSE(app, argc, argv);
  const moepack::Status status = moepack::measure(flags);
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 1;
}
