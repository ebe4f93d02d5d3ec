#include "convert/cli/timeline_output.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "convert/cli/kept_inputs.h"
#include "convert/cli/output.h"

namespace moepack::cli {
namespace {

// Some minutes of decoding; 20 MB.
constexpr std::size_t kMostEvents = 300'000;
constexpr std::size_t kPartBytes = std::size_t{64} << 10;
constexpr std::array<const char*, 3> kTracks{"batches", "stages", "reads"};

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

Clock::time_point first_start(const Timeline& timeline) {
  Clock::time_point first = Clock::time_point::max();
  for (const TimelineEvent& event : timeline.events()) first = std::min(first, event.start);
  return first;
}

nlohmann::ordered_json event_json(const TimelineEvent& event, Clock::time_point origin) {
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
  if (event.layer != TimelineEvent::kNone) args["layer"] = event.layer;
  if (event.expert != TimelineEvent::kNone) args["expert"] = event.expert;
  if (event.track == TimelineTrack::kRead) args["bytes"] = event.amount;
  if (event.track == TimelineTrack::kBatch) args["tokens"] = event.amount;
  return {{"name", event.name},
          {"ph", "X"},
          {"pid", 0},
          {"tid", static_cast<int>(event.track)},
          {"ts", microseconds(event.start - origin)},
          {"dur", microseconds(event.end - event.start)},
          {"args", std::move(args)}};
}

nlohmann::ordered_json track_name(std::size_t track) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", 0},
          {"tid", track},
          {"args", {{"name", kTracks[track]}}}};
}

}  // namespace

Status give_timeline_json(const Timeline& timeline, const TextSink& sink) {
  std::string text = "{\"traceEvents\":[\n";
  for (std::size_t track = 0; track < kTracks.size(); ++track) {
    text += (track == 0 ? "" : ",\n") + track_name(track).dump();
  }
  const Clock::time_point origin = first_start(timeline);
  for (const TimelineEvent& event : timeline.events()) {
    text += ",\n" + event_json(event, origin).dump();
    if (text.size() < kPartBytes) continue;
    MOE_RETURN_IF_ERROR(sink(text));
    text.clear();
  }
  return sink(text + "\n]}\n");
}

Status TimelineFile::prepare(const std::filesystem::path& model) {
  if (path_.empty()) return Status::ok();
  MOE_RETURN_IF_ERROR(check_named_output("--timeline", path_, std::span(&model, 1)));
  timeline_ = std::make_shared<Timeline>(kMostEvents);
  return Status::ok();
}

Status TimelineFile::write() const {
  if (timeline_ == nullptr) return Status::ok();
  if (timeline_->dropped() > 0) {
    std::cerr << "note: --timeline keeps " << kMostEvents << " events; " << timeline_->dropped()
              << " later ones were left out\n";
  }
  MOE_ASSIGN_OR_RETURN(Output output, Output::open(path_));
  MOE_RETURN_IF_ERROR(give_timeline_json(*timeline_, [&](std::string_view part) {
    return output.write(std::as_bytes(std::span(part)));
  }));
  return output.commit();
}

}  // namespace moepack::cli
