// SPDX-License-Identifier: Apache-2.0
// Expressions to values.
#include "models/jinja/format.hpp"
#include "models/jinja/interpreter.hpp"
#include "models/jinja/operators.hpp"

namespace troupe::models::jinja {

value interpreter::evaluate(const expression& e) {
  step();
  const nesting nested(*this);
  line_ = e.line;
  switch (e.kind) {
  case expression_kind::constant:
    return e.constant;
  case expression_kind::name:
    return look_up(e);
  case expression_kind::list:
  case expression_kind::tuple:
    return evaluate_sequence(e);
  case expression_kind::dict:
    return evaluate_dict(e);
  case expression_kind::attribute: {
    const value v = evaluate(*e.operands[0]);
    line_ = e.line;
    return get_attribute(*this, v, *e.text);
  }
  case expression_kind::item:
    return evaluate_item(e);
  case expression_kind::slice:
    return value::none(); // only ever the key of an item of several
  case expression_kind::call: {
    const value callee = evaluate(*e.operands[0]);
    const arguments a = evaluate_arguments(e.arguments);
    line_ = e.line;
    return call(callee, a);
  }
  case expression_kind::filter:
    return evaluate_filter(e, nullptr);
  case expression_kind::test:
    return value::of(evaluate_test(e));
  case expression_kind::unary: {
    const value v = evaluate(*e.operands[0]);
    if (e.op == operation::logical_not) return value::of(!truth(v));
    line_ = e.line;
    if (e.op == operation::negate) return negate(*this, v);
    return v.is(value_type::boolean) ? value::of(v.as_integer()) : v.is_number() ? v : negate(*this, v);
  }
  case expression_kind::binary: {
    const value left = evaluate(*e.operands[0]);
    const value right = evaluate(*e.operands[1]);
    line_ = e.line;
    return arithmetic(*this, e.op, left, right);
  }
  case expression_kind::logical_and: {
    const value left = evaluate(*e.operands[0]);
    return truth(left) ? evaluate(*e.operands[1]) : left;
  }
  case expression_kind::logical_or: {
    const value left = evaluate(*e.operands[0]);
    return truth(left) ? left : evaluate(*e.operands[1]);
  }
  case expression_kind::compare:
    return evaluate_compare(e);
  case expression_kind::concat:
    return evaluate_concat(e);
  case expression_kind::conditional:
    return evaluate_conditional(e);
  }
  return {};
}

value interpreter::evaluate_sequence(const expression& e) {
  std::vector<value> items;
  for (const expression* operand : e.operands) items.push_back(evaluate(*operand));
  return list(std::move(items), e.kind == expression_kind::tuple ? list_form::tuple : list_form::list);
}

value interpreter::evaluate_dict(const expression& e) {
  dict_object* made = memory().make_dict();
  for (std::size_t i = 0; i < e.operands.size(); i += 2) {
    const value key = evaluate(*e.operands[i]);
    const value item = evaluate(*e.operands[i + 1]);
    set_item(*this, *made, key, item);
  }
  return value::of(made);
}

value interpreter::evaluate_item(const expression& e) {
  const value v = evaluate(*e.operands[0]);
  const expression& key = *e.operands[1];
  if (key.kind != expression_kind::slice) {
    const value k = evaluate(key);
    line_ = e.line;
    return get_item(*this, v, k);
  }
  value parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (key.operands[i]) parts[i] = evaluate(*key.operands[i]);
  }
  line_ = e.line;
  const auto part = [&](std::size_t i) { return key.operands[i] ? &parts[i] : nullptr; };
  return get_slice(*this, v, part(0), part(1), part(2));
}

arguments interpreter::evaluate_arguments(const call_syntax& syntax) {
  arguments a;
  for (const expression* operand : syntax.positional) a.positional.push_back(evaluate(*operand));
  for (const keyword_argument& k : syntax.named) {
    step(a.named.size() / 16);
    for (const auto& [name, v] : a.named) {
      if (name->bytes == k.name->bytes) fail("keyword argument repeated: " + name->bytes);
    }
    a.named.emplace_back(k.name, evaluate(*k.operand));
  }
  if (syntax.unpacked_list) {
    for (const value& v : iterate(*this, evaluate(*syntax.unpacked_list))) a.positional.push_back(v);
  }
  if (syntax.unpacked_dict) {
    const value d = evaluate(*syntax.unpacked_dict);
    if (!d.is_dict()) fail("argument after ** must be a mapping, not " + std::string(type_name(d)));
    memory().charge(d.as_dict().entries.size(), sizeof(a.named[0]));
    for (const auto& [key, v] : d.as_dict().entries) {
      if (!key.is_text()) fail("keywords must be strings");
      a.named.emplace_back(&key.as_text(), v);
    }
  }
  return a;
}

value interpreter::evaluate_filter(const expression& e, const value* input) {
  value v = input ? *input : value();
  if (!input) v = evaluate(*e.operands[0]);
  if (!e.filter) fail("No filter named '" + e.text->bytes + "'.");
  const arguments a = evaluate_arguments(e.arguments);
  line_ = e.line;
  return e.filter(*this, v, a);
}

value interpreter::filter_chain(const expression& e, const value& input) {
  const nesting nested(*this);
  // The innermost filter of a block's chain has no operand: it takes the block.
  if (!e.operands[0]) return evaluate_filter(e, &input);
  const value below = filter_chain(*e.operands[0], input);
  return evaluate_filter(e, &below);
}

bool interpreter::evaluate_test(const expression& e) {
  const value v = evaluate(*e.operands[0]);
  if (!e.test) fail("No test named '" + e.text->bytes + "'.");
  const arguments a = evaluate_arguments(e.arguments);
  line_ = e.line;
  return e.test(*this, v, a);
}

value interpreter::evaluate_compare(const expression& e) {
  value left = evaluate(*e.operands[0]);
  for (std::size_t i = 0; i < e.ops.size(); ++i) {
    const value right = evaluate(*e.operands[i + 1]);
    line_ = e.line;
    bool holds = false;
    switch (e.ops[i]) {
    case operation::equal:
      holds = equal(*this, left, right);
      break;
    case operation::not_equal:
      holds = !equal(*this, left, right);
      break;
    case operation::in:
      holds = contains(*this, right, left);
      break;
    case operation::not_in:
      holds = !contains(*this, right, left);
      break;
    default:
      holds = ordered(*this, e.ops[i], left, right);
      break;
    }
    if (!holds) return value::of(false);
    left = right;
  }
  return value::of(true);
}

value interpreter::evaluate_concat(const expression& e) {
  text_builder out;
  for (const expression* operand : e.operands) write_text(*this, out, evaluate(*operand));
  return text(std::move(out));
}

value interpreter::evaluate_conditional(const expression& e) {
  if (truth(evaluate(*e.operands[1]))) return evaluate(*e.operands[0]);
  if (e.operands[2]) return evaluate(*e.operands[2]);
  return value::undefined(memory().make_text(
      "the inline if-expression on line " + std::to_string(e.line) +
      " evaluated to false and no else section was defined."));
}

} // namespace troupe::models::jinja
