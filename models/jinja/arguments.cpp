// SPDX-License-Identifier: Apache-2.0
// Arguments of built-ins matched to their parameter names.
#include "models/jinja/evaluation.hpp"
#include "models/jinja/operators.hpp"

namespace troupe::models::jinja {

bound_arguments::bound_arguments(
    evaluation& e, std::string_view function, const arguments& a,
    std::initializer_list<std::string_view> names, std::size_t required) :
    evaluation_(e),
    function_(function), names_(names), values_(names.size(), nullptr) {
  const std::string call = std::string(function) + "()";
  if (a.positional.size() > names.size()) {
    e.fail(
        call + " takes at most " + std::to_string(names.size()) + " arguments (" +
        std::to_string(a.positional.size()) + " given)");
  }
  for (std::size_t i = 0; i < a.positional.size(); ++i) values_[i] = &a.positional[i];
  for (const auto& [name, v] : a.named) {
    std::size_t i = 0;
    while (i < names_.size() && names_[i] != name->bytes) ++i;
    if (i == names_.size()) e.fail(call + " got an unexpected keyword argument '" + name->bytes + "'");
    if (values_[i]) e.fail(call + " got multiple values for argument '" + name->bytes + "'");
    values_[i] = &v;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) e.fail(call + " missing the required argument '" + std::string(names_[i]) + "'");
  }
}

bool bound_arguments::flag(std::size_t i, bool otherwise) const {
  return values_[i] ? truth(*values_[i]) : otherwise;
}

std::int64_t bound_arguments::integer(std::size_t i, std::int64_t otherwise) const {
  const value* v = values_[i];
  if (!v) return otherwise;
  if (v->is_undefined()) evaluation_.fail_undefined(*v);
  if (!v->is_integral()) {
    evaluation_.fail(
        std::string(function_) + "(): '" + std::string(type_name(*v)) +
        "' object cannot be interpreted as an integer");
  }
  return v->as_integer();
}

const text_object& bound_arguments::text(std::size_t i) const {
  const value& v = *values_[i];
  if (v.is_undefined()) evaluation_.fail_undefined(v);
  if (!v.is_text()) {
    evaluation_.fail(
        std::string(function_) + "(): argument '" + std::string(names_[i]) + "' must be str, not " +
        std::string(type_name(v)));
  }
  return v.as_text();
}

} // namespace troupe::models::jinja
