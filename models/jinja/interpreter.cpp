// SPDX-License-Identifier: Apache-2.0
// Statements: control flow, scopes, macros, output.
#include "models/jinja/interpreter.hpp"

#include "models/jinja/format.hpp"
#include "models/jinja/helpers.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/operators.hpp"

#include <algorithm>

namespace troupe::models::jinja {

class interpreter::redirect {
 public:
  redirect(interpreter& i, text_builder& to) : interpreter_(i), before_(std::exchange(i.out_, &to)) {}
  ~redirect() { interpreter_.out_ = before_; }
  redirect(const redirect&) = delete;
  redirect& operator=(const redirect&) = delete;

 private:
  interpreter& interpreter_;
  text_builder* before_;
};

interpreter::interpreter(
    const syntax_tree& tree, const dict_object& variables, const limits& bounds, const std::tm& now) :
    evaluation(bounds, now),
    tree_(tree), variables_(variables), root_(memory().make<scope>()), scope_(root_),
    exports_(memory().make<scope>()), context_(exports_) {}

text_builder interpreter::run() {
  text_builder out;
  const redirect to(*this, out);
  open_names(tree_.unset);
  if (tree_.uses_self) define(*root_, tree_.self, make_self(exports_));
  run(tree_.body);
  return out;
}

void interpreter::emit(const text_object& t) {
  memory().charge(t.bytes.size());
  if (out_->size() + t.bytes.size() > bounds().output_bytes) fail("the output is longer than allowed");
  out_->append(t);
}

void interpreter::emit(const value& v) {
  if (v.is_text()) return emit(v.as_text());
  emit(to_text(*this, v));
}

// Variables.

scope* interpreter::open_scope(scope* parent) {
  scope* s = memory().make<scope>();
  s->parent = parent;
  return s;
}

void interpreter::open_names(const std::vector<std::pair<symbol, value>>& unset) {
  for (const auto& [id, v] : unset) define(*scope_, id, v);
}

void interpreter::define(scope& in, symbol id, const value& v) {
  step(in.names.size() / 16);
  for (auto& [known, current] : in.names) {
    if (known == id) {
      current = v;
      return;
    }
  }
  memory().charge(2 * sizeof(in.names[0]));
  in.names.emplace_back(id, v);
}

value interpreter::look_up(const expression& e) {
  for (const scope* s = scope_; s; s = s->parent) {
    step(s->names.size() / 16);
    for (const auto& [id, v] : s->names) {
      if (id == e.id) return v;
    }
  }
  const text_object& name = *tree_.names[e.id];
  step(name.bytes.size() / 64);
  if (const value* v = variables_.find(name.bytes)) return *v;
  if (const global_function global = find_global(name.bytes)) {
    auto* f = memory().make<function_object>();
    f->name = name.bytes;
    f->global = global;
    return value::of(f);
  }
  return value::undefined(memory().make_text("'" + name.bytes + "' is undefined"));
}

void interpreter::assign(const assign_target& target, const value& v) {
  if (!target.parts.empty()) {
    const std::vector<value> items = iterate(*this, v);
    if (items.size() < target.parts.size()) {
      fail(
          "not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
          std::to_string(items.size()) + ")");
    }
    if (items.size() > target.parts.size()) {
      fail("too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (!target.attribute) return define(*scope_, target.id, v);
  expression name{};
  name.id = target.id;
  const value space = look_up(name);
  if (!space.is(value_type::space) || space.as_space().is_self)
    fail("cannot assign attribute on non-namespace object");
  set_item(*this, space.as_space().attributes, value::of(target.attribute), v);
}

void interpreter::export_names(const assign_target& target) {
  if (tree_.blocks.empty() || target.attribute) return;
  for (const assign_target& part : target.parts) export_names(part);
  if (!target.parts.empty()) return;
  step(root_->names.size() / 16);
  for (const auto& [id, v] : root_->names) {
    if (id == target.id) return define(*exports_, id, v);
  }
}

// Statements.

interpreter::flow interpreter::run(const block& body) {
  const nesting nested(*this);
  for (const statement* s : body) {
    if (const flow f = run(*s); f != flow::next) return f;
  }
  return flow::next;
}

interpreter::flow interpreter::run(const statement& s) {
  step();
  line_ = s.line;
  switch (s.kind) {
  case statement_kind::text:
    emit(*s.text);
    return flow::next;
  case statement_kind::output:
    emit(evaluate(*s.head));
    return flow::next;
  case statement_kind::if_else:
    return run_if(s);
  case statement_kind::for_loop:
    return run_for(s);
  case statement_kind::set:
    assign(s.target, evaluate(*s.head));
    if (s.exports) export_names(s.target);
    return flow::next;
  case statement_kind::set_block:
    return run_set_block(s);
  case statement_kind::macro:
    define(*scope_, s.id, value::of(make_macro(s, tree_.names[s.id]->bytes)));
    if (s.exports) export_names({.id = s.id, .attribute = nullptr, .parts = {}});
    return flow::next;
  case statement_kind::call_block:
    run_call_block(s);
    return flow::next;
  case statement_kind::filter_block:
    return run_filter_block(s);
  case statement_kind::scope:
  case statement_kind::generation:
    return run_scope(s);
  case statement_kind::named_block:
    run_block_here(s);
    return flow::next;
  case statement_kind::loop_break:
    return flow::leave_loop;
  case statement_kind::loop_continue:
    return flow::next_iteration;
  }
  return flow::next;
}

interpreter::flow interpreter::run_if(const statement& s) {
  for (const branch& b : s.branches) {
    if (truth(evaluate(*b.condition))) return run(b.body);
  }
  return run(s.otherwise);
}

interpreter::flow interpreter::run_for(const statement& s) {
  std::vector<value> items = iterate(*this, evaluate(*s.head));
  if (s.condition) items = filtered(s, std::move(items));
  return run_loop(s, items, 0);
}

std::vector<value> interpreter::filtered(const statement& s, std::vector<value> items) {
  std::vector<value> kept;
  scope* const outer = scope_;
  scope_ = open_scope(outer);
  for (const value& item : items) {
    step();
    scope_->names.clear();
    assign(s.target, item);
    if (truth(evaluate(*s.condition))) kept.push_back(item);
  }
  scope_ = outer;
  return kept;
}

interpreter::flow
interpreter::run_loop(const statement& s, const std::vector<value>& items, std::int64_t depth0) {
  scope* const outer = scope_;
  memory().charge(items.size() * sizeof(value));
  auto* loop = memory().make<loop_object>();
  loop->items = items;
  loop->depth0 = depth0;
  loop->body = s.recursive ? &s : nullptr;
  loop->closure = outer;
  loop->context = context_;
  if (s.recursive) outer->captured = true;
  scope_ = open_scope(outer);
  bool finished_one = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    step();
    // Every turn starts afresh; a scope that a macro still sees is left to it.
    if (scope_->captured) {
      scope_ = open_scope(outer);
    } else {
      scope_->names.clear();
    }
    loop->index0 = i;
    define(*scope_, tree_.loop, value::of(loop));
    open_names(s.unset);
    assign(s.target, items[i]);
    const flow f = run(s.body);
    if (f == flow::leave_loop) break;
    finished_one = finished_one || f == flow::next;
  }
  // As in Jinja: `else` runs unless some turn came to its end, which a break or continue prevents.
  flow out = flow::next;
  if (!finished_one && !s.otherwise.empty()) {
    scope_ = open_scope(outer);
    open_names(s.unset_otherwise);
    out = run(s.otherwise);
  }
  scope_ = outer;
  return out;
}

interpreter::flow interpreter::capture_body(const statement& s, text_builder& body) {
  scope* const outer = scope_;
  scope_ = open_scope(outer);
  open_names(s.unset);
  flow f = flow::next;
  {
    const redirect to(*this, body);
    f = run(s.body);
  }
  scope_ = outer;
  return f;
}

interpreter::flow interpreter::run_set_block(const statement& s) {
  text_builder body;
  if (const flow f = capture_body(s, body); f != flow::next) return f;
  value v = text(std::move(body));
  if (s.head) v = filter_chain(*s.head, v);
  assign(s.target, v);
  if (s.exports) export_names(s.target);
  return flow::next;
}

interpreter::flow interpreter::run_filter_block(const statement& s) {
  text_builder body;
  if (const flow f = capture_body(s, body); f != flow::next) return f;
  emit(filter_chain(*s.head, text(std::move(body))));
  return flow::next;
}

interpreter::flow interpreter::run_scope(const statement& s) {
  scope* const outer = scope_;
  scope* const inner = open_scope(outer);
  std::vector<value> values;
  for (const auto& [target, head] : s.bindings) values.push_back(evaluate(*head));
  scope_ = inner;
  open_names(s.unset);
  for (std::size_t i = 0; i < values.size(); ++i) assign(s.bindings[i].first, values[i]);
  const flow f = run(s.body);
  scope_ = outer;
  return f;
}

// Blocks.

value interpreter::make_self(scope* context) {
  if (context->self) return value::of(context->self);
  step(1 + tree_.blocks.size());
  space_object* self = context->self = memory().make_space();
  self->is_self = true;
  for (const statement* s : tree_.blocks) {
    const text_object* name = tree_.names[s->id];
    auto* f = memory().make<function_object>();
    f->name = name->bytes;
    f->named_block = s;
    f->context = context;
    set_item(*this, self->attributes, value::of(name), value::of(f));
  }
  return value::of(self);
}

scope* interpreter::derived_context() {
  scope* made = open_scope(context_);
  for (const scope* from = scope_; from && from != context_; from = from->parent) {
    for (const auto& [id, v] : from->names) {
      step(1 + made->names.size() / 16);
      const auto known = [name = id](const auto& entry) { return entry.first == name; };
      if (std::any_of(made->names.begin(), made->names.end(), known)) continue;
      // A name that nothing has been assigned to yet is none of this scope's.
      if (v.is_undefined()) {
        const auto reason = tree_.unset_reasons.find(v.undefined_reason());
        if (reason != tree_.unset_reasons.end() && reason->second == id) continue;
      }
      define(*made, id, v);
    }
  }
  return made;
}

void interpreter::run_block_here(const statement& s) {
  // There is no other template that could fill it. self.NAME() does not ask.
  if (s.required) fail("Required block '" + tree_.names[s.id]->bytes + "' not found");
  run_named_block(s, s.scoped ? derived_context() : context_);
}

void interpreter::run_named_block(const statement& s, scope* context) {
  scope* const outer = scope_;
  scope* const outer_context = std::exchange(context_, context);
  scope_ = open_scope(context);
  open_names(s.unset);
  if (s.uses_self) define(*scope_, tree_.self, make_self(context));
  if (s.uses_super) {
    const std::string& name = tree_.names[s.id]->bytes;
    define(
        *scope_, tree_.super,
        value::undefined(memory().make_text("there is no parent block called '" + name + "'.")));
  }
  run(s.body);
  scope_ = outer;
  context_ = outer_context;
}

value interpreter::call_block(const function_object& f, const arguments& a) {
  if (!a.positional.empty() || !a.named.empty()) fail("a block takes no arguments");
  const nesting nested(*this);
  text_builder out;
  {
    const redirect to(*this, out);
    run_named_block(*f.named_block, f.context);
  }
  return text(std::move(out));
}

// Macros.

const function_object* interpreter::make_macro(const statement& s, std::string_view name) {
  auto* f = memory().make<function_object>();
  f->name = name;
  f->macro = &s;
  f->closure = scope_;
  f->context = context_;
  for (scope* at = scope_; at && !at->captured; at = at->parent) at->captured = true;
  return f;
}

void interpreter::run_call_block(const statement& s) {
  const value callee = evaluate(*s.head->operands[0]);
  arguments a = evaluate_arguments(s.head->arguments);
  a.named.emplace_back(tree_.names[tree_.caller], value::of(make_macro(s, "caller")));
  line_ = s.line;
  emit(call(callee, a));
}

value interpreter::call_macro(const function_object& f, const arguments& a) {
  const nesting nested(*this);
  const statement& m = *f.macro;
  scope* const outer = scope_;
  scope* const outer_context = std::exchange(context_, f.context);
  scope* const inner = open_scope(f.closure);
  const std::size_t count = m.parameters.size();
  step(1 + count * a.named.size() / 16);
  std::vector<bool> used(a.named.size(), false);
  std::vector<value> given(count);
  std::vector<bool> has(count, false);
  for (std::size_t i = 0; i < count && i < a.positional.size(); ++i)
    given[i] = a.positional[i], has[i] = true;
  for (std::size_t i = std::min(count, a.positional.size()); i < count; ++i) {
    for (std::size_t n = 0; n < a.named.size(); ++n) {
      if (a.named[n].first->bytes == m.parameters[i].name->bytes) {
        given[i] = a.named[n].second;
        has[i] = used[n] = true;
      }
    }
  }
  const std::string quoted = "macro '" + std::string(f.name) + "'";
  dict_object* rest = m.uses_kwargs ? memory().make_dict() : nullptr;
  value caller = value::undefined(memory().make_text("No caller defined"));
  for (std::size_t n = 0; n < a.named.size(); ++n) {
    if (used[n]) continue;
    const auto& [name, v] = a.named[n];
    if (m.uses_caller && name->bytes == "caller") {
      caller = v;
    } else if (rest) {
      set_item(*this, *rest, value::of(name), v);
    } else {
      fail(quoted + " takes no keyword argument '" + name->bytes + "'");
    }
  }
  if (a.positional.size() > count && !m.uses_varargs) {
    fail(quoted + " takes not more than " + std::to_string(count) + " argument(s)");
  }
  scope_ = inner;
  open_names(m.unset);
  if (m.uses_caller) define(*inner, tree_.caller, caller);
  if (rest) define(*inner, tree_.kwargs, value::of(rest));
  if (m.uses_varargs) {
    std::vector<value> more;
    for (std::size_t i = count; i < a.positional.size(); ++i) more.push_back(a.positional[i]);
    define(*inner, tree_.varargs, list(std::move(more), list_form::tuple));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const parameter& p = m.parameters[i];
    if (!has[i]) {
      given[i] =
          p.otherwise
              ? evaluate(*p.otherwise)
              : value::undefined(memory().make_text("parameter '" + p.name->bytes + "' was not provided"));
    }
    define(*inner, p.id, given[i]);
  }
  text_builder out;
  {
    const redirect to(*this, out);
    run(m.body);
  }
  scope_ = outer;
  context_ = outer_context;
  return text(std::move(out));
}

value interpreter::call_loop(const loop_object& l, const arguments& a) {
  if (!l.body) fail("Tried to call non recursive loop. Maybe you forgot the 'recursive' modifier.");
  if (a.positional.size() != 1 || !a.named.empty()) fail("a recursive loop takes one argument");
  const nesting nested(*this);
  scope* const outer = std::exchange(scope_, l.closure);
  scope* const outer_context = std::exchange(context_, l.context);
  std::vector<value> items = iterate(*this, a.positional[0]);
  if (l.body->condition) items = filtered(*l.body, std::move(items));
  text_builder out;
  {
    const redirect to(*this, out);
    run_loop(*l.body, items, l.depth0 + 1);
  }
  scope_ = outer;
  context_ = outer_context;
  return text(std::move(out));
}

value interpreter::call(const value& f, const arguments& a) {
  step();
  if (f.is_undefined()) fail_undefined(f);
  if (f.is(value_type::loop)) return call_loop(f.as_loop(), a);
  if (f.is(value_type::helper)) return call_helper(*this, f.as_helper(), a);
  if (!f.is(value_type::function)) fail("'" + std::string(type_name(f)) + "' object is not callable");
  const function_object& function = f.as_function();
  if (function.macro) return call_macro(function, a);
  if (function.named_block) return call_block(function, a);
  if (function.global) return function.global(*this, a);
  return function.method(*this, function.receiver, a);
}

} // namespace troupe::models::jinja
