#include "runtime/tokenizer/tokenizer_regex.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "formats/base/utf8.h"
#include "runtime/tokenizer/tokenizer_unicode.h"

namespace moepack {
namespace {

constexpr int kMaxDepth = 40;
constexpr char32_t kMaxRepeat = 10000;
constexpr char32_t kLastCodePoint = 0x10FFFF;

void append_escaped(char32_t c, std::string& out) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (plain) {
    out += static_cast<char>(c);
    return;
  }
  out += "\\x{";
  int shift = 20;
  while (shift > 0 && (c >> shift) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) out += kHex[(c >> shift) & 15];
  out += '}';
}

void append_range(char32_t first, char32_t last, std::string& out) {
  append_escaped(first, out);
  if (first == last) return;
  out += '-';
  append_escaped(last, out);
}

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The members of a general category, e.g. "Lu" or "L", as the content of a class.
std::string category_members(std::string_view name, CategoryData data) {
  std::string out = "\\p{" + std::string(name) + "}";
  if (data == CategoryData::kLibrary) return out;
  for (const CategoryRange& range : categories_since_unicode_14()) {
    if (!std::string_view(range.category).starts_with(name)) continue;
    append_range(range.first, range.last, out);
  }
  return out;
}

bool is_known_category(std::string_view name) {
  // Not Mn and Mc, where Unicode has moved a character, and not C, which shrinks with every
  // version.
  static constexpr std::array<std::string_view, 30> kNames = {
      "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
      "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Me", ""};
  return !name.empty() && std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// The members of the script Han. PCRE2's \p{Han} would add what other scripts share with it.
std::string han_members(CategoryData data) {
  std::string out = "\\p{sc:Han}";
  if (data == CategoryData::kLibrary) return out;
  // Those that Unicode 15.0 to 16.0 assigned.
  append_range(0x2B739, 0x2B739, out);
  append_range(0x2EBF0, 0x2EE5D, out);
  append_range(0x31350, 0x323AF, out);
  return out;
}

std::string white_space_members() {
  std::string out;
  for (const CodePointRange& range : white_space()) append_range(range.first, range.last, out);
  return out;
}

std::string non_white_space_members() {
  std::string out;
  char32_t next = 0;
  for (const CodePointRange& range : white_space()) {
    if (range.first > next) append_range(next, range.first - 1, out);
    next = range.last + 1;
  }
  append_range(next, kLastCodePoint, out);
  return out;
}

std::string word_members(CategoryData data) {
  std::string out;
  for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) out += category_members(category, data);
  for (const CodePointRange& range : alphabetic_symbols()) {
    append_range(range.first, range.last, out);
  }
  return out;
}

void append_latin_digits(std::string& out) {
  append_range(0xB2, 0xB3, out);
  append_range(0xB9, 0xB9, out);
  append_range(0xBC, 0xBE, out);
}

// A set named by an escape, e.g. \s or \P{L}.
struct NamedSet {
  std::string members;          // class content without the negation
  std::string negated_members;  // the complement as class content, where that can be written
  bool negated = false;
  bool safe_caseless = false;  // closed under case
};

class Translator {
 public:
  Translator(std::string_view pattern, CategoryData data, const Where& where)
      : in_(pattern), data_(data), where_(where) {}

  Result<std::string> run() {
    bool may_be_empty = false;
    MOE_RETURN_IF_ERROR(alternatives(&may_be_empty));
    if (at_ < in_.size()) return invalid("unmatched )");
    return std::move(out_);
  }

 private:
  Status refuse(const std::string& what) const {
    return unsupported(
        where_, "pattern, byte " + std::to_string(at_) + ": " + what + " is not implemented");
  }
  Status invalid(const std::string& what) const {
    return corrupt(where_, "pattern, byte " + std::to_string(at_) + ": " + what);
  }

