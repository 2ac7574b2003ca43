// SPDX-License-Identifier: Apache-2.0
// A model's chat template.
#include "models/chat_template.hpp"

#include <new>

namespace troupe::models {

void set_names(chat_context& context, const vocabulary& v, jinja::heap& values) {
  if (context.tools.is_undefined()) context.tools = jinja::value::none();
  if (!context.extra.is_dict()) context.extra = jinja::value::of(values.make_dict());
  jinja::dict_object& names = context.extra.as_dict();
  const auto set = [&](std::string_view name, jinja::value value) {
    const jinja::value key = jinja::value::of(values.make_text(name));
    if (!names.find(key)) names.set(key, value);
  };
  set("documents", jinja::value::none());
  for (const auto& [name, text] : v.named_texts) set(name, jinja::value::of(values.make_text(text)));
  if (v.bos) context.bos_token = v.tokens[static_cast<std::size_t>(*v.bos)];
  if (v.eos) context.eos_token = v.tokens[static_cast<std::size_t>(*v.eos)];
}

result<chat_template> chat_template::compile(std::string_view source) {
  auto compiled = jinja::compiled_template::compile(source);
  if (!compiled) return compiled.error();
  return chat_template(std::move(*compiled));
}

result<jinja::rendered_text>
chat_template::render(const chat_context& context, const jinja::limits& bounds) const try {
  jinja::heap names;
  jinja::dict_object& variables = *names.make_dict();
  const auto set = [&](std::string_view name, jinja::value v) {
    variables.set(jinja::value::of(names.make_text(name)), v);
  };
  set("messages", context.messages);
  if (!context.tools.is_undefined()) set("tools", context.tools);
  set("add_generation_prompt", jinja::value::of(context.add_generation_prompt));
  set("bos_token", jinja::value::of(names.make_text(context.bos_token)));
  set("eos_token", jinja::value::of(names.make_text(context.eos_token)));
  if (context.extra.is_dict()) {
    for (const auto& [key, v] : context.extra.as_dict().entries) variables.set(key, v);
  }
  return template_.render(variables, context.now, bounds);
} catch (const std::bad_alloc&) {
  return error{errc::no_memory, "no memory to render a template", {}, 0};
}

} // namespace troupe::models
