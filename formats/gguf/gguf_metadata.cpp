#include "formats/gguf/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <numeric>
#include <optional>

namespace moepack {
namespace {

struct ValueTypeRow {
  GgufValueType type;
  std::string_view name;
  std::uint32_t bytes;  // 0: no fixed size
};
constexpr std::array<ValueTypeRow, 13> kTypes{{{GgufValueType::kU8, "u8", 1},
                                               {GgufValueType::kI8, "i8", 1},
                                               {GgufValueType::kU16, "u16", 2},
                                               {GgufValueType::kI16, "i16", 2},
                                               {GgufValueType::kU32, "u32", 4},
                                               {GgufValueType::kI32, "i32", 4},
                                               {GgufValueType::kF32, "f32", 4},
                                               {GgufValueType::kBool, "bool", 1},
                                               {GgufValueType::kString, "string", 0},
                                               {GgufValueType::kArray, "array", 0},
                                               {GgufValueType::kU64, "u64", 8},
                                               {GgufValueType::kI64, "i64", 8},
                                               {GgufValueType::kF64, "f64", 8}}};

const ValueTypeRow& row_of(GgufValueType type) { return kTypes.at(static_cast<std::size_t>(type)); }

bool is_signed_integer(GgufValueType type) {
  return type == GgufValueType::kI8 || type == GgufValueType::kI16 || type == GgufValueType::kI32 ||
         type == GgufValueType::kI64;
}
bool is_integer(GgufValueType type) {
  return is_signed_integer(type) || type == GgufValueType::kU8 || type == GgufValueType::kU16 ||
         type == GgufValueType::kU32 || type == GgufValueType::kU64;
}

std::int64_t sign_extended(std::uint64_t raw, std::uint32_t bytes) {
  const std::uint32_t shift = 64 - 8 * bytes;
  return static_cast<std::int64_t>(raw << shift) >> shift;
}

// nullopt where the type or the range does not fit.
std::optional<std::int64_t> to_signed(GgufValueType type, std::uint64_t raw) {
  if (is_signed_integer(type)) return sign_extended(raw, row_of(type).bytes);
  if (!is_integer(type) ||
      raw > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(raw);
}

std::optional<double> to_real(GgufValueType type, std::uint64_t raw) {
  if (type == GgufValueType::kF32) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(raw)));
  }
  if (type == GgufValueType::kF64) return std::bit_cast<double>(raw);
  if (is_signed_integer(type)) return static_cast<double>(sign_extended(raw, row_of(type).bytes));
  if (is_integer(type)) return static_cast<double>(raw);
  return std::nullopt;
}

std::string number_text(GgufValueType type, std::uint64_t raw) {
  if (type == GgufValueType::kBool) return raw != 0 ? "true" : "false";
  if (is_signed_integer(type)) return std::to_string(sign_extended(raw, row_of(type).bytes));
  if (is_integer(type)) return std::to_string(raw);
  // The shortest digits that give the number back.
  std::array<char, 40> text{};
  char* end = text.data() + text.size();
  end = type == GgufValueType::kF32
            ? std::to_chars(text.data(), end, std::bit_cast<float>(static_cast<std::uint32_t>(raw)))
                  .ptr
            : std::to_chars(text.data(), end, std::bit_cast<double>(raw)).ptr;
  return {text.data(), end};
}

std::string key_text(const GgufEntry& entry) { return "key " + printable(entry.key, 128); }

Result<GgufValueType> read_type(GgufCursor& cursor, const std::string& what) {
  const std::uint64_t start = cursor.position();
  MOE_ASSIGN_OR_RETURN(const std::uint32_t number, cursor.u32("the type of " + what));
  if (number >= kTypes.size()) {
    return cursor.error(
        start, what + " has type " + std::to_string(number) + "; the format's go from 0 to 12");
  }
  return static_cast<GgufValueType>(number);
}

