// What routes that tell of the server itself look at.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "runtime/http/http_server.h"
#include "runtime/serve/server.h"
#include "runtime/serve/server_metrics.h"

namespace moepack {

// Outlives the routes that are given it.
struct ServerState {
  ServerOptions options;
  ServerMetrics metrics = {};
  std::atomic<bool> is_loading{true};
  std::atomic<bool> is_ending{false};
  std::int64_t started = 0;  // seconds since 1970
  std::function<HttpStats()> http_stats = {};
};

// GET /health, /metrics, /props, /slots, POST /slots/{id}, /version; 501 for what others serve.
void add_status_routes(RouteTable& table, ServerState& state);
// GET /models and /models/{id}.
void add_model_routes(RouteTable& table, ServerState& state);
// POST /tokenize, /detokenize, /apply-template, /chat/completions/input_tokens.
void add_text_routes(RouteTable& table);
// POST /chat/completions, /completions.
void add_openai_routes(RouteTable& table);

}  // namespace moepack
