// Answers in the form of Anthropic's Messages API.
#pragma once

#include <memory>
#include <string>

#include "runtime/serve/answer_writer.h"

namespace moepack {

struct MessageIdentity {
  std::string id;          // "msg_…"
  std::string model;       // as clients are told
  std::string request_id;  // for errors
  bool thinks = false;     // thoughts are expected first
};

// Events message_start, content_block_start … message_stop, each with its name. One block is open
// at a time and indices have no gap. Where a call's arguments turn out to be no JSON object, the
// stream ends with an error: a client must never run what is only a part of a call.
//
// message_start waits for the AnswerStarted, which brings the count of the prompt's tokens; a
// keep_alive() before it sends it with zeros, and message_delta then has the true counts. From the
// second keep_alive() on a block is open and gets empty pieces, for clients that do not count pings
// as life; where it proves to be of another kind than the answer's first, it stays empty.
std::unique_ptr<StreamWriter> make_messages_stream(MessageIdentity identity);

// The same as one object. A call that was cut off is left out.
std::unique_ptr<WholeWriter> make_messages_whole(MessageIdentity identity);

}  // namespace moepack
