// Where a protocol meets the server: its conversion of requests gives an AnswerJob, and the writer
// in it makes bytes of the answer's events. The server starts the job, feeds the writer, keeps the
// client awake, and cancels when it leaves. Writers are pure functions of their events: no clock,
// no socket; a test calls them directly.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/serve/api_error.h"
#include "runtime/service/answer_events.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// An answer as server-sent events. Called by one thread at a time.
class StreamWriter {
 public:
  virtual ~StreamWriter() = default;
  // Sent right behind the headers, when the request has been taken and nothing is computed yet.
  virtual std::string begin() { return {}; }
  // What is sent because of an event; may be empty. The AnswerEnd of the last choice brings the end
  // of the stream with it ("data: [DONE]"), but not when its reason is kError: then the protocol's
  // error event is the last.
  virtual std::string on_event(const AnswerEvent& event) = 0;
  // Sent when nothing else was for some seconds.
  virtual std::string keep_alive() { return ": keep-alive\n\n"; }
};

// An answer in one piece. Called by one thread at a time.
class WholeWriter {
 public:
  virtual ~WholeWriter() = default;
  virtual void on_event(const AnswerEvent& event) = 0;
  // After the AnswerEnd of the last choice, once: JSON, sent with status 200; or what went wrong.
  virtual std::variant<std::string, ApiError> finish() = 0;
};

struct AnswerJob {
  // Several completions become one answer: the choices of request i are counted on from those of
  // the requests before it.
  std::variant<ChatRequest, std::vector<CompletionRequest>> request;
  std::variant<std::unique_ptr<StreamWriter>, std::unique_ptr<WholeWriter>> writer;
};

// "data: …\n\n", with "event: name\n" before it if there is a name. `json` has no line breaks.
std::string sse_event(const std::string& json, const std::string& name = {});

// Text for clients: never fails; what is no UTF-8 becomes the replacement character.
std::string dump_json(const OrderedJson& json);

}  // namespace moepack
