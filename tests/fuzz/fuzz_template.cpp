// SPDX-License-Identifier: Apache-2.0
// Fuzzes the template interpreter: any bytes as a template, a fixed conversation, small bounds.

// covers: models/jinja/*.cpp models/chat_template.cpp
#include "models/chat_template.hpp"
#include "models/jinja/json_value.hpp"
#include "models/utf8.hpp"

#include <boost/json.hpp>

#include <cstdlib>

namespace {

using namespace troupe;
using namespace troupe::models;

void require(bool ok) {
  if (!ok) std::abort();
}

/// What the templates of the seed corpus read: every type of value, and a conversation with tools.
constexpr std::string_view context_json = R"({
  "s": "Hello, World", "t": "  padded \n",
  "u": "Gr\u00fc\u00dfe \u01c5 \ufb01 \ud83d\ude00 \u039f\u0394\u039f\u03a3",
  "e": "", "n": 3, "z": 0, "neg": -7, "f": 2.5, "big": 1e20, "tiny": 1e-7, "b": true, "c": false, "nil": null,
  "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "el": [],
  "mixed": [1, "a", null, 2.5, true, [1, 2], {"k": "v"}],
  "d": {"b": 1, "a": 2, "C": 3}, "ed": {},
  "nested": {"x": {"y": [10, 20, {"z": "deep"}]}, "items": [1], "get": "got"},
  "q": "it's \"q\" \\ \t\u0007\u00e9\u200b", "num": "42", "fl": "3.75", "neg_s": " -12 ",
  "nl": "a\nb\r\nc\n\nd",
  "msgs": [{"role": "user", "content": "Hi <b>", "n": 1},
           {"role": "assistant", "content": "Yo", "tool": null, "n": 2},
           {"role": "user", "content": "", "n": 0}],
  "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}],
  "messages": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi <|im_end|>"},
    {"role": "assistant", "content": "<think>\n1\n</think>\n\nHello.",
     "tool_calls": [{"id": "call_0001", "type": "function",
      "function": {"name": "f", "arguments": {"x": [1, 2.5, "\u00fc"]}}}]},
    {"role": "tool", "tool_call_id": "call_0001", "name": "f", "content": "{\"t\": 3.5}"},
    {"role": "user", "content": "And?"}],
  "tools": [{"type": "function", "function": {"name": "f", "description": "d",
    "parameters": {"type": "object", "properties": {"x": {"type": "array", "description": "list"}},
      "required": ["x"]}}}]})";

/// Built once: templates cannot change it.
const jinja::value& context() {
  static jinja::heap values;
  static const jinja::value made = [] {
    auto v = jinja::from_json(values, boost::json::parse(context_json));
    require(v.has_value());
    return *v;
  }();
  return made;
}

void check(const jinja::rendered_text& out, const jinja::limits& bounds) {
  require(is_valid_utf8(out.text) && out.text.size() <= bounds.output_bytes);
  std::size_t end = 0;
  for (const text_span& span : out.untrusted) {
    require(span.begin < span.end && span.end <= out.text.size() && (end == 0 || span.begin > end));
    // Provenance follows whole characters.
    require((static_cast<unsigned char>(out.text[span.begin]) & 0xC0) != 0x80);
    require(span.end == out.text.size() || (static_cast<unsigned char>(out.text[span.end]) & 0xC0) != 0x80);
    end = span.end;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  jinja::limits bounds;
  bounds.steps = 20'000;
  bounds.memory_bytes = 1 << 20;
  bounds.output_bytes = 1 << 16;
  bounds.depth = 200;
  chat_context request;
  request.extra = context();
  request.messages = *context().as_dict().find("messages");
  request.tools = *context().as_dict().find("tools");
  request.bos_token = "<s>";
  request.eos_token = "</s>";
  request.now.tm_year = 126;
  request.now.tm_mday = 1;

  const auto compiled = chat_template::compile({reinterpret_cast<const char*>(data), size});
  if (!compiled) {
    require(compiled.error().code == errc::bad_template && !compiled.error().message.empty());
    return 0;
  }
  const auto out = compiled->render(request, bounds);
  const auto again = compiled->render(request, bounds);
  require(out.has_value() == again.has_value());
  if (!out) {
    require(out.error().code == errc::bad_template && out.error().message == again.error().message);
    return 0;
  }
  check(*out, bounds);
  require(out->text == again->text && out->untrusted == again->untrusted);
  return 0;
}