  bool done() const { return at_ == in_.size(); }
  char peek() const { return in_[at_]; }  // only ASCII values are compared
  bool take(std::string_view token) {
    if (!in_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  char32_t take_character() {
    const char* start = in_.data() + at_;
    const char* at = start;
    const char32_t c = next_character(&at);
    at_ += static_cast<std::size_t>(at - start);
    return c;
  }

  // What has just been translated, for the quantifier that may follow.
  struct Atom {
    bool repeatable = true;
    bool may_be_empty = false;
  };

  Status alternatives(bool* may_be_empty) {
    previous_literal_ = 0;
    *may_be_empty = false;
    bool empty_so_far = true;  // of the alternative being read
    while (!done() && peek() != ')') {
      if (take("|")) {
        out_ += '|';
        previous_literal_ = 0;
        *may_be_empty = *may_be_empty || empty_so_far;
        empty_so_far = true;
        continue;
      }
      Atom atom;
      MOE_RETURN_IF_ERROR(read_atom(&atom));
      MOE_RETURN_IF_ERROR(quantifier(&atom));
      empty_so_far = empty_so_far && atom.may_be_empty;
    }
    *may_be_empty = *may_be_empty || empty_so_far;
    return Status::ok();
  }

  Status read_atom(Atom* atom) {
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') return invalid("a quantifier without a target");
    if (c == '{') return refuse("an unescaped {");
    if (c == '(') return group(atom);
    if (c != '[' && c != '\\' && c != '.' && c != '^' && c != '$') {
      return literal(take_character());
    }
    if (c == '\\') return escape();
    previous_literal_ = 0;
    if (c == '[') return character_class();
    ++at_;
    if (c == '.') {
      out_ += "[^\\n]";
    } else {
      *atom = {.repeatable = false, .may_be_empty = true};
      out_ += c == '^' ? "(?m:^)" : "(?m:$)";
    }
    return Status::ok();
  }

  Status literal(char32_t c) {
    if (caseless_) {
      if (c >= 0x80) return refuse("a caseless character beyond ASCII");
      // Oniguruma also matches one character that folds to several, as U+00DF for "ss".
      static constexpr std::array<std::string_view, 5> kFolds = {"ff", "fi", "fl", "ss", "st"};
      const char pair[2] = {static_cast<char>(previous_literal_ | 0x20),
                            static_cast<char>(c | 0x20)};
      if (std::find(kFolds.begin(), kFolds.end(), std::string_view(pair, 2)) != kFolds.end()) {
        return refuse("caseless \"" + std::string(pair, 2) + "\"");
      }
      previous_literal_ = c;
    }
    append_escaped(c, out_);
    return Status::ok();
  }

  Status group(Atom* atom) {
    // The longest heads come first. A plain group only groups here.
    static constexpr std::array<std::string_view, 7> kHeads = {
        "(?<=", "(?<!", "(?i:", "(?:", "(?=", "(?!", "(?>"};
    if (++depth_ > kMaxDepth) return refuse("nesting this deep");
    std::string_view head = "(";
    for (std::string_view candidate : kHeads) {
      if (in_.substr(at_).starts_with(candidate)) head = candidate;
    }
    if (head == "(" && (in_.substr(at_).starts_with("(?") || in_.substr(at_).starts_with("(*"))) {
      return refuse("the group " + printable(in_.substr(at_, 4)));
    }
    at_ += head.size();
    out_ += head == "(" ? "(?:" : head;
    atom->repeatable = head == "(" || head == "(?:" || head == "(?i:" || head == "(?>";
    const bool outer_caseless = caseless_;
    caseless_ = caseless_ || head == "(?i:";
    MOE_RETURN_IF_ERROR(alternatives(&atom->may_be_empty));
    atom->may_be_empty = atom->may_be_empty || !atom->repeatable;
    if (!take(")")) return invalid("a group is not closed");
    out_ += ')';
    caseless_ = outer_caseless;
    previous_literal_ = 0;
    --depth_;
    return Status::ok();
  }

  Status quantifier(Atom* atom) {
    if (done()) return Status::ok();
    const char c = peek();
    if (c != '*' && c != '+' && c != '?' && c != '{') return Status::ok();
    if (!atom->repeatable) return refuse("repeating an assertion");
    // When a round matches nothing, Oniguruma ends the loop where PCRE2 may go on.
    if (atom->may_be_empty && c != '?') return refuse("repeating what can match nothing");
    bool may_be_possessive = true;
    bool may_be_lazy = true;
    bool optional = c != '+';
    if (c == '{') {
      MOE_RETURN_IF_ERROR(interval(&may_be_lazy, &optional));
      may_be_possessive = false;  // in Ruby's syntax {n,m}+ repeats the repetition
    } else {
      out_ += c;
      ++at_;
    }
    if (!done() && (peek() == '?' || peek() == '+')) {
      if (peek() == '?' ? !may_be_lazy : !may_be_possessive) {
        return refuse("this suffix of a quantifier");
      }
      out_ += peek();
      ++at_;
    }
    if (!done() && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')) {
      return refuse("a quantifier on a quantifier");
    }
    atom->may_be_empty = atom->may_be_empty || optional;
    previous_literal_ = 0;
    return Status::ok();
  }

  std::optional<char32_t> number() {
    char32_t value = 0;
    const std::size_t start = at_;
    while (!done() && peek() >= '0' && peek() <= '9') {
      value = std::min(value * 10 + static_cast<char32_t>(peek() - '0'), kMaxRepeat + 1);
      ++at_;
    }
    if (at_ == start) return std::nullopt;
    return value;
  }

  // Reads {n}, {n,}, {,m} or {n,m}.
  Status interval(bool* may_be_lazy, bool* optional) {
    take("{");
    const std::optional<char32_t> low = number();
    const bool comma = take(",");
    const std::optional<char32_t> high = comma ? number() : low;
    if (!take("}") || (!low && !high)) return refuse("an unescaped {");
    if (low.value_or(0) > kMaxRepeat || high.value_or(0) > kMaxRepeat) {
      return refuse("a repetition this long");
    }
    if (high && low.value_or(0) > *high) return refuse("an interval that counts down");
    out_ += '{' + std::to_string(low.value_or(0));
    if (comma) out_ += ',' + (high ? std::to_string(*high) : std::string());
    out_ += '}';
    *optional = low.value_or(0) == 0;
    *may_be_lazy = comma;  // in Ruby's syntax {n}? is optional, not lazy
    return Status::ok();
  }

  Status escape() {
    NamedSet set;
    MOE_ASSIGN_OR_RETURN(const bool is_set, named_set(false, &set));
    if (is_set) {
      previous_literal_ = 0;
      if (caseless_ && !set.safe_caseless) return refuse("a caseless property");
      out_ += (set.negated ? "[^" : "[") + set.members + "]";
      return Status::ok();
    }
    MOE_ASSIGN_OR_RETURN(const char32_t c, escaped_character());
    return literal(c);
  }

  // Reads \s, \p{…} and the like if that is what stands here.
  Result<bool> named_set(bool in_class, NamedSet* set) {
    if (take("\\s") || take("\\S")) {
      set->members = white_space_members();
      set->negated_members = non_white_space_members();
      set->negated = in_[at_ - 1] == 'S';
      set->safe_caseless = true;
    } else if (take("\\d") || take("\\D")) {
      set->members = category_members("Nd", data_);
      set->negated = in_[at_ - 1] == 'D';
    } else if (take("\\w") || take("\\W")) {
      // Oniguruma's bare \w also takes six digits of Latin-1 that [\w] does not.
      set->members = word_members(data_);
      if (!in_class) append_latin_digits(set->members);
      set->negated = in_[at_ - 1] == 'W';
    } else if (in_.substr(at_).starts_with("\\p") || in_.substr(at_).starts_with("\\P")) {
      const std::size_t start = at_;
      set->negated = in_[at_ + 1] == 'P';
      at_ += 2;
      if (!take("{")) return invalid("\\p without a name in braces");
      if (take("^")) set->negated = !set->negated;
      const auto close = in_.find('}', at_);
      if (close == std::string_view::npos) return invalid("\\p{ is not closed");
      const std::string_view name = in_.substr(at_, close - at_);
      if (name != "Han" && !is_known_category(name)) {
        at_ = start;
        return refuse("the property " + printable(name, 40));
      }
      set->members = name == "Han" ? han_members(data_) : category_members(name, data_);
      at_ = close + 1;
    } else {
      return false;
    }
    return true;
  }

  Result<char32_t> escaped_character() {
    take("\\");
    if (done()) return invalid("ends in a backslash");
    const char c = peek();
    static constexpr std::string_view kNames = "nrtfvae";
    static constexpr std::string_view kValues = "\n\r\t\f\v\a\x1b";
    if (const auto found = kNames.find(c); found != std::string_view::npos) {
      ++at_;
      return static_cast<char32_t>(kValues[found]);
    }
    if (c == 'x' || c == 'u') return hex_character();
    const auto byte = static_cast<unsigned char>(c);
    const bool punctuation =
        byte > 0x20 && byte < 0x7F && !is_ascii_letter(byte) && !(byte >= '0' && byte <= '9');
    if (!punctuation && c != ' ') return refuse("the escape \\" + printable(in_.substr(at_, 1)));
    ++at_;
    return static_cast<char32_t>(byte);
  }

  // Reads \x{H…}, \xHH below 80 (from there on Oniguruma means a byte), or \uHHHH.
  Result<char32_t> hex_character() {
    const bool braces = take("x{");
    const bool four = !braces && take("u");
    if (!braces && !four) take("x");
    const std::size_t most = braces ? 8 : (four ? 4 : 2);
    char32_t value = 0;
    std::size_t digits = 0;
    while (digits < most && !done()) {
      const char c = peek();
      char32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<char32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = static_cast<char32_t>((c | 0x20) - 'a') + 10;
      } else {
        break;
      }
      value = std::min<char32_t>(value, 0xFFFFFF) * 16 + digit;
      ++digits;
      ++at_;
    }
    if (braces && !take("}")) return invalid("\\x{ is not closed");
    if (digits == 0 || (!braces && digits != most)) return invalid("a hexadecimal escape is short");
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF)) {
      return invalid("a hexadecimal escape is no character");
    }
    if (!braces && !four && value >= 0x80) return refuse("\\x of a byte beyond ASCII");
    return value;
  }

