// Waits for the signals that end a server.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace moepack::cli {

// SIGINT and SIGTERM, blocked for the threads that are started after it. Made before any other
// thread. The first signal is told to wait(); the second ends the program at once, with 130
// (SIGINT) or 143 (SIGTERM), and so does the first until set_ready() was called: there is nothing
// to finish.
class SignalWatch {
 public:
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  void set_ready();
  // Until the first signal.
  void wait();

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ready_ = false;   // under mutex_
  bool has_come_ = false;   // under mutex_
  bool is_ending_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace moepack::cli
