// Ids of calls.
#pragma once

#include <mutex>
#include <random>
#include <string>

namespace moepack {

// "call_" and 16 letters and digits by chance: unlike those of another process too. Any thread.
class CallIds {
 public:
  CallIds() : random_(std::random_device{}()) {}
  std::string next();

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
};

}  // namespace moepack
