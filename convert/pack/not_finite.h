// Source tensors in which values were met that are no numbers.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace moepack {

// Any number of threads.
class NotFiniteTensors {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.insert(name);
  }
  // Those that were added since the last call, sorted.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    const std::set<std::string> names = std::exchange(names_, {});
    return {names.begin(), names.end()};
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace moepack
