#include "runtime/jinja/print.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

// Adds `text` with some characters replaced; `replace` returns false for those that stay.
template <typename Replace>
void add_replaced(Run& run, TextBuilder& out, const Text& text, const Replace& replace) {
  run.charge_bytes(4 * text.bytes.size());
  std::size_t kept = 0;
  std::string other;
  auto range = text.user.begin();
  for (std::size_t at = 0; at < text.bytes.size();) {
    const std::size_t begin = at;
    const char32_t character = take_character(text.bytes, at);
    other.clear();
    if (!replace(character, other)) continue;
    out.add(text, kept, begin);
    while (range != text.user.end() && range->end <= begin) ++range;
    out.add(other, range != text.user.end() && range->begin <= begin);
    kept = at;
  }
  out.add(text, kept, text.bytes.size());
}

void append_hex(const char* form, char32_t character, std::string& out) {
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), form, static_cast<unsigned>(character));
  out += digits.data();
}

void repr_text(Run& run, TextBuilder& out, const Text& text) {
  const bool single = text.bytes.find('\'') != std::string::npos;
  const bool twofold = text.bytes.find('"') != std::string::npos;
  const char quote = single && !twofold ? '"' : '\'';
  if (text.safe) out.add("Markup(");
  out.add(std::string_view(&quote, 1));
  add_replaced(run, out, text, [quote](char32_t character, std::string& other) {
    if (character == static_cast<char32_t>(quote) || character == '\\') {
      other = {'\\', static_cast<char>(character)};
    } else if (character == '\n') {
      other = "\\n";
    } else if (character == '\r') {
      other = "\\r";
    } else if (character == '\t') {
      other = "\\t";
    } else if (!is_printable(character)) {
      append_hex(character < 0x100     ? "\\x%02x"
                 : character < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                 character, other);
    } else {
      return false;
    }
    return true;
  });
  out.add(std::string_view(&quote, 1));
  if (text.safe) out.add(")");
}

void repr_into(Run& run, TextBuilder& out, const Value& value);

void repr_items(Run& run, TextBuilder& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(", ");
    repr_into(run, out, items[i]);
  }
}

void repr_into(Run& run, TextBuilder& out, const Value& value) {
  run.charge(1);
  const Run::Depth depth(run);
  if (value.is_undefined()) {
    out.add("Undefined");
  } else if (value.is_none()) {
    out.add("None");
  } else if (const bool* boolean = value.as<bool>()) {
    out.add(*boolean ? "True" : "False");
  } else if (const Integer* integer = value.as<Integer>()) {
    out.add(write_integer(*integer));
  } else if (const double* real = value.as<double>()) {
    out.add(write_float(*real));
  } else if (const Text* text = value.text_or_null()) {
    repr_text(run, out, *text);
  } else if (const List* list = value.list_or_null()) {
    out.add("[");
    repr_items(run, out, list->items);
    out.add("]");
  } else if (const Tuple* tuple = value.tuple_or_null()) {
    out.add("(");
    repr_items(run, out, tuple->items);
    out.add(tuple->items.size() == 1 ? ",)" : ")");
  } else if (const Dict* dict = value.dict_or_null()) {
    out.add("{");
    for (std::size_t i = 0; i < dict->size(); ++i) {
      if (i > 0) out.add(", ");
      repr_into(run, out, dict->entries()[i].first);
      out.add(": ");
      repr_into(run, out, dict->entries()[i].second);
    }
    out.add("}");
  } else {
    Object* object = value.object_or_null();
    const auto shown = object->repr(run);
    if (shown) {
      out.add(**shown);
    } else {
      out.add("<" + std::string(object->type_name()) + " object>");
    }
  }
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style), out_(run) {}
  TextPtr write(const Value& value) {
    add(value);
    return out_.finish();
  }

 private:
  void add(const Value& value);
  void add_text(const Text& text);
  void add_items(const std::vector<Value>& items);
  void add_dict(const Dict& dict);
  void add_key(const Value& key);
  void add_line(std::size_t level);
  Run& run_;
  const JsonStyle& style_;
  TextBuilder out_;
  std::size_t level_ = 0;
};

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return write_float(value);
}

void JsonWriter::add_line(std::size_t level) {
  if (!style_.indent) return;
  out_.add("\n");
  run_.charge(level / 16);
  for (std::size_t i = 0; i < level; ++i) out_.add(*style_.indent);
}

