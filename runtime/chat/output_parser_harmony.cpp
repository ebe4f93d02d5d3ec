// Channels, as gpt-oss writes them: messages of a header and a body,
//   <|start|>ROLE<|channel|>CHANNEL to=RECIPIENT <|constrain|>TYPE<|message|>BODY<|end|>
// analysis is thoughts, a recipient makes it a call, everything else is content.
#include <algorithm>
#include <array>
#include <utility>

#include "runtime/chat/lenient_json.h"
#include "runtime/chat/output_parser_families.h"
#include "runtime/chat/output_sink.h"
#include "runtime/chat/output_text.h"

namespace moepack {
namespace {

constexpr std::size_t kLongestHarmonyHeader = 512;

struct HarmonyHeader {
  std::string channel;    // may have junk behind its name
  std::string recipient;  // empty: none
};

std::string_view harmony_word(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \n\t\r"), text.size()));
  return text.substr(0, text.find_first_of(" \n\t\r<"));
}

// Takes what it knows from a header and passes over the rest: the last channel, the first
// recipient.
HarmonyHeader read_harmony_header(std::string_view header) {
  constexpr std::string_view kChannel = "<|channel|>";
  constexpr std::string_view kTo = "to=";
  HarmonyHeader read;
  const std::size_t start = header.rfind("<|start|>");
  if (start != std::string_view::npos) header.remove_prefix(start);
  for (std::size_t at = header.find(kChannel); at != std::string_view::npos;
       at = header.find(kChannel, at + 1)) {
    const std::string_view word = harmony_word(header.substr(at + kChannel.size()));
    if (!word.empty() && !word.starts_with(kTo)) read.channel = word;
  }
  const std::size_t to = header.find(kTo);
  if (to != std::string_view::npos) read.recipient = harmony_word(header.substr(to + kTo.size()));
  return read;
}

class HarmonyParser final : public OutputParser {
 public:
  explicit HarmonyParser(OutputParserOptions options) : options_(std::move(options)) {
    for (const char* text : {"<|message|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|end|>",
                             "<|call|>", "<|return|>"}) {
      markers_.push_back(make_output_marker(text, options_.added_tokens));
    }
    if (options_.begins_in_reasoning) {
      body_ = options_.parses_reasoning ? Body::kReasoning : Body::kContent;
    }
  }

  std::vector<ParsedOutput> push(const OutputPiece& piece) override {
    text_.append(piece.bytes, piece.is_added);
    while (step()) {
    }
    return sink_.take();
  }

  std::vector<ParsedOutput> finish(bool is_cut) override {
    text_.end(is_cut);
    while (step()) {
    }
    if (body_ == Body::kNone && !is_cut && has_words(text_.rest())) sink_.content(text_.rest());
    if (body_ == Body::kCall && (!is_cut || is_json_done_)) end_call();
    return sink_.take();
  }

  // A header counts as thoughts: what is to constrain the answer begins at its body.
  bool is_in_reasoning() const override {
    return body_ == Body::kNone || body_ == Body::kReasoning;
  }
  bool is_in_call() const override { return body_ == Body::kCall; }
  bool is_in_frame(const OutputPiece& next) const override {
    const auto is_next = [&next](const OutputMarker& marker) { return is_token_of(marker, next); };
    if (is_in_call() || std::any_of(markers_.begin(), markers_.end(), is_next)) return true;
    return body_ == Body::kNone && goes_on_with_header(next.bytes);
  }

 private:
  enum class Body { kNone, kReasoning, kContent, kCall };
  enum MarkerIndex : std::size_t { kMessage = 0, kStart, kChannel, kConstrain, kEnd };

  bool step() { return body_ == Body::kNone ? step_header() : step_body(); }

  // Whether a header has more than names of roles and channels.
  static bool has_words(std::string_view header) {
    std::string_view last = header;
    for (std::size_t at = header.find("|>"); at != std::string_view::npos; at = last.find("|>")) {
      last.remove_prefix(at + 2);
    }
    const std::string_view word = harmony_word(last);
    constexpr std::array<std::string_view, 6> kKnown = {"",      "assistant",  "analysis",
                                                        "final", "commentary", "json"};
    return std::find(kKnown.begin(), kKnown.end(), word) == kKnown.end() ||
           last.find_first_not_of(" \n\t\r", last.find(word) + word.size()) !=
               std::string_view::npos;
  }

  // Text where a header should stand, and no part of one: the model forgot the header.
  MarkerMatch is_bare_text() const {
    const std::size_t at = text_.skip_space(0);
    if (text_.is_open_at(at)) return MarkerMatch::kMaybe;
    if (at >= text_.rest().size()) return MarkerMatch::kNo;
    const MarkerMatch marker = text_.match_any(at, markers_);
    const MarkerMatch to = text_.match(at, OutputMarker{.text = "to="});
    const MarkerMatch header = std::max(marker, to);
    return header == MarkerMatch::kYes  ? MarkerMatch::kNo
           : header == MarkerMatch::kNo ? MarkerMatch::kYes
                                        : MarkerMatch::kMaybe;
  }

  // Where a header has begun, or should stand: whether `next` is or may be a part of it.
  bool goes_on_with_header(std::string_view next) const {
    if (text_.skip_space(0) < text_.rest().size() || is_output_space(next.front())) return true;
    const auto may_be = [next](std::string_view text) {
      return text.starts_with(next) || next.starts_with(text);
    };
    const auto is_here = [&](const OutputMarker& marker) {
      return !marker.is_added() && may_be(marker.text);
    };
    return may_be("to=") || std::any_of(markers_.begin(), markers_.end(), is_here);
  }

