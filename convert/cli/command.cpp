#include "convert/cli/command.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "convert/cli/number_range.h"

namespace moepack::cli {
int fail(const Status& status) {
  std::cerr << "moepack: " << status.message() << "\n";
  return kExitError;
}

void print_json_line(const nlohmann::ordered_json& json) {
  std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void add_report_flags(CLI::App& command, bool& json, bool& quiet) {
  command.add_flag("--json", json, "Print one JSON object on stdout");
  command.add_flag("--quiet", quiet, "No progress and no summary on stderr");
}

void add_threads(CLI::App& command, std::uint32_t& threads) {
  command.add_option("-t,--threads", threads, "Threads; 0: one per processor")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
}

std::uint32_t thread_count(std::uint32_t flag) {
  return flag != 0 ? flag : std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace moepack::cli
