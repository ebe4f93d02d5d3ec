// Jinja templates as transformers renders them for chats: jinja2 3.1 in its immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, and transformers' tojson,
// raise_exception and strftime_now. What it prints is jinja2's output byte by byte. It differs in
// that lists and dictionaries may be changed (append, pop, …: they are copies of the caller's), and
// it refuses, by name, what chat templates have no use for: template inheritance and imports,
// autoescape, lipsum, and the filters pprint, random, striptags, urlize, wordwrap and xmlattr.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/status.h"
#include "runtime/jinja/limits.h"
#include "runtime/jinja/text.h"

namespace moepack::jinja {

struct Variables {
  nlohmann::ordered_json own = nlohmann::ordered_json::object();   // of the template's side
  nlohmann::ordered_json user = nlohmann::ordered_json::object();  // marked as from the user
  // Members of objects in `user` with the name `word_member` and one of `words` as their text are
  // not marked: words of a fixed list, as roles are.
  std::string word_member;
  std::vector<std::string> words;
  std::tm clock{};  // what strftime_now() tells
};

struct Rendered {
  std::string text;             // UTF-8
  std::vector<ByteRange> user;  // ascending, apart: bytes that came out of Variables::user
};

// Unchanging once it is made: render() may be called from any number of threads.
class Template {
 public:
  // `name` stands in messages. kCorrupt, with line and column, for what is no template;
  // kUnsupported for what is not supported and for limits.
  static Result<Template> compile(std::string_view source, std::string name,
                                  const Limits& limits = {});
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // kInvalidArgument where the template calls raise_exception (its words) or meets values that it
  // cannot use; kUnsupported for limits and what is not supported. Messages have line and column.
  Result<Rendered> render(const Variables& variables) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack::jinja
