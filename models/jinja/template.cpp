// SPDX-License-Identifier: Apache-2.0
// A compiled Jinja template.
#include "models/jinja/template.hpp"

#include "models/jinja/interpreter.hpp"
#include "models/jinja/lexer.hpp"
#include "models/jinja/parser.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <exception>
#include <new>

namespace troupe::models::jinja {
namespace {

error template_error(std::size_t line, const std::string& message) {
  return {errc::bad_template, "template line " + std::to_string(line) + ": " + message, {}, 0};
}

} // namespace

compiled_template::compiled_template(std::unique_ptr<const syntax_tree> tree) noexcept :
    tree_(std::move(tree)) {}
compiled_template::compiled_template(compiled_template&&) noexcept = default;
compiled_template& compiled_template::operator=(compiled_template&&) noexcept = default;
compiled_template::~compiled_template() = default;

result<compiled_template> compiled_template::compile(std::string_view source) {
  if (source.size() > max_template_bytes) {
    return error{
        errc::bad_template,
        "template of " + std::to_string(source.size()) + " bytes is longer than " +
            std::to_string(max_template_bytes),
        {},
        0};
  }
  if (const std::size_t valid = valid_utf8_prefix(source); valid < source.size()) {
    const auto line =
        1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(valid), '\n');
    return template_error(static_cast<std::size_t>(line), "not valid UTF-8");
  }
  try {
    return compiled_template(parse(source));
  } catch (const syntax_error& e) {
    return template_error(e.line, e.message);
  } catch (const std::bad_alloc&) {
    return error{errc::no_memory, "no memory to compile a template", {}, 0};
  } catch (const std::exception& e) { // a length that no container has
    return template_error(1, e.what());
  }
}

result<rendered_text>
compiled_template::render(const dict_object& variables, const std::tm& now, const limits& bounds) const {
  std::uint32_t line = 1;
  try {
    interpreter run(*tree_, variables, bounds, now);
    try {
      text_builder out = run.run();
      return rendered_text{std::move(out.bytes()), std::move(out.untrusted())};
    } catch (...) {
      line = run.line();
      throw;
    }
  } catch (const template_failure& e) {
    return template_error(line, e.what());
  } catch (const std::bad_alloc&) {
    return error{errc::no_memory, "no memory to render a template", {}, 0};
  } catch (const std::exception& e) { // a length that no container has
    return template_error(line, e.what());
  }
}

} // namespace troupe::models::jinja
