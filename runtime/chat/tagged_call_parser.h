// Families whose calls are tags with the arguments' values as plain text between them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/chat/argument_types.h"
#include "runtime/chat/output_parser_core.h"

namespace moepack {

// A tag that names something.
struct NamedTag {
  MarkerMatch match = MarkerMatch::kNo;
  std::size_t size = 0;  // bytes
  std::string name = {};
  std::optional<bool> is_string = {};  // where the tag itself tells the value's type
};

// A value may hold text that looks like its end. So where these markers are plain text, an end
// counts only if what follows goes on as a call does: with a parameter that the tool has and that
// was not given yet, or with the end of the call. Behind a value that has ended a parameter may be
// given again: it is told again, and of a key that stands twice readers of JSON take the last.
class TaggedCallParser : public OutputParserCore {
 public:
  using OutputParserCore::OutputParserCore;

 protected:
  // At byte `at` of the text's rest: from the opener to behind the name.
  virtual NamedTag match_call(std::size_t at) const = 0;
  // From the parameter's tag to the first byte of its value.
  virtual NamedTag match_parameter(std::size_t at) const = 0;

  CallStep begin_call(std::size_t at) override;
  CallStep continue_call() override;

  OutputMarker parameter_open_;  // what a parameter's tag begins with
  OutputMarker value_end_, call_end_;
  std::vector<OutputMarker> after_call_end_;  // one of them, or the end of the text, must follow
                                              // call_end_ within a value; empty: nothing must
  std::vector<OutputMarker> section_ends_;    // end a call whose own end is missing
  bool strips_newlines_ = false;              // one at each end of a value

 private:
  struct ValueEnd {
    std::size_t at = 0;  // bytes of the text's rest that belong to the value for certain
    MarkerMatch match = MarkerMatch::kNo;
    std::size_t size = 0;  // bytes of the end
  };

  const ArgumentTypes& types_of(const std::string& name);
  CallStep continue_between();
  CallStep continue_value();
  CallStep end_of_arguments(std::size_t bytes);
  void begin_value(const NamedTag& tag);
  void write_value(std::string_view text);
  void end_value();
  ValueEnd find_value_end() const;
  ValueEnd value_end_at(std::size_t at) const;
  MarkerMatch follows_value(std::size_t at) const;
  MarkerMatch follows_call_end(std::size_t at) const;
  MarkerMatch parameter_at(std::size_t at) const;
  bool is_at_line_start(std::size_t at) const;
  std::size_t skip_repeated_value_end(std::size_t at) const;

  std::map<std::string, ArgumentTypes> types_by_tool_;  // of those that were called
  ArgumentTypes unknown_types_;                         // of a tool that was not offered
  const ArgumentTypes* types_ = &unknown_types_;        // of the call that is read
  std::set<std::string, std::less<>> used_;             // arguments given
  bool is_in_value_ = false;
  bool is_value_begun_ = false;   // a byte of it was taken
  bool is_string_begun_ = false;  // its opening quote was written
  char last_of_value_ = '\n';
  ArgumentType type_;
  std::optional<bool> is_string_;
  std::string value_;  // what waits for the value's end
};

// NAME of `OPEN NAME>`: up to the bracket, without blanks and quotes. kNo if it is too long or goes
// over a line.
NamedTag match_name_tag(const OutputText& text, std::size_t at, const OutputMarker& open);
// The attributes of `OPEN name="NAME" string="true">`; the quotes may be missing.
NamedTag match_attribute_tag(const OutputText& text, std::size_t at, const OutputMarker& open);

}  // namespace moepack
