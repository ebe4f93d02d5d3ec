// The real service: a model's template, tokenizer, scheduler, parser and constraints behind
// AnswerService.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "formats/base/status.h"
#include "runtime/chat/tool_format.h"
#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/service/answer_service.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

struct ModelServiceOptions {
  std::filesystem::path model;            // the directory
  std::string id;                         // what clients call it; empty: the directory's name
  std::filesystem::path chat_template;    // instead of the model's own; empty: that
  std::optional<ToolFormat> tool_format;  // instead of what the template tells
  SchedulerOptions scheduler;
  std::size_t remembered_calls = 100000;  // texts of calls that are kept, and their bytes
  std::size_t remembered_bytes = std::size_t{64} << 20;  // so many of sampled texts too
  // Lines for the one who runs the service: parts of schemas that are not heeded. May be empty; any
  // thread.
  std::function<void(const std::string& line)> on_notice;
};

class ModelService : public AnswerService {
 public:
  // Errors of the template (not of its absence: then only completions are answered), of
  // generation_config.json and of Scheduler::start.
  static Result<std::unique_ptr<ModelService>> open(std::unique_ptr<Engine> engine,
                                                    Tokenizer tokenizer,
                                                    const ModelServiceOptions& options);
  // Takes nothing more; waits for what runs, at most so many seconds, then cancels it. The status
  // is that of Engine::finish(): whether all that it records in files was written.
  virtual Status finish(double grace_seconds) = 0;
  virtual const Engine& engine() const = 0;
};

}  // namespace moepack