// Walks `count` bools; each must be 0 or 1.
Status check_bools(GgufCursor& cursor, std::uint64_t count, const std::string& what) {
  std::array<std::byte, 4096> bytes;
  for (std::uint64_t at = 0; at < count;) {
    const auto part = std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), count - at));
    const std::uint64_t start = cursor.position();
    MOE_RETURN_IF_ERROR(cursor.read(part, what));
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (std::to_integer<unsigned>(part[i]) <= 1) continue;
      return cursor.error(start + i, what + " is a bool of value " +
                                         std::to_string(std::to_integer<unsigned>(part[i])) +
                                         "; only 0 and 1 are");
    }
    at += part.size();
  }
  return Status::ok();
}

Status skip_string(GgufCursor& cursor, const std::string& what) {
  const std::uint64_t start = cursor.position();
  MOE_ASSIGN_OR_RETURN(const std::uint64_t length, cursor.u64(what));
  if (length > kMaxGgufStringBytes) {
    return cursor.error(start, what + " is a string of " + std::to_string(length) +
                                   " bytes, at most " + std::to_string(kMaxGgufStringBytes) +
                                   " are allowed");
  }
  return cursor.skip(length, what);
}

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) { return row_of(type).name; }

Status GgufMetadata::parse_value(GgufCursor& cursor, GgufEntry& entry) {
  const std::string what = key_text(entry);
  MOE_ASSIGN_OR_RETURN(entry.type, read_type(cursor, what));
  entry.element = entry.type;
  if (entry.type == GgufValueType::kArray) {
    const std::uint64_t start = cursor.position();
    MOE_ASSIGN_OR_RETURN(entry.element, read_type(cursor, what));
    if (entry.element == GgufValueType::kArray) {
      return cursor.error(start, what + " is an array of arrays",
                          "ggml refuses such files too; write the file again");
    }
    MOE_ASSIGN_OR_RETURN(entry.count, cursor.u64("the length of " + what));
    // The shortest element of a string array is its length.
    const std::uint64_t least =
        entry.element == GgufValueType::kString ? 8 : row_of(entry.element).bytes;
    if (entry.count > kMaxGgufArrayElements || entry.count * least > cursor.remaining()) {
      return cursor.error(start + 4, what + " would have " + std::to_string(entry.count) + " " +
                                         std::string(gguf_value_type_name(entry.element)) +
                                         " elements, the file has " +
                                         std::to_string(cursor.remaining()) + " bytes more");
    }
  }
  entry.offset = cursor.position();
  if (entry.element == GgufValueType::kString) {
    for (std::uint64_t i = 0; i < entry.count; ++i) MOE_RETURN_IF_ERROR(skip_string(cursor, what));
  } else if (entry.element == GgufValueType::kBool) {
    MOE_RETURN_IF_ERROR(check_bools(cursor, entry.count, what));
  } else {
    MOE_RETURN_IF_ERROR(cursor.skip(entry.count * row_of(entry.element).bytes, what));
  }
  entry.bytes = cursor.position() - entry.offset;
  return Status::ok();
}

Result<GgufMetadata> GgufMetadata::parse(std::shared_ptr<const File> file, GgufCursor& cursor,
                                         std::uint64_t count) {
  GgufMetadata metadata;
  metadata.file_ = std::move(file);
  metadata.big_endian_ = cursor.big_endian();
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t start = cursor.position();
    GgufEntry entry;
    MOE_ASSIGN_OR_RETURN(
        entry.key, cursor.string(kMaxGgufKeyBytes,
                                 "key " + std::to_string(i + 1) + " of " + std::to_string(count)));
    if (entry.key.empty()) {
      return cursor.error(
          start, "key " + std::to_string(i + 1) + " of " + std::to_string(count) + " is empty");
    }
    MOE_RETURN_IF_ERROR(metadata.parse_value(cursor, entry));
    metadata.entries_.push_back(std::move(entry));
    starts.push_back(start);
  }
  const auto& entries = metadata.entries_;
  metadata.by_key_.resize(entries.size());
  std::iota(metadata.by_key_.begin(), metadata.by_key_.end(), 0U);
  std::stable_sort(
      metadata.by_key_.begin(), metadata.by_key_.end(),
      [&](std::uint32_t a, std::uint32_t b) { return entries[a].key < entries[b].key; });
  const auto twice = std::adjacent_find(
      metadata.by_key_.begin(), metadata.by_key_.end(),
      [&](std::uint32_t a, std::uint32_t b) { return entries[a].key == entries[b].key; });
  if (twice != metadata.by_key_.end()) {
    return cursor.error(starts[*std::next(twice)], key_text(entries[*twice]) + " stands twice");
  }
  return metadata;
}

