// The terminal's input without libedit: lines as the terminal itself edits them. Ctrl-C ends the
// program there.
#include <csignal>

#include "convert/cli/chat_input.h"

namespace moepack::cli {
namespace {

class LineInput final : public ChatInput {
 public:
  ChatLine read_line(const std::string& prompt, const std::string& begin) override {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ChatLine line = input_->read_line(prompt, begin);
    (void)pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return line;
  }

 private:
  std::unique_ptr<ChatInput> input_ = make_plain_input();
};

}  // namespace

std::unique_ptr<ChatInput> make_terminal_input(const std::filesystem::path&) {
  return std::make_unique<LineInput>();
}

}  // namespace moepack::cli
