// The flags of `moepack serve`, and what they select.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "convert/cli/model_flags.h"
#include "formats/base/status.h"
#include "runtime/serve/server.h"
#include "runtime/service/model_service.h"

namespace moepack::cli {

struct ServeFlags {
  EngineFlags engine;
  std::uint64_t context = 0;  // 0: kServeContext
  std::uint32_t parallel = 1;
  std::uint64_t queue = 32;
  std::uint64_t slice_tokens = 512;
  std::string turns = "auto";
  std::uint64_t snapshot_mib = 256;
  std::string slot_save_path;
  std::string alias;
  std::string chat_template;
  std::string tool_parser;  // empty: as the template tells
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::uint64_t max_body_mib = 64;
  bool hides_metrics = false;
  bool is_verbose = false;
  double grace_seconds = 30;
  std::int64_t max_tokens = -1;
  ServerOptions server;
};

// Tokens of a conversation unless -c says otherwise: agents begin with ten thousand.
constexpr std::uint64_t kServeContext = 16384;

void add_serve_flags(CLI::App& command, ServeFlags& flags);

// Checks them and reads --api-key-file.
Result<ServerOptions> server_options(const ServeFlags& flags);
Result<ModelServiceOptions> service_options(const ServeFlags& flags);

}  // namespace moepack::cli
