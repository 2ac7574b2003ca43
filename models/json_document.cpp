// SPDX-License-Identifier: Apache-2.0
#include "models/json_document.hpp"

#include "models/mapped_file.hpp"
#include "runtime/base/bounded_json.hpp"

#include <utility>

namespace troupe::models {

namespace {

constexpr std::size_t deepest_json = 32;

error bad_json(const std::string& name, const std::string& message) {
  return {errc::bad_file, name + ": " + message, {}, 0};
}

} // namespace

result<boost::json::object> parse_json_object(std::string_view text, const std::string& name) {
  auto parsed = parse_bounded_json(text, deepest_json);
  if (!parsed) return bad_json(name, parsed.error().message);
  if (!parsed->repeated_keys.empty())
    return bad_json(
        name, "key '" + for_message(parsed->repeated_keys.front()) + "' stands twice in one object");
  if (!parsed->value.is_object()) return bad_json(name, "holds no JSON object");
  return std::move(parsed->value.get_object());
}

result<boost::json::object> read_json_object(const std::string& path, std::size_t longest) {
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
