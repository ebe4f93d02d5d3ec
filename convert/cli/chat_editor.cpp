// The terminal's input with libedit.
#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string_view>
#include <utility>

#include "convert/cli/chat_input.h"

namespace moepack::cli {
namespace {

constexpr int kKeptLines = 1000;
constexpr std::string_view kPasteEnd = "\033[201~";

class EditorInput final : public ChatInput {
 public:
  explicit EditorInput(std::filesystem::path file) : file_(std::move(file)) {
    edit_ = el_init("moepack", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kKeptLines);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!file_.empty()) history(history_, &event, H_LOAD, file_.c_str());
    if (edit_ == nullptr) return;
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_ADDFN, "moepack-interrupt", "Ctrl-C", &interrupt);
    el_set(edit_, EL_ADDFN, "moepack-paste", "Take pasted text", &paste);
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit_, EL_BIND, "^C", "moepack-interrupt", nullptr);
    el_set(edit_, EL_BIND, "\\e[200~", "moepack-paste", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  EditorInput(const EditorInput&) = delete;
  EditorInput& operator=(const EditorInput&) = delete;
  ~EditorInput() override {
    if (edit_ != nullptr) el_end(edit_);
    history_end(history_);
  }

  ChatLine read_line(const std::string& prompt, const std::string& begin) override {
    if (edit_ == nullptr) return make_plain_input()->read_line(prompt, begin);
    prompt_ = prompt;
    has_interrupt_ = false;
    if (!begin.empty()) el_push(edit_, begin.c_str());
    std::cout << "\033[?2004h" << std::flush;  // pasted text comes between marks
    int size = 0;
    const char* const text = el_gets(edit_, &size);
    std::cout << "\033[?2004l" << std::flush;
    if (has_interrupt_ || text == nullptr || size <= 0) {
      std::cout << "\n" << std::flush;
      return {has_interrupt_ ? ChatLine::Kind::kInterrupt : ChatLine::Kind::kEnd, {}};
    }
    ChatLine line{ChatLine::Kind::kLine, std::string(text, static_cast<std::size_t>(size))};
    remember(line.text);
    if (line.text.ends_with('\n')) line.text.pop_back();
    return line;
  }

 private:
  static EditorInput& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<EditorInput*>(data);
  }
  static char* prompt(EditLine* edit) { return self(edit).prompt_.data(); }
  static unsigned char interrupt(EditLine* edit, int) {
    self(edit).has_interrupt_ = true;
    return CC_EOF;
  }
  // Everything up to the paste's end is text, line ends too.
  static unsigned char paste(EditLine* edit, int) {
    std::string text;
    char c = 0;
    while (!text.ends_with(kPasteEnd) && el_getc(edit, &c) == 1) text += c == '\r' ? '\n' : c;
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    if (!text.empty()) el_insertstr(edit, text.c_str());
    return CC_REFRESH;
  }

  void remember(const std::string& line) {
    if (line.find_first_not_of(" \t\n") == std::string::npos) return;
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
    if (file_.empty()) return;
    // Made before it is written, so that nobody else can ever read it.
    const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    (void)::fchmod(fd, 0600);
    ::close(fd);
    history(history_, &event, H_SAVE, file_.c_str());
  }

  std::filesystem::path file_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  bool has_interrupt_ = false;
};

}  // namespace

std::unique_ptr<ChatInput> make_terminal_input(const std::filesystem::path& history) {
  return std::make_unique<EditorInput>(history);
}

}  // namespace moepack::cli