void JsonWriter::add_text(const Text& text) {
  out_.add("\"");
  add_replaced(run_, out_, text, [this](char32_t character, std::string& other) {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kEscape = "\"\\nrtfb";
    const std::size_t plain =
        character < 0x80 ? kPlain.find(static_cast<char>(character)) : std::string_view::npos;
    if (plain != std::string_view::npos) {
      other = {'\\', kEscape[plain]};
    } else if (character < 0x20 || (style_.ascii && character >= 0x7F && character < 0x10000)) {
      append_hex("\\u%04x", character, other);
    } else if (style_.ascii && character >= 0x10000) {
      append_hex("\\u%04x", 0xD800 + ((character - 0x10000) >> 10), other);
      append_hex("\\u%04x", 0xDC00 + ((character - 0x10000) & 0x3FF), other);
    } else {
      return false;
    }
    return true;
  });
  out_.add("\"");
}

void JsonWriter::add_items(const std::vector<Value>& items) {
  if (items.empty()) return out_.add("[]");
  out_.add("[");
  ++level_;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_.add(style_.item_separator);
    add_line(level_);
    add(items[i]);
  }
  add_line(--level_);
  out_.add("]");
}

void JsonWriter::add_key(const Value& key) {
  if (const Text* text = key.text_or_null()) return add_text(*text);
  std::string name;
  if (const bool* boolean = key.as<bool>()) {
    name = *boolean ? "true" : "false";
  } else if (key.is_none()) {
    name = "null";
  } else if (const double* real = key.as<double>()) {
    name = json_float(*real);
  } else if (key.index()) {
    name = write_integer(*key.index());
  } else {
    fail("keys must be str, int, float, bool or None, not " + type_name(key));
  }
  out_.add("\"" + name + "\"");
}

void JsonWriter::add_dict(const Dict& dict) {
  if (dict.size() == 0) return out_.add("{}");
  std::vector<const Dict::Entry*> entries;
  for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (style_.sort_keys) {
    for (std::size_t i = 1; i < entries.size(); ++i)
      less(run_, entries[i - 1]->first, entries[i]->first);
    std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
      return less(run_, a->first, b->first);
    });
  }
  out_.add("{");
  ++level_;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_.add(style_.item_separator);
    add_line(level_);
    add_key(entries[i]->first);
    out_.add(style_.key_separator);
    add(entries[i]->second);
  }
  add_line(--level_);
  out_.add("}");
}

void JsonWriter::add(const Value& value) {
  run_.charge(1);
  const Run::Depth depth(run_);
  if (value.is_none()) {
    out_.add("null");
  } else if (const bool* boolean = value.as<bool>()) {
    out_.add(*boolean ? "true" : "false");
  } else if (const Integer* integer = value.as<Integer>()) {
    out_.add(write_integer(*integer));
  } else if (const double* real = value.as<double>()) {
    out_.add(json_float(*real));
  } else if (const Text* text = value.text_or_null()) {
    add_text(*text);
  } else if (const auto* items = value.items()) {
    add_items(*items);
  } else if (const Dict* dict = value.dict_or_null()) {
    add_dict(*dict);
  } else {
    fail("Object of type " + type_name(value) + " is not JSON serializable");
  }
}

}  // namespace

TextPtr repr(Run& run, const Value& value) {
  TextBuilder out(run);
  repr_into(run, out, value);
  return out.finish();
}

TextPtr to_text(Run& run, const Value& value) {
  if (const TextPtr* text = value.as<TextPtr>()) {
    if (!(*text)->safe) return *text;
    TextBuilder plain(run);
    plain.add(**text);
    return plain.finish();
  }
  if (value.is_undefined()) return make_text("");
  return repr(run, value);
}

TextPtr escape_html(Run& run, const Text& text) {
  TextBuilder out(run);
  add_replaced(run, out, text, [](char32_t character, std::string& other) {
    switch (character) {
      case '&':
        other = "&amp;";
        return true;
      case '<':
        other = "&lt;";
        return true;
      case '>':
        other = "&gt;";
        return true;
      case '"':
        other = "&#34;";
        return true;
      case '\'':
        other = "&#39;";
        return true;
      default:
        return false;
    }
  });
  out.set_safe(true);
  return out.finish();
}

TextPtr to_json(Run& run, const Value& value, const JsonStyle& style) {
  return JsonWriter(run, style).write(value);
}

}  // namespace moepack::jinja
