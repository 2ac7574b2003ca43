// SPDX-License-Identifier: Apache-2.0
// For jinja_differential.py: reads a line {"template": ..., "context": {...}}, writes a line {"text": ...} or
// {"error": ...}, until its input ends.
#include "models/jinja/json_value.hpp"
#include "models/jinja/template.hpp"

#include <boost/json.hpp>

#include <ctime>
#include <iostream>
#include <string>

using namespace troupe;
using namespace troupe::models;
namespace json = boost::json;

namespace {

result<jinja::rendered_text> render(const json::object& line, const std::tm& now) {
  const auto compiled = jinja::compiled_template::compile(std::string_view(line.at("template").as_string()));
  if (!compiled) return compiled.error();
  jinja::heap values;
  const auto variables = jinja::from_json(values, line.at("context"));
  if (!variables) return variables.error();
  return compiled->render(variables->as_dict(), now);
}

} // namespace

int main() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 10;
  now.tm_mday = 29;
  now.tm_hour = 12;
  now.tm_yday = 332;
  std::string text;
  while (std::getline(std::cin, text)) {
    const auto rendered = render(json::parse(text).as_object(), now);
    json::object answer;
    if (rendered)
      answer["text"] = rendered->text;
    else
      answer["error"] = rendered.error().message;
    std::cout << json::serialize(answer) << std::endl;
  }
}
