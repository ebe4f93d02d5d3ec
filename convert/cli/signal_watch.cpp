#include "convert/cli/signal_watch.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

#include "convert/cli/chat_interrupt.h"

namespace moepack::cli {
namespace {

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
    const bool has_signal = sigtimedwait(&set, nullptr, &pause) > 0;
    const std::lock_guard lock(mutex_);
    if (is_ending_) return;
    if (!has_signal) continue;
    if (has_come_ || !is_ready_) std::_Exit(kExitInterrupted);
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
