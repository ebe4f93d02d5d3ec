// The answer to one request on its way to the client.
#pragma once

#include <functional>
#include <string>

#include "runtime/http/http_message.h"

namespace moepack {

// All functions may be called from any thread and never wait for the client. An answer is either
// one reply(), or begin(), any number of write() and end(). What comes after the end is dropped. A
// writer that is destroyed before it has answered sends a 500, or cuts the stream it has begun.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual void reply(HttpReply reply) = 0;

  // The status line and the headers go out at once; the body follows in chunks.
  virtual void begin(int status, HttpHeaders headers) = 0;
  // Takes bytes of the body, in order. False: the client is gone, or reads so slowly that more than
  // HttpOptions::max_queued_bytes wait for it, which closes the connection.
  virtual bool write(std::string bytes) = 0;
  virtual void end() = 0;
  // Closes the connection without an end, so that the client sees that the answer is not whole.
  virtual void abort() = 0;

  // `callback` is called once when the client has gone before the answer ended: in the thread of
  // the server, which it must not hold up; in the caller's own if it has gone already. Not called
  // after the end of the answer. One callback a writer.
  virtual void on_gone(std::function<void()> callback) = 0;
};

}  // namespace moepack
