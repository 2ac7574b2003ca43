// SPDX-License-Identifier: Apache-2.0
// Runs a syntax tree: statements write text, expressions give values.
#pragma once

#include "models/jinja/ast.hpp"
#include "models/jinja/evaluation.hpp"
#include "models/jinja/loop.hpp"

#include <utility>
#include <vector>

namespace troupe::models::jinja {

/// Variables set at one level. Macros keep the scope they were defined in, so scopes live as long as the
/// render.
struct scope {
  scope* parent = nullptr;
  bool captured = false;        ///< a macro or a caller may still look here
  space_object* self = nullptr; ///< of a context: what `self` is in it, once something has asked
  std::vector<std::pair<symbol, value>> names;
};

/// One render. Thread: one at a time.
class interpreter final : public evaluation {
 public:
  /// `variables` are visible everywhere below what the template sets itself.
  interpreter(
      const syntax_tree& tree, const dict_object& variables, const limits& bounds, const std::tm& now);

  /// The whole template. Throws template_failure; `line` then says where.
  text_builder run();
  std::uint32_t line() const noexcept { return line_; }

  value call(const value& f, const arguments& a) override;

 private:
  enum class flow : std::uint8_t { next, leave_loop, next_iteration };

  /// Sends output to `to` for its lifetime.
  class redirect;

  // Statements.
  flow run(const block& body);
  flow run(const statement& s);
  flow run_if(const statement& s);
  flow run_for(const statement& s);
  /// Runs the body in a scope of its own; what it writes goes to `body`.
  flow capture_body(const statement& s, text_builder& body);
  // A break or continue inside a block leaves it without its value, as it does in Jinja.
  flow run_set_block(const statement& s);
  void run_call_block(const statement& s);
  flow run_filter_block(const statement& s);
  flow run_scope(const statement& s);
  void run_block_here(const statement& s);
  /// A block is a function: what it sees is `context` and below that the variables of the render.
  void run_named_block(const statement& s, scope* context);
  /// A context with the names of all scopes around, for a scoped block.
  scope* derived_context();
  /// What flows out of `else`, which belongs to the loop around.
  flow run_loop(const statement& s, const std::vector<value>& items, std::int64_t depth0);
  std::vector<value> filtered(const statement& s, std::vector<value> items);
  void emit(const value& v);
  void emit(const text_object& t);

  // Variables.
  scope* open_scope(scope* parent);
  void open_names(const std::vector<std::pair<symbol, value>>& unset);
  value look_up(const expression& e);
  void define(scope& in, symbol id, const value& v);
  void assign(const assign_target& target, const value& v);
  /// Shows blocks what the outermost scope has been given.
  void export_names(const assign_target& target);
  value make_self(scope* context);

  // Expressions.
  value evaluate(const expression& e);
  value evaluate_sequence(const expression& e);
  value evaluate_dict(const expression& e);
  value evaluate_item(const expression& e);
  value evaluate_filter(const expression& e, const value* input);
  bool evaluate_test(const expression& e);
  value evaluate_compare(const expression& e);
  value evaluate_concat(const expression& e);
  value evaluate_conditional(const expression& e);
  arguments evaluate_arguments(const call_syntax& syntax);
  value filter_chain(const expression& e, const value& input);

  value call_macro(const function_object& f, const arguments& a);
  value call_loop(const loop_object& l, const arguments& a);
  value call_block(const function_object& f, const arguments& a);
  const function_object* make_macro(const statement& s, std::string_view name);

  const syntax_tree& tree_;
  const dict_object& variables_;
  scope* root_;
  scope* scope_;
  scope* exports_; ///< what the outermost scope has set so far
  scope* context_; ///< what blocks see that are not scoped
  text_builder* out_ = nullptr;
  std::uint32_t line_ = 1;
};

} // namespace troupe::models::jinja
