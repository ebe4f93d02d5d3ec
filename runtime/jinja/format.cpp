#include "runtime/jinja/format.h"

#include <algorithm>

#include "runtime/jinja/format_spec.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

// repr() with everything beyond ASCII escaped.
TextPtr ascii(Run& run, const Value& value) {
  const TextPtr shown = repr(run, value);
  if (is_ascii(*shown)) return shown;
  fail("ascii() of text beyond ASCII is not supported", ErrorKind::kUnsupported);
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class PercentFormat {
 public:
  PercentFormat(Run& run, const TextPtr& text, const Value& value)
      : run_(run), text_(*text), out_(run), value_(value) {
    if (const Tuple* tuple = value.tuple_or_null()) {
      values_ = tuple->items;
      is_tuple_ = true;
    } else {
      values_ = {value};
    }
  }
  Value write();

 private:
  void field();
  const Value& next_value();
  std::int64_t count();
  void add(const Value& value, FormatSpec& spec);
  void add_whole(const Value& value, FormatSpec& spec);
  TextPtr shown(const Value& value, char kind);

  Run& run_;
  const Text& text_;
  TextBuilder out_;
  const Value& value_;
  std::vector<Value> values_;
  bool is_tuple_ = false;
  bool named_ = false;
  std::size_t used_ = 0;
  std::size_t at_ = 0;
};

const Value& PercentFormat::next_value() {
  if (used_ >= values_.size()) fail("not enough arguments for format string");
  return values_[used_++];
}

Value PercentFormat::write() {
  out_.set_safe(text_.safe);
  while (at_ < text_.bytes.size()) {
    const std::size_t mark = std::min(text_.bytes.find('%', at_), text_.bytes.size());
    out_.add(text_, at_, mark);
    at_ = mark + 1;
    if (mark == text_.bytes.size()) break;
    field();
  }
  const bool mapping =
      !is_tuple_ && value_.text_or_null() == nullptr &&
      (value_.dict_or_null() != nullptr || value_.list_or_null() != nullptr ||
       value_.is_undefined() ||
       (value_.object_or_null() != nullptr && value_.object_or_null()->has_items()));
  if (used_ < values_.size() && !named_ && !mapping) {
    fail("not all arguments converted during string formatting");
  }
  return out_.finish();
}

std::int64_t PercentFormat::count() {
  const std::string& bytes = text_.bytes;
  if (at_ < bytes.size() && bytes[at_] == '*') {
    ++at_;
    const auto index = next_value().index();
    if (!index) fail("* wants int");
    return static_cast<std::int64_t>(std::clamp<Integer>(*index, -(1LL << 40), 1LL << 40));
  }
  std::int64_t value = 0;
  while (at_ < bytes.size() && bytes[at_] >= '0' && bytes[at_] <= '9') {
    value = std::min<std::int64_t>(value * 10 + (bytes[at_++] - '0'), 1LL << 40);
  }
  return value;
}

void PercentFormat::field() {
  const std::string& bytes = text_.bytes;
  FormatSpec spec;
  spec.align = '>';
  std::optional<Value> named;
  if (at_ < bytes.size() && bytes[at_] == '(') {
    const std::size_t end = bytes.find(')', at_);
    if (end == std::string::npos) fail("incomplete format key");
    const Dict* dict = value_.dict_or_null();
    if (dict == nullptr) fail("format requires a mapping");
    const Value* found = dict->find(std::string_view(bytes).substr(at_ + 1, end - at_ - 1));
    if (found == nullptr) fail("the format names a key that the mapping has not");
    named = *found;
    named_ = true;
    at_ = end + 1;
  }
  bool zero = false;
  bool left = false;
  for (; at_ < bytes.size(); ++at_) {
    const char flag = bytes[at_];
    if (flag == '-')
      left = true;
    else if (flag == '+')
      spec.sign = '+';
    else if (flag == ' ')
      spec.sign = spec.sign == '+' ? '+' : ' ';
    else if (flag == '#')
      spec.alternate = true;
    else if (flag == '0')
      zero = true;
    else
      break;
  }
  spec.width = count();
  if (spec.width < 0) {
    left = true;
    spec.width = -spec.width;
  }
  if (at_ < bytes.size() && bytes[at_] == '.') {
    ++at_;
    spec.precision = std::max<std::int64_t>(count(), 0);
  }
  while (at_ < bytes.size() && (bytes[at_] == 'l' || bytes[at_] == 'h' || bytes[at_] == 'L')) ++at_;
  if (at_ >= bytes.size()) fail("incomplete format");
  spec.kind = bytes[at_++];
  if (spec.kind == '%') return out_.add("%");
  if (left) {
    spec.align = '<';
  } else if (zero) {
    spec.align = '=';
    spec.fill = "0";
  }
  add(named ? *named : next_value(), spec);
}

TextPtr PercentFormat::shown(const Value& value, char kind) {
  if (kind == 'r') return repr(run_, value);
  if (kind == 'a') return ascii(run_, value);
  const Text* text = value.text_or_null();
  if (text_.safe && (text == nullptr || !text->safe)) {
    return escape_html(run_, *to_text(run_, value));
  }
  return to_text(run_, value);
}

void PercentFormat::add(const Value& value, FormatSpec& spec) {
  const bool zero = spec.align == '=';
  switch (spec.kind) {
    case 's':
    case 'r':
    case 'a': {
      const TextPtr text = shown(value, spec.kind);
      if (zero) {
        spec.align = '>';
        spec.fill = " ";
      }
      const auto size = static_cast<std::int64_t>(text->characters);
      const auto kept =
          static_cast<std::size_t>(spec.precision < 0 ? size : std::min(spec.precision, size));
      return add_padded(run_, out_, *slice_bytes(run_, text, 0, byte_offset(*text, kept)), spec,
                        '>');
    }
    case 'c': {
      if (zero) {
        spec.align = '>';
        spec.fill = " ";
      }
      if (const Text* text = value.text_or_null()) {
        if (text->characters != 1) fail("%c requires int or char");
        return add_padded(run_, out_, *text, spec, '>');
      }
      if (value.as<double>() != nullptr || !value.index()) fail("%c requires int or char");
      spec.precision = -1;
      if (spec.align == 0) spec.align = '>';
      return add_formatted(run_, out_, Value(*value.index()), spec);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return add_whole(value, spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      need_defined(value);
      const auto index = value.index();
      if (!index && value.as<double>() == nullptr) {
        fail("must be real number, not " + type_name(value));
      }
      const Value real(index ? static_cast<double>(*index) : *value.as<double>());
      return add_formatted(run_, out_, real, spec);
    }
    default:
      fail(std::string("unsupported format character '") + spec.kind + "'");
  }
}

void PercentFormat::add_whole(const Value& value, FormatSpec& spec) {
  need_defined(value);
  auto index = value.index();
  const bool decimal = spec.kind == 'd' || spec.kind == 'i' || spec.kind == 'u';
  if (!index && decimal && value.as<double>() != nullptr) {
    index = truncate_float(*value.as<double>());
  }
  if (!index) fail("a number is required, not " + type_name(value));
  const std::int64_t least = spec.precision;
  spec.precision = -1;
  if (decimal) spec.kind = 'd';
  if (least < 0) return add_formatted(run_, out_, Value(*index), spec);
  if (least > kMaxFormatDigits) fail("a precision beyond 4096", ErrorKind::kLimit);
  const int base = decimal ? 10 : spec.kind == 'o' ? 8 : 16;
  std::string digits = write_integer(*index, base);
  if (digits[0] == '-') digits.erase(0, 1);
  if (spec.kind == 'X') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return static_cast<char>(c >= 'a' ? c - 32 : c); });
  }
  const auto wanted = static_cast<std::size_t>(least);
  if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
  std::string prefix = *index < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.kind;
  add_number(run_, out_, prefix, std::move(digits), spec);
}

