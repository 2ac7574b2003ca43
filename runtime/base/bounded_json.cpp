// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/bounded_json.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

#include <cmath>
#include <set>
#include <utility>

namespace troupe {
namespace {

namespace json = boost::json;
using json_error = json::error_code;

constexpr std::size_t repeated_keys_told = 8;

// The callbacks that basic_parser asks for: builds the value and watches keys and numbers on the way.
struct watching_handler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  struct object_frame {
    std::set<std::string, std::less<>> keys;
    std::string current;
  };

  json::value_stack stack;
  std::vector<object_frame> open;
  std::string key;
  std::vector<std::string> repeated;
  bool not_finite = false;
  bool fraction = false; // of the number being read, in a part before the last
  std::optional<std::string> wide_integer;

  static bool has_fraction(json::string_view s) { return s.find_first_of(".eE") != json::string_view::npos; }

  std::string path() const {
    std::string out;
    for (const object_frame& f : open) out.append(out.empty() ? "" : ".").append(f.current);
    return out;
  }

  bool on_document_begin(json_error&) { return true; }
  bool on_document_end(json_error&) { return true; }
  bool on_object_begin(json_error&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t n, json_error&) {
    open.pop_back();
    stack.push_object(n);
    return true;
  }
  bool on_array_begin(json_error&) { return true; }
  bool on_array_end(std::size_t n, json_error&) {
    stack.push_array(n);
    return true;
  }
  bool on_key_part(json::string_view s, std::size_t, json_error&) {
    key.append(s.data(), s.size());
    stack.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, std::size_t, json_error&) {
    key.append(s.data(), s.size());
    stack.push_key(s);
    const bool fresh = open.back().keys.insert(key).second;
    open.back().current = std::move(key);
    key.clear();
    if (!fresh && repeated.size() < repeated_keys_told) repeated.push_back(path());
    return true;
  }
  bool on_string_part(json::string_view s, std::size_t, json_error&) {
    stack.push_chars(s);
    return true;
  }
  bool on_string(json::string_view s, std::size_t, json_error&) {
    stack.push_string(s);
    return true;
  }
  bool on_number_part(json::string_view s, json_error&) {
    fraction |= has_fraction(s);
    return true;
  }
  bool on_int64(std::int64_t i, json::string_view, json_error&) {
    stack.push_int64(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, json::string_view, json_error&) {
    stack.push_uint64(u);
    return true;
  }
  bool on_double(double d, json::string_view s, json_error& ec) {
    if (!std::exchange(fraction, false) && !has_fraction(s) && !wide_integer) wide_integer = path();
    if (!std::isfinite(d)) {
      not_finite = true;
      ec = json::error::exponent_overflow;
      return false;
    }
    stack.push_double(d);
    return true;
  }
  bool on_bool(bool b, json_error&) {
    stack.push_bool(b);
    return true;
  }
  bool on_null(json_error&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json_error&) { return true; }
  bool on_comment(json::string_view, json_error&) { return true; }
};

} // namespace

result<bounded_json> parse_bounded_json(std::string_view text, std::size_t depth) {
  json::parse_options options;
  options.max_depth = depth;
  json::basic_parser<watching_handler> parser(options);
  parser.handler().stack.reset();
  json_error ec;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && read < text.size()) ec = json::error::extra_data;
  if (ec) {
    error why{errc::bad_request, {}, {}, 0};
    if (ec == json::error::too_deep)
      why.message = "the JSON is nested deeper than " + std::to_string(depth) + " levels";
    else if (ec == json::error::exponent_overflow || parser.handler().not_finite)
      why.message = "a number is too large for a 64-bit float", why.param = parser.handler().path();
    else
      why.message = "the text is not valid JSON at byte " + std::to_string(read) + ": " + ec.message();
    return why;
  }
  watching_handler& told = parser.handler();
  return bounded_json{told.stack.release(), std::move(told.repeated), std::move(told.wide_integer)};
}

} // namespace troupe
