// Vocabularies, walks and a small validator for the tests of constraints.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/constrain/constraint.h"
#include "runtime/constrain/token_bytes.h"

namespace moepack::test {

// Ids 0 to 255 are single bytes, 256 is the end of texts, then the texts, then the markers.
constexpr std::int32_t kEndId = 256;
std::shared_ptr<const TokenBytes> make_vocabulary(const std::vector<std::string>& texts,
                                                  const std::vector<std::string>& markers = {});
// Pieces of JSON and of words that a trained vocabulary has.
std::vector<std::string> usual_pieces();

// The ids of one of the ways to write `text`; drawn at random where `random` is given, else single
// bytes. Markers are tokens wherever their text is.
std::vector<std::int32_t> tokenised(const TokenBytes& tokens, std::string_view text,
                                    std::mt19937* random);

// Whether the constraint allows the tokens one after the other and then the end.
bool accepts(const std::shared_ptr<const Grammar>& grammar,
             const std::shared_ptr<const TokenBytes>& tokens, const std::vector<std::int32_t>& ids,
             const std::string& starts_after = "");
// The same of a text in single bytes.
bool accepts_text(const std::shared_ptr<const Grammar>& grammar, std::string_view text);

struct Walk {
  std::string text;
  bool has_ended = false;
};
// Draws allowed tokens until the end, at most `limit`; the end is drawn more often than chance
// would, the more so the longer the text is.
Walk random_walk(TokenFilter& filter, const TokenBytes& tokens, std::mt19937& random,
                 std::size_t limit);

// What a schema says of a value, of the keywords that tests use; written from the specification
// (json-schema.org, 2020-12) alone.
bool is_valid_json(const OrderedJson& root, const OrderedJson& schema, const OrderedJson& value);

}  // namespace moepack::test
