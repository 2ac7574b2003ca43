// SPDX-License-Identifier: Apache-2.0
// Reading fields of a JSON file whose form is not to be trusted.
#pragma once

#include "runtime/base/error.hpp"

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace troupe::models {

/// An object of a JSON file and its place there ("tokenizer.json: normalizer"), for messages. The document
/// outlives it. Every reader gives bad_file naming the field when it has another type.
class json_object {
 public:
  static result<json_object> of(const boost::json::value& v, std::string place) {
    if (!v.is_object()) return error{errc::bad_file, place + " is not an object", {}, 0};
    return json_object(v.get_object(), std::move(place));
  }

  const std::string& place() const noexcept { return place_; }
  const boost::json::object& fields() const noexcept { return *object_; }

  error fail(std::string_view what, errc code = errc::bad_file) const {
    return {code, place_ + ' ' + std::string(what), {}, 0};
  }

  /// Absent and null fields are nullptr.
  const boost::json::value* find(std::string_view name) const noexcept {
    const boost::json::value* v = object_->if_contains(name);
    return v && !v->is_null() ? v : nullptr;
  }

  result<json_object> object(std::string_view name) const {
    const boost::json::value* v = find(name);
    if (!v) return fail("has no " + std::string(name));
    return of(*v, inner(name));
  }

  result<const boost::json::array*> array(std::string_view name) const {
    const boost::json::value* v = find(name);
    if (!v || !v->is_array()) return fail("has no list " + std::string(name));
    return &v->get_array();
  }

  result<std::optional<std::string>> text(std::string_view name) const {
    const boost::json::value* v = find(name);
    if (!v) return std::optional<std::string>{};
    if (!v->is_string()) return error{errc::bad_file, inner(name) + " is not a string", {}, 0};
    return std::optional<std::string>(std::string(v->get_string().data(), v->get_string().size()));
  }

  result<bool> flag(std::string_view name, bool absent) const {
    const boost::json::value* v = find(name);
    if (!v) return absent;
    if (!v->is_bool()) return error{errc::bad_file, inner(name) + " is not true or false", {}, 0};
    return v->get_bool();
  }

  /// A number from 0 to `most`.
  result<std::optional<std::size_t>> count(std::string_view name, std::size_t most) const {
    const boost::json::value* v = find(name);
    if (!v) return std::optional<std::size_t>{};
    boost::system::error_code failed;
    const auto number = v->to_number<std::uint64_t>(failed);
    if (failed || number > most)
      return error{errc::bad_file, inner(name) + " is not a number from 0 to " + std::to_string(most), {}, 0};
    return std::optional<std::size_t>(static_cast<std::size_t>(number));
  }

  std::string inner(std::string_view name) const { return place_ + '.' + std::string(name); }

 private:
  json_object(const boost::json::object& object, std::string place) :
      object_(&object), place_(std::move(place)) {}

  const boost::json::object* object_;
  std::string place_;
};

} // namespace troupe::models
