// Blocks of content of Anthropic's Messages API as text.
#pragma once

#include <string>

#include "runtime/serve/body_fields.h"

namespace moepack {

// The text a model is to read for a block of any type; empty for what has none (server_tool_use,
// redacted_thinking, types of the future without a "text"). An image, or a document that is no
// text, becomes a line that says so.
std::string text_of_block(const OrderedJson& block, const std::string& path, RequestFault& fault);

// A content: absent, a text, or blocks; their texts joined by line breaks. Empty ones are skipped.
std::string text_of_content(const OrderedJson* content, const std::string& path,
                            RequestFault& fault);

// Without the billing line at its head, if there is one.
std::string without_billing_line(std::string text);

void append_joined(std::string& text, std::string_view more, std::string_view separator);

}  // namespace moepack
