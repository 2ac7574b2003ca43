// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template. Built once by the parser, read by the interpreter.
#pragma once

#include "models/jinja/value.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::models::jinja {

/// Number of a variable name within its template.
using symbol = std::uint32_t;

class evaluation;
struct arguments;
/// A filter takes the value before the bar, a test the one before `is`.
using filter_function = value (*)(evaluation&, const value& input, const arguments&);
using test_function = bool (*)(evaluation&, const value& input, const arguments&);

struct expression;

struct keyword_argument {
  const text_object* name;
  const expression* operand;
};

/// What stands between the parentheses of a call, a filter or a test.
struct call_syntax {
  std::vector<const expression*> positional;
  std::vector<keyword_argument> named;
  const expression* unpacked_list = nullptr; ///< *args
  const expression* unpacked_dict = nullptr; ///< **kwargs
};

enum class expression_kind : std::uint8_t {
  constant,
  name,        ///< id
  list,        ///< operands
  tuple,       ///< operands
  dict,        ///< operands: key, value, key, value, ...
  attribute,   ///< operands[0] . text
  item,        ///< operands[0] [operands[1]]
  slice,       ///< operands: start, stop, step; null where left out. Only as the second operand of `item`
  call,        ///< operands[0] (arguments)
  filter,      ///< operands[0] | text(arguments); operands[0] is null in a filter block
  test,        ///< operands[0] is text(arguments)
  unary,       ///< op operands[0]; op is - + or ! (not)
  binary,      ///< operands[0] op operands[1]
  logical_and, ///< operands[0] and operands[1]
  logical_or,
  compare,     ///< operands[0] ops[0] operands[1] ops[1] operands[2] ...
  concat,      ///< operands joined as texts
  conditional, ///< operands: then, condition, else (null when left out)
};

enum class operation : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  negate,
  plus,
  logical_not,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct expression {
  expression_kind kind;
  operation op = operation::add;
  std::uint32_t line = 0;
  std::uint32_t depth = 1; ///< of the tree below, itself included
  symbol id = 0;
  value constant;
  const text_object* text = nullptr;
  std::vector<const expression*> operands;
  std::vector<operation> ops;
  call_syntax arguments;
  filter_function filter = nullptr; ///< null: unknown, an error only if it is reached
  test_function test = nullptr;
};

/// Where a value goes: a name, an attribute of a namespace, or a tuple of targets.
struct assign_target {
  symbol id = 0;
  const text_object* attribute = nullptr; ///< of the namespace called `id`
  std::vector<assign_target> parts;       ///< not empty: unpack into these
};

struct parameter {
  symbol id;
  const text_object* name;
  const expression* otherwise; ///< default, or null
};

enum class statement_kind : std::uint8_t {
  text,         ///< text
  output,       ///< head
  if_else,      ///< branches, then `otherwise`
  for_loop,     ///< target in head [if condition] body, else `otherwise`
  set,          ///< target = head
  set_block,    ///< target = body, through the filters of head when given
  macro,        ///< id(parameters) body
  call_block,   ///< head is the call; parameters and body make the caller
  filter_block, ///< head is the filter chain over body
  scope,        ///< body in a scope of its own, targets set to heads first (with)
  named_block,  ///< body, by the name id: a function of its own that runs where it stands and as self.id()
  generation,   ///< body, which marks what the assistant wrote; in a scope of its own
  loop_break,
  loop_continue,
};

struct statement;
using block = std::vector<statement*>;

struct branch {
  const expression* condition;
  block body;
};

struct statement {
  statement_kind kind;
  bool recursive = false;                     ///< a for loop that may call itself
  bool scoped = false;                        ///< a block that sees the names of the scopes around it
  bool required = false;                      ///< a block that only another template could fill
  bool exports = false;                       ///< sets names in the outermost scope: blocks see them
  bool uses_self = false, uses_super = false; ///< names that the body of a block reads
  bool uses_caller = false, uses_varargs = false,
       uses_kwargs = false; ///< names that the body of a macro reads
  std::uint32_t line = 0;
  symbol id = 0;
  const text_object* text = nullptr;
  const expression* head = nullptr;
  const expression* condition = nullptr;
  assign_target target;
  std::vector<std::pair<assign_target, const expression*>> bindings;
  std::vector<parameter> parameters;
  std::vector<branch> branches;
  block body;
  block otherwise;
  std::vector<std::pair<symbol, value>> unset; ///< names that start out undefined in the scope of `body`
  std::vector<std::pair<symbol, value>> unset_otherwise; ///< and of `otherwise`, for a loop
};

/// A parsed template: owns its nodes, constants and names.
struct syntax_tree {
  heap constants;
  std::deque<expression> expressions;
  std::deque<statement> statements;
  std::vector<const text_object*> names; ///< symbol -> name
  std::unordered_map<std::string_view, symbol> symbols;
  block body;
  std::vector<std::pair<symbol, value>> unset; ///< names that start out undefined in the outermost scope
  std::unordered_map<const text_object*, symbol> unset_reasons; ///< of all such values, of any scope
  std::vector<const statement*> blocks;
  bool uses_self = false; ///< outside of blocks
  // Names with a meaning of their own.
  symbol loop = 0, caller = 0, varargs = 0, kwargs = 0, self = 0, super = 0;
};

} // namespace troupe::models::jinja