  bool step_header() {
    const MarkerMatch bare = is_bare_text();
    if (bare == MarkerMatch::kMaybe) return false;
    if (bare == MarkerMatch::kYes) return begin_content();
    const auto message = std::span(markers_).first(1);
    const FoundMarker found = text_.find(message);
    if (std::min(found.at, text_.rest().size()) >= kLongestHarmonyHeader) return drop_header();
    if (found.match != MarkerMatch::kYes) return false;
    const std::size_t size = found.at + markers_[kMessage].text.size();
    begin_body(read_harmony_header(text_.rest().substr(0, found.at)), size);
    return true;
  }

  bool begin_content() {
    body_ = Body::kContent;
    is_first_of_body_ = true;
    return true;
  }

  // No header is that long: what stands there is content, a marker at its beginning too.
  bool drop_header() {
    begin_content();
    std::size_t which = 0;
    if (text_.match_any(0, markers_, &which) != MarkerMatch::kYes) return true;
    write(markers_[which].text);
    text_.take(markers_[which].text.size());
    return true;
  }

  void begin_body(const HarmonyHeader& header, std::size_t size) {
    std::string_view name = header.recipient;
    if (name.starts_with("functions.")) name.remove_prefix(10);
    is_first_of_body_ = true;
    if (options_.parses_calls && is_callable(name)) {
      body_ = Body::kCall;
      json_ = LenientJson();
      is_json_done_ = is_json_broken_ = false;
      has_arguments_ = false;
      held_json_.clear();
      sink_.begin_call({}, std::string(name));
    } else if (!header.channel.starts_with("analysis")) {
      body_ = Body::kContent;
    } else if (options_.parses_reasoning) {
      body_ = Body::kReasoning;
    } else {
      body_ = Body::kContent;
      write(text_.rest().substr(0, size));
      keeps_end_ = true;
    }
    text_.take(size);
  }

  bool is_callable(std::string_view name) const {
    if (name.empty()) return false;
    return options_.tools.empty() ||
           std::any_of(options_.tools.begin(), options_.tools.end(),
                       [&](const ToolSpec& tool) { return tool.name == name; });
  }

  bool step_body() {
    const FoundMarker found = text_.find(markers_);
    const std::size_t size = found.is_none() ? text_.rest().size() : found.at;
    write(text_.rest().substr(0, size));
    text_.take(size);
    if (found.match != MarkerMatch::kYes) return false;
    if (found.index == kMessage || found.index == kConstrain) {  // strayed from a header
      text_.take(markers_[found.index].text.size());
      return true;
    }
    if (body_ == Body::kCall) end_call();
    const bool has_end = found.index >= kEnd;  // else the next message's header begins
    if (std::exchange(keeps_end_, false) && has_end) write(markers_[found.index].text);
    if (has_end) text_.take(markers_[found.index].text.size());
    body_ = Body::kNone;
    return true;
  }

  void write(std::string_view text) {
    if (text.empty()) return;
    if (body_ == Body::kCall) return write_arguments(text);
    bool& has_any = body_ == Body::kReasoning ? has_reasoning_ : has_content_;
    // Messages of one kind are paragraphs of one text.
    const std::string_view gap = std::exchange(is_first_of_body_, false) && has_any ? "\n\n" : "";
    has_any = true;
    if (body_ == Body::kReasoning) {
      sink_.reasoning(gap);
      sink_.reasoning(text);
    } else {
      sink_.content(gap);
      sink_.content(text);
    }
  }

  // What is no JSON goes on as it is: the client tells the model.
  void write_arguments(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size() && !is_json_done_; ++at) {
      if (is_json_broken_) {
        out += text[at];
        continue;
      }
      const std::size_t written = out.size();
      const LenientJson::Step step = json_.feed(text[at], out);
      is_json_done_ = step == LenientJson::Step::kDone || step == LenientJson::Step::kDoneBefore;
      is_json_broken_ = step == LenientJson::Step::kBad;
      if (out.size() > written) {
        held_json_.clear();
      } else {
        held_json_ += text[at];
      }
      if (is_json_broken_) out += held_json_;
    }
    has_arguments_ = has_arguments_ || !out.empty();
    sink_.arguments(out);
  }

  void end_call() {
    std::string out;
    if (!is_json_broken_ && !is_json_done_) json_.close(out);
    if (!has_arguments_ && out.empty()) out = "{}";
    sink_.arguments(out);
    sink_.end_call();
    body_ = Body::kNone;
  }

  const OutputParserOptions options_;
  std::vector<OutputMarker> markers_;
  OutputText text_;
  OutputSink sink_;
  Body body_ = Body::kNone;
  bool is_first_of_body_ = true;
  bool has_reasoning_ = false, has_content_ = false;
  bool keeps_end_ = false;  // the message is content with its markers
  LenientJson json_;
  std::string held_json_;  // what json_ has taken since it last wrote
  bool is_json_done_ = false, is_json_broken_ = false, has_arguments_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> make_harmony_parser(OutputParserOptions options) {
  return std::make_unique<HarmonyParser>(std::move(options));
}

}  // namespace moepack
