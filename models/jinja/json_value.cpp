// SPDX-License-Identifier: Apache-2.0
// JSON as template values.
#include "models/jinja/json_value.hpp"

#include <boost/json/value.hpp>

#include <new>
#include <string>

namespace troupe::models::jinja {
namespace {

/// An integer that no value holds, and the keys that lead to it.
struct too_large {
  std::string path;
};

value convert(heap& into, const boost::json::value& v, bool trusted) {
  switch (v.kind()) {
  case boost::json::kind::null:
    return value::none();
  case boost::json::kind::bool_:
    return value::of(v.get_bool());
  case boost::json::kind::int64:
    return value::of(std::int64_t{v.get_int64()});
  case boost::json::kind::uint64:
    throw too_large();
  case boost::json::kind::double_:
    return value::of(v.get_double());
  case boost::json::kind::string:
    return value::of(into.make_text(std::string_view(v.get_string()), !trusted));
  case boost::json::kind::array: {
    std::vector<value> items;
    items.reserve(v.get_array().size());
    for (const auto& item : v.get_array()) items.push_back(convert(into, item, trusted));
    return value::of(into.make_list(std::move(items)));
  }
  case boost::json::kind::object:
    break;
  }
  dict_object* made = into.make_dict();
  for (const auto& [key, item] : v.get_object()) {
    into.charge(2 * sizeof(std::pair<value, value>));
    try {
      made->set(value::of(into.make_text(std::string_view(key), !trusted)), convert(into, item, trusted));
    } catch (too_large& inner) {
      inner.path.insert(0, std::string(key) + (inner.path.empty() ? "" : "."));
      throw;
    }
  }
  return value::of(made);
}

} // namespace

result<value> from_json(heap& into, const boost::json::value& v, bool trusted) {
  try {
    return convert(into, v, trusted);
  } catch (const too_large& found) {
    return error{
        errc::bad_request,
        "an integer" + (found.path.empty() ? "" : " in \"" + found.path + "\"") +
            " does not fit 64 bits with a sign",
        found.path, 0};
  } catch (const template_failure&) {
    return error{errc::no_memory, "the request's values need more memory than allowed", {}, 0};
  } catch (const std::bad_alloc&) {
    return error{errc::no_memory, "no memory for the request's values", {}, 0};
  }
}

} // namespace troupe::models::jinja