const GgufEntry* GgufMetadata::find(std::string_view key) const {
  const auto at = std::lower_bound(
      by_key_.begin(), by_key_.end(), key,
      [&](std::uint32_t index, std::string_view wanted) { return entries_[index].key < wanted; });
  return at != by_key_.end() && entries_[*at].key == key ? &entries_[*at] : nullptr;
}

Result<const GgufEntry*> GgufMetadata::need(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry != nullptr) return entry;
  return not_found(Where{.file = file_ == nullptr ? std::string_view() : file_->path()},
                   "key " + printable(key, 128) + " is missing",
                   "the file is incomplete; download or make it again");
}

Status GgufMetadata::wrong(const GgufEntry& entry, std::string_view expected) const {
  std::string is(gguf_value_type_name(entry.type));
  if (entry.type == GgufValueType::kArray) {
    is += " of " + std::to_string(entry.count) + " " +
          std::string(gguf_value_type_name(entry.element));
  } else if (entry.type != GgufValueType::kString) {
    const auto value = text(entry, 64);
    if (value.is_ok()) is += " " + value.value();
  }
  return corrupt(Where{.file = file_->path(), .offset = entry.offset},
                 key_text(entry) + " is " + is + ", expected is " + std::string(expected),
                 "make the file again");
}

GgufCursor GgufMetadata::cursor_at(const GgufEntry& entry) const {
  GgufCursor cursor(*file_, entry.offset);
  cursor.set_big_endian(big_endian_);
  return cursor;
}

Result<std::uint64_t> GgufMetadata::number(std::string_view key, std::uint64_t max) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  const std::string expected = "a whole number from 0 to " + std::to_string(max);
  if (!is_integer(entry->type)) return wrong(*entry, expected);
  MOE_ASSIGN_OR_RETURN(const std::uint64_t raw, cursor_at(*entry).number(entry->bytes, key));
  const bool negative =
      is_signed_integer(entry->type) && sign_extended(raw, row_of(entry->type).bytes) < 0;
  if (negative || raw > max) return wrong(*entry, expected);
  return raw;
}

Result<std::int64_t> GgufMetadata::signed_number(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  if (!is_integer(entry->type)) return wrong(*entry, "a whole number");
  MOE_ASSIGN_OR_RETURN(const std::uint64_t raw, cursor_at(*entry).number(entry->bytes, key));
  const auto value = to_signed(entry->type, raw);
  if (!value.has_value()) return wrong(*entry, "a whole number below 2^63");
  return *value;
}

Result<double> GgufMetadata::real(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  if (entry->bytes > 8 || entry->type == GgufValueType::kArray ||
      entry->type == GgufValueType::kString) {
    return wrong(*entry, "a number");
  }
  MOE_ASSIGN_OR_RETURN(const std::uint64_t raw, cursor_at(*entry).number(entry->bytes, key));
  const auto value = to_real(entry->type, raw);
  if (!value.has_value()) return wrong(*entry, "a number");
  return *value;
}

Result<bool> GgufMetadata::boolean(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  if (entry->type != GgufValueType::kBool) return wrong(*entry, "a bool");
  MOE_ASSIGN_OR_RETURN(const std::uint64_t raw, cursor_at(*entry).number(1, key));
  return raw != 0;
}

