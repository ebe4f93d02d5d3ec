// The terminal's input with libedit.
#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "convert/cli/chat_input.h"
#include "convert/cli/chat_typed_ahead.h"
#include "convert/cli/utf8_locale.h"

namespace moepack::cli {
namespace {

constexpr int kKeptLines = 1000;
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// A prompt is one line for libedit, which reads it in the thread's locale and takes no failure.
std::string prompt_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (std::mbstowcs(nullptr, text.c_str(), 0) != static_cast<std::size_t>(-1)) return text;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return text;
}

// libedit takes and gives characters as the C library's locale has them: every call of it happens
// in one of UTF-8.
class EditorInput final : public ChatInput {
 public:
  explicit EditorInput(std::filesystem::path file) : file_(std::move(file)) {
    const Utf8Locale::Use use(locale_);
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
    const Utf8Locale::Use use(locale_);
    if (edit_ != nullptr) el_end(edit_);
    history_end(history_);
  }

  ChatLine read_line(const std::string& prompt, const std::string& begin) override {
    if (edit_ == nullptr) return make_plain_input()->read_line(prompt, begin);
    const Utf8Locale::Use use(locale_);
    ChatLine line = edit_line(prompt, begin);
    if (line.kind == ChatLine::Kind::kLine) remember(line.text + "\n");
    return line;
  }

  ChatLine read_answer(const std::string& question) override {
    if (edit_ == nullptr) return make_plain_input()->read_answer(question);
    const Utf8Locale::Use use(locale_);
    drop_typed_ahead();
    return edit_line(question, "");
  }

 private:
  static EditorInput& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<EditorInput*>(data);
  }
  ChatLine edit_line(const std::string& prompt, const std::string& begin) {
    prompt_ = prompt_line(prompt);
    begin_ = begin;
    has_interrupt_ = false;
    if (!begin_.empty()) el_set(edit_, EL_GETCFN, &begin_line);
    std::cout << "\033[?2004h" << std::flush;  // pasted text comes between marks
    int size = 0;
    const char* const text = el_gets(edit_, &size);
    std::cout << "\033[?2004l" << std::flush;
    if (has_interrupt_ || text == nullptr || size <= 0) {
      std::cout << "\n" << std::flush;
      return {has_interrupt_ ? ChatLine::Kind::kInterrupt : ChatLine::Kind::kEnd, {}};
    }
    ChatLine line{ChatLine::Kind::kLine, text};
    if (line.text.ends_with('\n')) line.text.pop_back();
    return line;
  }

  static char* prompt(EditLine* edit) { return self(edit).prompt_.data(); }
  static unsigned char interrupt(EditLine* edit, int) {
    self(edit).has_interrupt_ = true;
    return CC_EOF;
  }
  // Stands for the reading of a line's first character, when libedit has emptied its buffer and
  // shown the prompt: puts the text there that the line begins with, and reads on. As key strokes
  // (el_push) every line end in it would send what stands before it.
  static int begin_line(EditLine* edit, wchar_t* c) {
    el_set(edit, EL_GETCFN, static_cast<el_rfunc_t>(EL_BUILTIN_GETCFN));
    el_insertstr(edit, self(edit).begin_.c_str());
    std::fputs("\r", stdout);  // the prompt is drawn again, over itself
    el_set(edit, EL_REFRESH);
    return el_wgetc(edit, c);
  }
  // Everything up to the paste's end is text, line ends too.
  static unsigned char paste(EditLine* edit, int) {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnd) && el_wgetc(edit, &c) == 1) text += c == L'\r' ? L'\n' : c;
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    if (!text.empty()) el_winsertstr(edit, text.c_str());
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

  const Utf8Locale locale_;
  std::filesystem::path file_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  std::string begin_;  // what the line that is read begins with
  bool has_interrupt_ = false;
};

}  // namespace

std::unique_ptr<ChatInput> make_terminal_input(const std::filesystem::path& history) {
  return std::make_unique<EditorInput>(history);
}

}  // namespace moepack::cli