class BraceFormat {
 public:
  BraceFormat(Run& run, const Arguments& arguments) : run_(run), arguments_(arguments) {}
  void write(TextBuilder& out, const TextPtr& text, int depth);

 private:
  void field(TextBuilder& out, const TextPtr& text, std::size_t begin, std::size_t end, int depth);
  Value find(std::string_view name);
  Value named(std::string_view first);
  std::string number_field(std::string_view name);
  Run& run_;
  const Arguments& arguments_;
  std::int64_t next_ = 0;  // of fields without a number; -1: fields are numbered
};

void BraceFormat::write(TextBuilder& out, const TextPtr& text, int depth) {
  if (depth > 3) fail("Max string recursion exceeded");
  const std::string& bytes = text->bytes;
  std::size_t kept = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] != '{' && bytes[at] != '}') continue;
    out.add(*text, kept, at);
    const bool doubled = at + 1 < bytes.size() && bytes[at + 1] == bytes[at];
    if (doubled) {
      kept = ++at;
      continue;
    }
    if (bytes[at] == '}') fail("Single '}' encountered in format string");
    std::size_t end = at + 1;
    int open = 1;
    bool in_brackets = false;
    for (; end < bytes.size(); ++end) {
      if (bytes[end] == '[' && open == 1) in_brackets = true;
      if (bytes[end] == ']') in_brackets = false;
      if (in_brackets) continue;
      open += bytes[end] == '{' ? 1 : bytes[end] == '}' ? -1 : 0;
      if (open == 0) break;
    }
    if (open != 0 || end >= bytes.size()) fail("expected '}' before end of string");
    field(out, text, at + 1, end, depth);
    at = end;
    kept = end + 1;
  }
  out.add(*text, std::min(kept, bytes.size()), bytes.size());
}

