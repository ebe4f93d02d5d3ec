// Texts that end an answer, found across the borders of pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moepack {

// A pure function of the joined pieces, however they are cut. Each byte costs a few steps for each
// of the texts, whatever they are. One thread at a time.
class StopTexts {
 public:
  struct Step {
    std::string text;                 // goes on to the reader
    std::optional<std::size_t> stop;  // which text ended the answer: an index
  };

  // Empty texts never stop anything.
  explicit StopTexts(const std::vector<std::string>& texts);

  // The stop text that is complete first wins, of those that end together the longest. It is not
  // part of the answer, and nothing comes after it. What may begin a stop text is held back.
  Step push(std::string_view piece);
  // The end without a stop text: what was held back.
  std::string finish();
  // What was held back goes on, and the search begins anew behind it, behind a stop text too.
  std::string restart();

 private:
  struct Text {
    std::string text;
    std::vector<std::uint32_t> shorter;  // where the search goes on behind a byte that does not fit
    std::size_t matched = 0;             // so many bytes of it end what was pushed

    void feed(char byte);
  };
  std::optional<std::size_t> feed(char byte);

  std::vector<Text> texts_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace moepack
