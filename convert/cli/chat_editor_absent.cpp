// The terminal's input without libedit: lines as the terminal itself edits them. Ctrl-C ends the
// program there.
#include <csignal>

#include "convert/cli/chat_input.h"
#include "convert/cli/chat_interrupt.h"
#include "convert/cli/chat_typed_ahead.h"

namespace moepack::cli {
namespace {

// While it lives, Ctrl-C ends the program.
class InterruptsEnd {
 public:
  InterruptsEnd() {
    (void)take_interrupt();  // one that came before is about the answer
    mask(SIG_UNBLOCK);
  }
  InterruptsEnd(const InterruptsEnd&) = delete;
  InterruptsEnd& operator=(const InterruptsEnd&) = delete;
  ~InterruptsEnd() { mask(SIG_BLOCK); }

 private:
  static void mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    (void)pthread_sigmask(how, &set, nullptr);
  }
};

class LineInput final : public ChatInput {
 public:
  ChatLine read_line(const std::string& prompt, const std::string& begin) override {
    const InterruptsEnd ends;
    return input_->read_line(prompt, begin);
  }
  ChatLine read_answer(const std::string& question) override {
    drop_typed_ahead();
    return read_line(question, "");
  }

 private:
  std::unique_ptr<ChatInput> input_ = make_plain_input();
};

}  // namespace

std::unique_ptr<ChatInput> make_terminal_input(const std::filesystem::path&) {
  return std::make_unique<LineInput>();
}

}  // namespace moepack::cli