// Fields are numbered by the text ("{0}") or by their order ("{}"), not both; those with parts
// ("{0.a}") do not count, as in Python's string.Formatter.
std::string BraceFormat::number_field(std::string_view name) {
  if (name.empty()) {
    if (next_ < 0) fail("cannot switch from manual field specification to automatic");
    return std::to_string(next_++);
  }
  if (all_digits(name)) {
    if (next_ > 0) fail("cannot switch from automatic field numbering to manual");
    next_ = -1;
  }
  return std::string(name);
}

Value BraceFormat::named(std::string_view first) {
  if (!all_digits(first)) {
    for (const auto& [name, value] : arguments_.keywords) {
      if (name->bytes == first) return value;
    }
    fail("the format names an argument that was not given: '" + std::string(first) + "'");
  }
  const Integer index = first.size() > 9 ? 1 << 30 : parse_integer(first, 10);
  if (index >= static_cast<Integer>(arguments_.positional.size())) {
    fail("Replacement index " + std::string(first) + " out of range");
  }
  return arguments_.positional[static_cast<std::size_t>(index)];
}

// "0.name[key]": an argument, then attributes and items.
Value BraceFormat::find(std::string_view name) {
  const std::size_t first = std::min(name.find_first_of(".["), name.size());
  Value value = named(name.substr(0, first));
  name.remove_prefix(first);
  while (!name.empty()) {
    if (name[0] == '.') {
      const std::size_t end = std::min(name.find_first_of(".[", 1), name.size());
      if (end == 1) fail("Empty attribute in format string");
      value = get_attribute(run_, value, name.substr(1, end - 1));
      name.remove_prefix(end);
      continue;
    }
    if (name[0] != '[') fail("Only '.' or '[' may follow ']' in format field specifier");
    const std::size_t end = name.find(']');
    if (end == std::string_view::npos) fail("Missing ']' in format string");
    const std::string_view key = name.substr(1, end - 1);
    if (key.empty()) fail("Empty attribute in format string");
    const bool numeric =
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = get_item(run_, value, numeric ? Value(parse_integer(key, 10)) : Value::text(key));
    name.remove_prefix(end + 1);
  }
  return value;
}

void BraceFormat::field(TextBuilder& out, const TextPtr& text, std::size_t begin, std::size_t end,
                        int depth) {
  const std::string_view bytes = std::string_view(text->bytes).substr(0, end);
  std::size_t name_end = begin;
  bool in_brackets = false;
  for (; name_end < end; ++name_end) {
    const char byte = bytes[name_end];
    if (byte == '[') in_brackets = true;
    if (byte == ']') in_brackets = false;
    if (!in_brackets && (byte == '!' || byte == ':')) break;
    if (byte == '{') fail("unexpected '{' in field name");
  }
  const std::string name = number_field(bytes.substr(begin, name_end - begin));
  Value value = find(name);
  std::size_t at = name_end;
  if (at < end && bytes[at] == '!') {
    const char conversion = at + 1 < end ? bytes[at + 1] : '\0';
    if (conversion == 'r') {
      value = Value(repr(run_, value));
    } else if (conversion == 's') {
      value = Value(to_text(run_, value));
    } else if (conversion == 'a') {
      value = Value(ascii(run_, value));
    } else {
      fail("Unknown conversion specifier in a format");
    }
    at += 2;
    if (at < end && bytes[at] != ':') fail("expected ':' after conversion specifier");
  }
  TextBuilder spec(run_);
  if (at < end) write(spec, slice_bytes(run_, text, at + 1, end), depth + 1);
  if (spec.empty()) return out.add(*to_text(run_, value));
  add_formatted(run_, out, value, read_format_spec(spec.view().bytes));
}

}  // namespace

Value percent_format(Run& run, const TextPtr& text, const Value& value) {
  return PercentFormat(run, text, value).write();
}

Value brace_format(Run& run, const TextPtr& text, const Arguments& arguments) {
  TextBuilder out(run);
  BraceFormat(run, arguments).write(out, text, 1);
  out.set_safe(text->safe);
  return out.finish();
}

}  // namespace moepack::jinja
