// What a parallel region costs beside its work: regions without work, one after the other, for one
// task a thread and for many, and with a pause between them in which workers wait.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "runtime/model/thread_pool.h"

namespace moepack {
namespace {

// The serial part between two regions.
void stay_busy(std::chrono::nanoseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
  }
}

void run_region(benchmark::State& state, std::size_t threads, std::size_t tasks,
                std::chrono::nanoseconds gap) {
  ThreadPool pool(threads);
  for ([[maybe_unused]] auto _ : state) {
    if (gap.count() > 0) stay_busy(gap);
    pool.parallel_for(tasks, 1, [](std::size_t begin, std::size_t, std::size_t) {
      benchmark::DoNotOptimize(begin);
    });
  }
}

// Tasks of two microseconds: how far a region stays behind perfect sharing.
void run_balanced(benchmark::State& state, std::size_t threads, std::size_t tasks) {
  ThreadPool pool(threads);
  constexpr std::chrono::nanoseconds kTask{2000};
  const auto work = [&](std::size_t, std::size_t, std::size_t) { stay_busy(kTask); };
  for ([[maybe_unused]] auto _ : state) pool.parallel_for(tasks, 1, work);
  const double ideal = static_cast<double>((tasks + threads - 1) / threads) * 2e-6;
  state.counters["of_ideal"] = benchmark::Counter(ideal * static_cast<double>(state.iterations()),
                                                  benchmark::Counter::kIsRate);
}

void register_all(std::size_t threads) {
  const std::string by = "/threads:" + std::to_string(threads);
  for (const std::size_t tasks : {threads, threads * 8}) {
    for (const int gap : {0, 2000}) {
      const std::string name =
          "region" + by + "/tasks:" + std::to_string(tasks) + "/gap_ns:" + std::to_string(gap);
      benchmark::RegisterBenchmark(name.c_str(), run_region, threads, tasks,
                                   std::chrono::nanoseconds(gap))
          ->UseRealTime();
    }
    const std::string name = "balanced" + by + "/tasks:" + std::to_string(tasks);
    benchmark::RegisterBenchmark(name.c_str(), run_balanced, threads, tasks)->UseRealTime();
  }
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  for (const std::size_t threads : {2U, 4U, 8U, 16U}) {
    // Beyond the processors one count shows what too many threads cost.
    moepack::register_all(threads);
    if (threads >= std::thread::hardware_concurrency() * 2) break;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