  Status character_class() {
    take("[");
    const bool negated = take("^");
    if (negated && caseless_) return refuse("a caseless negated class");
    const std::size_t begin = out_.size();
    out_ += negated ? "[^" : "[";
    if (!done() && peek() == ']') return refuse("] at the head of a class");
    bool first = true;
    while (!take("]")) {
      if (done()) return invalid("a class is not closed");
      if (!first && in_.substr(at_).starts_with("&&")) return intersection(negated, begin);
      MOE_RETURN_IF_ERROR(class_item(first));
      first = false;
    }
    out_ += ']';
    return Status::ok();
  }

  // Reads &&[...]] at the end of the class whose translation starts at `begin`. PCRE2 has no
  // intersections: the second class is looked for first.
  Status intersection(bool negated, std::size_t begin) {
    if (negated || caseless_) return refuse("this intersection of classes");
    take("&&");
    const bool outside = take("[^");
    if (!outside && !take("[")) return refuse("an intersection with anything but a class");
    const std::string left = out_.substr(begin) + "]";
    out_.resize(begin);
    out_ += outside ? "(?:(?![" : "(?:(?=[";
    bool first = true;
    for (; !take("]"); first = false) {
      if (done()) return invalid("a class is not closed");
      MOE_RETURN_IF_ERROR(class_item(first));
    }
    if (first) return refuse("] at the head of a class");
    out_ += "])" + left + ")";
    return take("]") ? Status::ok() : refuse("an intersection with anything but one class");
  }

