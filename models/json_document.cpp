// SPDX-License-Identifier: Apache-2.0
#include "models/json_document.hpp"

#include "models/mapped_file.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_stack.hpp>

#include <set>
#include <vector>

namespace troupe::models {

namespace {

namespace json = boost::json;
using json_error = json::error_code;

constexpr std::size_t deepest_json = 32;

/// The callbacks that basic_parser asks for: builds the value and watches its keys.
struct document_handler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  json::value_stack stack;
  std::vector<std::set<std::string>> open; ///< keys seen, one set per object not yet closed
  std::string key;
  std::string repeated; ///< the first key that stands twice, or empty

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
  bool on_key(json::string_view s, std::size_t, json_error& ec) {
    key.append(s.data(), s.size());
    stack.push_key(s);
    if (!open.back().insert(key).second) {
      repeated = "'" + for_message(key) + "'";
      ec = json::error::syntax;
      return false;
    }
    key.clear();
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
  bool on_number_part(json::string_view, json_error&) { return true; }
  bool on_int64(std::int64_t i, json::string_view, json_error&) {
    stack.push_int64(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, json::string_view, json_error&) {
    stack.push_uint64(u);
    return true;
  }
  bool on_double(double d, json::string_view, json_error&) {
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

error bad_json(const std::string& name, const std::string& message) {
  return {errc::bad_file, name + ": " + message, {}, 0};
}

} // namespace

result<json::object> parse_json_object(std::string_view text, const std::string& name) {
  json::parse_options options;
  options.max_depth = deepest_json;
  json::basic_parser<document_handler> parser(options);
  parser.handler().stack.reset();
  json_error ec;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && read < text.size()) ec = json::error::extra_data;
  if (!parser.handler().repeated.empty())
    return bad_json(name, "key " + parser.handler().repeated + " stands twice in one object");
  if (ec == json::error::too_deep)
    return bad_json(name, "the JSON is nested deeper than " + std::to_string(deepest_json) + " levels");
  if (ec) return bad_json(name, "is not valid JSON at byte " + std::to_string(read) + ": " + ec.message());
  json::value document = parser.handler().stack.release();
  if (!document.is_object()) return bad_json(name, "holds no JSON object");
  return std::move(document.get_object());
}

result<json::object> read_json_object(const std::string& path, std::size_t longest) {
  const auto file = mapped_file::open(path);
  if (!file) return file.error();
  const auto bytes = file->bytes();
  if (bytes.size() > longest)
    return bad_json(
        path,
        "has " + std::to_string(bytes.size()) + " bytes; at most " + std::to_string(longest) + " are read");
  return parse_json_object({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

std::string for_message(std::string_view text, std::size_t longest) {
  std::string out(text.substr(0, longest));
  for (char& c : out)
    if (static_cast<unsigned char>(c) - 0x20U >= 0x5fU) c = '?';
  return out;
}

} // namespace troupe::models
