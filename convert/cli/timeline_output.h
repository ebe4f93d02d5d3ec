// --timeline: what happened when, as a file that people open in a viewer of traces
// (ui.perfetto.dev, chrome://tracing) or that scripts/timeline.py draws one token of.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/store/timeline.h"

namespace moepack::cli {

// The flag, and what it collects.
class TimelineFile {
 public:
  void add_flag(CLI::App& command) {
    command.add_option("--timeline", path_,
                       "Write when each stage and each read of an expert began and ended to this "
                       "file (JSON in the trace event format)");
  }
  // Makes room where the flag was given, and says whether the path can be a file and none of
  // `model`, which the command reads. Before the engine is opened, whose options take timeline().
  Status prepare(const std::filesystem::path& model = {});
  Timeline* timeline() { return timeline_.get(); }
  // Writes what was collected, if anything was asked for.
  Status write() const;

 private:
  std::string path_;
  std::shared_ptr<Timeline> timeline_;
};

// Takes a part of a text.
using TextSink = std::function<Status(std::string_view part)>;

// Gives the events as one JSON object in the trace event format, {"traceEvents": [...]}, in parts
// of some kilobytes: all of it may be larger than the room that the memory plan has for the events.
// Times are microseconds since the first event; "tid" is the track: 0 batches, 1 stages, 2 reads.
Status give_timeline_json(const Timeline& timeline, const TextSink& sink);

}  // namespace moepack::cli
