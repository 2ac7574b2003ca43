// SPDX-License-Identifier: Apache-2.0
// What Python's str methods do, with the provenance of every byte kept.
#include "models/jinja/text_operations.hpp"

#include "models/jinja/format.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <unordered_set>

namespace troupe::models::jinja {
namespace {

value piece(evaluation& e, const text_object& t, std::size_t begin, std::size_t end) {
  text_builder out;
  e.memory().charge(end - begin);
  out.append(t, begin, end);
  return e.text(std::move(out), t.markup);
}

/// The begin of the code point that ends at `end` (> 0).
std::size_t previous(std::string_view text, std::size_t end) noexcept {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void split_at_space(
    evaluation& e, const text_object& t, std::int64_t limit, bool from_right, std::vector<value>& out) {
  const std::string_view text = t.bytes;
  const auto space_at = [&](std::size_t at) { return is_space(decode_utf8(text, at).code); };
  const auto skip = [&](std::size_t at, bool space) {
    while (at < text.size() && space_at(at) == space) at += decode_utf8(text, at).length;
    return at;
  };
  const auto skip_back = [&](std::size_t end, bool space) {
    while (end > 0 && space_at(previous(text, end)) == space) end = previous(text, end);
    return end;
  };
  if (!from_right) {
    for (std::size_t at = skip(0, true); at < text.size();) {
      if (limit == 0) { // the rest, without white space at its end
        out.push_back(piece(e, t, at, std::max(at, skip_back(text.size(), true))));
        return;
      }
      const std::size_t end = skip(at, false);
      out.push_back(piece(e, t, at, end));
      --limit;
      at = skip(end, true);
    }
    return;
  }
  for (std::size_t end = skip_back(text.size(), true); end > 0;) {
    if (limit == 0) {
      out.push_back(piece(e, t, std::min(end, skip(0, true)), end));
      break;
    }
    const std::size_t begin = skip_back(end, false);
    out.push_back(piece(e, t, begin, end));
    --limit;
    end = skip_back(begin, true);
  }
  std::reverse(out.begin(), out.end());
}

} // namespace

value strip(evaluation& e, const text_object& t, const text_object* characters, bool left, bool right) {
  const std::string_view text = t.bytes;
  e.step(1 + text.size() / 64);
  std::unordered_set<char32_t> set;
  if (characters) {
    e.step(characters->length);
    for (std::size_t at = 0; at < characters->bytes.size();) {
      const utf8_step c = decode_utf8(characters->bytes, at);
      set.insert(c.code);
      at += c.length;
    }
  }
  const auto goes = [&](std::size_t at) {
    const char32_t code = decode_utf8(text, at).code;
    return characters ? set.contains(code) : is_space(code);
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && goes(begin)) begin += decode_utf8(text, begin).length;
  while (right && end > begin && goes(previous(text, end))) end = previous(text, end);
  if (begin == 0 && end == text.size()) return value::of(&t);
  return piece(e, t, begin, end);
}

value split(
    evaluation& e, const text_object& t, const text_object* separator, std::int64_t limit, bool from_right) {
  e.step_search(t.bytes.size(), separator ? separator->bytes.size() : 0);
  if (limit < 0) limit = INT64_MAX;
  std::vector<value> out;
  if (!separator) {
    split_at_space(e, t, limit, from_right, out);
    return e.list(std::move(out));
  }
  const std::string& mark = separator->bytes;
  if (mark.empty()) e.fail("empty separator");
  if (!from_right) {
    std::size_t begin = 0;
    for (std::size_t at = t.bytes.find(mark); at != std::string::npos && limit != 0;
         at = t.bytes.find(mark, begin)) {
      out.push_back(piece(e, t, begin, at));
      begin = at + mark.size();
      --limit;
    }
    out.push_back(piece(e, t, begin, t.bytes.size()));
    return e.list(std::move(out));
  }
  std::size_t end = t.bytes.size();
  while (limit != 0 && end >= mark.size()) {
    const std::size_t at = t.bytes.rfind(mark, end - mark.size());
    if (at == std::string::npos) break;
    out.push_back(piece(e, t, at + mark.size(), end));
    end = at;
    --limit;
  }
  out.push_back(piece(e, t, 0, end));
  std::reverse(out.begin(), out.end());
  return e.list(std::move(out));
}

std::vector<value> split_lines(evaluation& e, const text_object& t, bool keep_ends) {
  std::vector<value> out;
  const std::string_view text = t.bytes;
  e.step(1 + text.size() / 16);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step c = decode_utf8(text, at);
    std::size_t next = at + c.length;
    if (is_line_break(c.code)) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      out.push_back(piece(e, t, begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) out.push_back(piece(e, t, begin, text.size()));
  return out;
}

value partition(evaluation& e, const text_object& t, const text_object& separator, bool from_right) {
  if (separator.bytes.empty()) e.fail("empty separator");
  e.step_search(t.bytes.size(), separator.bytes.size());
  const std::size_t at = from_right ? t.bytes.rfind(separator.bytes) : t.bytes.find(separator.bytes);
  const value nothing = e.text("");
  std::vector<value> parts{value::of(&t), nothing, nothing};
  if (at != std::string::npos) {
    const std::size_t end = at + separator.bytes.size();
    parts = {piece(e, t, 0, at), piece(e, t, at, end), piece(e, t, end, t.bytes.size())};
  } else if (from_right) {
    std::swap(parts[0], parts[2]);
  }
  return e.list(std::move(parts), list_form::tuple);
}

value replace(
    evaluation& e, const text_object& t, const text_object& from, const text_object& to, std::int64_t count) {
  e.step_search(t.bytes.size(), from.bytes.size());
  if (count < 0) count = INT64_MAX;
  text_builder out;
  std::size_t begin = 0;
  const auto keep = [&](std::size_t end) {
    e.memory().charge(end - begin);
    out.append(t, begin, end);
    begin = end;
  };
  const auto put = [&] {
    e.memory().charge(to.bytes.size());
    out.append(to);
  };
  if (from.bytes.empty()) { // between all characters, and at both ends
    for (; count != 0; --count) {
      e.step();
      put();
      if (begin == t.bytes.size()) return e.text(std::move(out), t.markup);
      keep(begin + decode_utf8(t.bytes, begin).length);
    }
  } else {
    for (std::size_t at = t.bytes.find(from.bytes); at != std::string::npos && count != 0; --count) {
      e.step();
      keep(at);
      put();
      begin = at + from.bytes.size();
      at = t.bytes.find(from.bytes, begin);
    }
    if (begin == 0 && out.size() == 0) return value::of(&t);
  }
  keep(t.bytes.size());
  return e.text(std::move(out), t.markup);
}

value join(evaluation& e, const text_object& separator, const std::vector<value>& items) {
  text_builder out;
  bool first = true;
  for (const value& item : items) {
    e.step();
    if (!first) {
      e.memory().charge(separator.bytes.size());
      out.append(separator);
    }
    first = false;
    write_text(e, out, item);
  }
  return e.text(std::move(out));
}

value change_case(evaluation& e, const text_object& t, std::string (*change)(std::string_view)) {
  e.step(1 + t.bytes.size() / 16);
  e.memory().charge(t.bytes.size());
  text_builder out;
  out.append(change(t.bytes), !t.untrusted.empty());
  return e.text(std::move(out), t.markup);
}

value justify(
    evaluation& e, const text_object& t, std::int64_t width, std::string_view fill, bool left, bool right) {
  const auto size = static_cast<std::int64_t>(t.length);
  if (width <= size) return value::of(&t);
  const auto missing = static_cast<std::size_t>(width - size);
  e.memory().charge(missing, fill.size());
  e.step(missing);
  // str.center puts the odd one on the left when the width is odd.
  std::size_t before = right ? 0 : missing;
  if (left && right) before = missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  text_builder out;
  for (std::size_t i = 0; i < before; ++i) out.append(fill);
  out.append(t);
  for (std::size_t i = before; i < missing; ++i) out.append(fill);
  return e.text(std::move(out), t.markup);
}

} // namespace troupe::models::jinja
