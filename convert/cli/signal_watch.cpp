#include "convert/cli/signal_watch.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

namespace moepack::cli {
namespace {

// What shells add to the number of the signal that ended a program.
constexpr int kExitBySignal = 128;

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = ending_signals();
  (void)pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  thread_.join();
}

void SignalWatch::watch() {
  const sigset_t set = ending_signals();
  for (;;) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
    const int signal = sigtimedwait(&set, nullptr, &pause);
    const std::lock_guard lock(mutex_);
    if (is_ending_) return;
    if (signal <= 0) continue;
    if (has_come_ || !is_ready_) std::_Exit(kExitBySignal + signal);
    has_come_ = true;
    changed_.notify_all();
  }
}

void SignalWatch::set_ready() {
  const std::lock_guard lock(mutex_);
  is_ready_ = true;
}

void SignalWatch::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_come_; });
}

}  // namespace moepack::cli