  bool at_class_end() const { return !done() && peek() == ']'; }

  Status class_item(bool first) {
    if (peek() == '[') return refuse("a class in a class");
    if (in_.substr(at_).starts_with("&&")) return refuse("an intersection of classes");
    if (peek() == '\\') {
      NamedSet set;
      MOE_ASSIGN_OR_RETURN(const bool is_set, named_set(true, &set));
      if (is_set) return class_set(set);
    }
    const bool dash = peek() == '-';
    MOE_ASSIGN_OR_RETURN(const char32_t low, class_character());
    if (dash && !first && !at_class_end()) return refuse("an unescaped - inside a class");
    char32_t high = low;
    if (!done() && peek() == '-' && !in_.substr(at_).starts_with("-]")) {
      if (dash) return refuse("an unescaped - inside a class");
      take("-");
      if (done()) return invalid("a class is not closed");
      if (peek() == '[') return refuse("a class in a class");
      MOE_ASSIGN_OR_RETURN(high, class_character());
      if (high < low) return invalid("a range that runs backwards");
    }
    if (caseless_ && high >= 0x80) return refuse("a caseless character beyond ASCII");
    append_range(low, high, out_);
    return Status::ok();
  }

  Status class_set(const NamedSet& set) {
    if (caseless_ && !set.safe_caseless) return refuse("a caseless property");
    if (set.negated && set.negated_members.empty()) return refuse("a negated set inside a class");
    if (!done() && peek() == '-' && !in_.substr(at_).starts_with("-]")) {
      return refuse("an unescaped - inside a class");
    }
    out_ += set.negated ? set.negated_members : set.members;
    return Status::ok();
  }

  Result<char32_t> class_character() {
    if (peek() == '\\') return escaped_character();
    return take_character();
  }

  std::string_view in_;
  CategoryData data_;
  Where where_;
  std::size_t at_ = 0;
  std::string out_;
  int depth_ = 0;
  bool caseless_ = false;
  char32_t previous_literal_ = 0;  // of the run of caseless literals being read
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern, CategoryData data,
                                    const Where& where) {
  return Translator(pattern, data, where).run();
}

std::string quote_for_regex(std::string_view text) {
  std::string out;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) append_escaped(next_character(&at), out);
  return out;
}

}  // namespace moepack