Result<std::string> GgufMetadata::string(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  if (entry->type != GgufValueType::kString) return wrong(*entry, "a string");
  return cursor_at(*entry).string(kMaxGgufStringBytes, key);
}

template <typename T, typename Convert>
Result<std::vector<T>> GgufMetadata::list(std::string_view key, std::string_view expected,
                                          const Convert& convert) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  const std::uint32_t size = row_of(entry->element).bytes;
  if (size == 0) return wrong(*entry, expected);
  GgufCursor cursor = cursor_at(*entry);
  std::vector<T> values;
  values.reserve(entry->count);  // at most eight times what the file holds
  for (std::uint64_t i = 0; i < entry->count; ++i) {
    MOE_ASSIGN_OR_RETURN(const std::uint64_t raw, cursor.number(size, key));
    const std::optional<T> value = convert(entry->element, raw);
    if (!value.has_value()) return wrong(*entry, expected);
    values.push_back(*value);
  }
  return values;
}

Result<std::vector<std::int64_t>> GgufMetadata::numbers(std::string_view key) const {
  return list<std::int64_t>(
      key, "whole numbers below 2^63", [](GgufValueType type, std::uint64_t raw) {
        return type == GgufValueType::kBool ? std::optional(static_cast<std::int64_t>(raw))
                                            : to_signed(type, raw);
      });
}

Result<std::vector<double>> GgufMetadata::reals(std::string_view key) const {
  return list<double>(key, "numbers", to_real);
}

Status GgufMetadata::for_each_string(std::string_view key,
                                     const std::function<Status(std::string&)>& visit) const {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, need(key));
  if (entry->element != GgufValueType::kString) return wrong(*entry, "strings");
  GgufCursor cursor = cursor_at(*entry);
  for (std::uint64_t i = 0; i < entry->count; ++i) {
    MOE_ASSIGN_OR_RETURN(std::string text, cursor.string(kMaxGgufStringBytes, key));
    MOE_RETURN_IF_ERROR(visit(text));
  }
  return Status::ok();
}

Result<std::vector<std::string>> GgufMetadata::strings(std::string_view key) const {
  std::vector<std::string> all;
  MOE_RETURN_IF_ERROR(for_each_string(key, [&](std::string& text) {
    all.push_back(std::move(text));
    return Status::ok();
  }));
  return all;
}

Result<std::string> GgufMetadata::text(const GgufEntry& entry, std::size_t max_chars) const {
  GgufCursor cursor = cursor_at(entry);
  const auto one = [&]() -> Result<std::string> {
    const std::uint32_t size = row_of(entry.element).bytes;
    if (size > 0) {
      MOE_ASSIGN_OR_RETURN(const std::uint64_t raw, cursor.number(size, entry.key));
      return number_text(entry.element, raw);
    }
    MOE_ASSIGN_OR_RETURN(const std::uint64_t length, cursor.u64(entry.key));
    std::string start(std::min<std::uint64_t>(length, max_chars + 1), '\0');
    MOE_RETURN_IF_ERROR(cursor.read(std::as_writable_bytes(std::span(start)), entry.key));
    MOE_RETURN_IF_ERROR(cursor.skip(length - start.size(), entry.key));
    return printable(start, max_chars);
  };
  if (entry.type != GgufValueType::kArray) return one();
  std::string text = "[";
  for (std::uint64_t i = 0; i < entry.count; ++i) {
    if (text.size() >= max_chars) {
      text += "...";
      break;
    }
    MOE_ASSIGN_OR_RETURN(const std::string element, one());
    text += element + (i + 1 < entry.count ? ", " : "");
  }
  return text + "] (" + std::to_string(entry.count) + " " +
         std::string(gguf_value_type_name(entry.element)) + ")";
}

}  // namespace moepack
