// What the parsers of all families but harmony share: thoughts and content told apart, and the
// places where calls may begin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/output_parser.h"
#include "runtime/chat/output_sink.h"
#include "runtime/chat/output_text.h"

namespace moepack {

// Every decision is taken only when no further text could change it, or the text has ended. So what
// comes out does not depend on how the text was cut.
class OutputParserCore : public OutputParser {
 public:
  explicit OutputParserCore(OutputParserOptions options);

  std::vector<ParsedOutput> push(const OutputPiece& piece) final;
  std::vector<ParsedOutput> finish(bool is_cut) final;
  bool is_in_reasoning() const final { return place_ == Place::kReasoning; }
  bool is_in_call() const final {
    return awaits_call_ || place_ == Place::kCall || place_ == Place::kTail;
  }
  bool is_in_frame(const OutputPiece& next) const final;

 protected:
  enum class CallStep {
    kWait,    // more text is needed
    kNoCall,  // begin_call: what stands there is content
    kGoesOn,  // begin_call: a call has begun
    kEnded,   // the call is complete, and end_call has been told
    kBroken,  // continue_call: what follows is no part of a call; its text becomes content
  };

  // A possible call at byte `at` of the text's rest, where one of `openers_` stands. It changes
  // nothing unless it calls start_call and returns kGoesOn or kEnded.
  virtual CallStep begin_call(std::size_t at);
  virtual CallStep continue_call();
  // Once after a call: what belongs to it behind its arguments. kYes with its size.
  virtual MarkerMatch match_tail(std::size_t* size);

  OutputMarker marker(std::string text, std::string_view core = {}) const;
  // The tool of this name; null if none is offered.
  const ToolSpec* find_tool(std::string_view name) const;
  // Whether a call of it counts: it is offered, or nothing is and it looks like a name.
  bool is_callable(std::string_view name) const;
  // Whether `at` is the first place of content that is no white space.
  bool is_at_start(std::size_t at) const;
  // Writes the text before `at`, takes the `size` bytes of the call's head and tells of its begin.
  void start_call(std::size_t at, std::size_t size, std::string id, std::string name);
  void take_of_call(std::size_t bytes);
  // For finish(): whether the text was cut off. False before.
  bool is_cut() const { return is_cut_; }

  OutputText text_;
  OutputSink sink_;
  std::vector<OutputMarker> openers_;  // what a call may begin with
  std::vector<OutputMarker> junk_;     // ends that may be repeated after a call: swallowed
  const OutputParserOptions options_;
  bool holds_answer_ = false;  // what waits would be the answer itself if it is no call

 private:
  enum class Place { kReasoning, kContent, kCall, kTail, kAfterCall };

  bool step();
  bool step_text();
  bool step_call();
  bool step_tail();
  bool step_after_call();
  void end_of_call(CallStep step);
  bool take_switch(const FoundMarker& found);
  bool counts_as_switch(const FoundMarker& found) const;
  bool is_in_junk(const OutputPiece& next) const;
  void write_text(std::size_t bytes);
  void write_before(std::size_t at);
  std::size_t before_space(std::size_t at) const;
  void collect_markers();
  void abandon_call();

  Place place_ = Place::kContent;
  OutputMarker reasoning_begin_, reasoning_end_;
  std::vector<OutputMarker> markers_;  // begin and end of thoughts, then openers_
  std::size_t first_opener_ = 0;       // in markers_
  bool is_collected_ = false;
  bool at_start_ = true;         // nothing but white space since this place began
  bool skips_newlines_ = false;  // at the start
  bool awaits_call_ = false;     // what is held may become a call
  bool is_cut_ = false;
  std::string call_text_;  // of the call under way, as it was generated
};

}  // namespace moepack
