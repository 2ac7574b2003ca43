// SPDX-License-Identifier: Apache-2.0
// Template source to syntax tree: recursive descent, Jinja's precedence. One grammar, so longer than usual:
// its rules call each other in a circle and share the depth bound.
#include "models/jinja/parser.hpp"

#include "models/jinja/lexer.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/resolver.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_set>

namespace troupe::models::jinja {
namespace {

class parser {
 public:
  explicit parser(std::string_view source) :
      tokens_(tokenize(source)), tree_(std::make_unique<syntax_tree>()) {
    tree_->loop = intern("loop");
    tree_->caller = intern("caller");
    tree_->varargs = intern("varargs");
    tree_->kwargs = intern("kwargs");
    tree_->self = intern("self");
    tree_->super = intern("super");
  }

  std::unique_ptr<const syntax_tree> run() {
    tree_->body = statements({});
    tree_->uses_self = own_names_.self == name_use::read;
    unknown_.insert(unknown_.end(), unknown_in_scopes_.begin(), unknown_in_scopes_.end());
    const auto first = std::min_element(
        unknown_.begin(), unknown_.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
    if (first != unknown_.end()) throw *first;
    resolve_names(*tree_);
    return std::move(tree_);
  }

 private:
  using words = std::initializer_list<std::string_view>;

  /// Counts one level of nesting for its lifetime.
  class level {
   public:
    explicit level(parser& p) : parser_(p) {
      if (++parser_.nesting_ > max_nesting) {
        parser_.fail("nested deeper than " + std::to_string(max_nesting));
      }
    }
    ~level() { --parser_.nesting_; }
    level(const level&) = delete;
    level& operator=(const level&) = delete;

   private:
    parser& parser_;
  };

  // Tokens.

  [[noreturn]] void fail(std::string message) const { throw syntax_error{now().line, std::move(message)}; }

  const token& now() const { return tokens_[at_]; }
  const token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const token& take() {
    const token& t = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool at(token_kind kind) const { return now().kind == kind; }
  bool at_op(std::string_view op) const { return at(token_kind::op) && now().text == op; }
  bool at_name(std::string_view name) const { return at(token_kind::name) && now().text == name; }
  bool skip_op(std::string_view op) {
    if (!at_op(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!at_name(name)) return false;
    take();
    return true;
  }

  static std::string describe(const token& t) {
    switch (t.kind) {
    case token_kind::data:
      return "template data / text";
    case token_kind::block_begin:
      return "begin of statement block";
    case token_kind::block_end:
      return "end of statement block";
    case token_kind::variable_begin:
      return "begin of print statement";
    case token_kind::variable_end:
      return "end of print statement";
    case token_kind::string:
      return "string";
    case token_kind::integer:
      return "integer";
    case token_kind::real:
      return "float";
    case token_kind::end:
      return "end of template";
    case token_kind::name:
    case token_kind::op:
      break;
    }
    return t.text;
  }

  [[noreturn]] void fail_expected(const std::string& what) const {
    if (at(token_kind::end)) fail("unexpected end of template, expected '" + what + "'.");
    fail("expected token '" + what + "', got '" + describe(now()) + "'");
  }
  void expect(token_kind kind) {
    if (!at(kind)) fail_expected(describe(token{kind, 0, "name", 0, 0}));
    take();
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail_expected(std::string(op));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected(std::string(name));
  }
  const token& take_name() {
    if (!at(token_kind::name)) fail_expected("name");
    return take();
  }

  // Nodes.

  const text_object* constant_text(std::string_view text) { return tree_->constants.make_text(text); }

  symbol intern(std::string_view name) {
    if (const auto found = tree_->symbols.find(name); found != tree_->symbols.end()) return found->second;
    const text_object* owned = constant_text(name);
    const auto id = static_cast<symbol>(tree_->names.size());
    tree_->names.push_back(owned);
    tree_->symbols.emplace(owned->bytes, id);
    return id;
  }

  expression* make(expression_kind kind, std::uint32_t line, std::vector<const expression*> operands = {}) {
    expression& e = tree_->expressions.emplace_back();
    e.kind = kind;
    e.line = line;
    for (const expression* o : operands) deepen(e, o);
    e.operands = std::move(operands);
    return &e;
  }

  void deepen(expression& e, const expression* below) const {
    if (!below) return;
    e.depth = std::max(e.depth, below->depth + 1);
    if (e.depth > max_expression_depth) {
      fail("an expression deeper than " + std::to_string(max_expression_depth) + " operators");
    }
  }

  expression* make_constant(value v, std::uint32_t line) {
    expression* e = make(expression_kind::constant, line);
    e->constant = v;
    return e;
  }

  statement* make(statement_kind kind, std::uint32_t line) {
    statement& s = tree_->statements.emplace_back();
    s.kind = kind;
    s.line = line;
    return &s;
  }

  // Statements.

  /// Up to a tag whose name is in `ends` (left as the current token, its block_begin taken), or the end.
  block statements(words ends) {
    const level nested(*this);
    block body;
    while (!at(token_kind::end)) {
      const token& t = now();
      if (t.kind == token_kind::data) {
        statement* s = make(statement_kind::text, t.line);
        s->text = constant_text(t.text);
        body.push_back(s);
        take();
      } else if (t.kind == token_kind::variable_begin) {
        take();
        statement* s = make(statement_kind::output, t.line);
        s->head = tuple(false, true);
        body.push_back(s);
        expect(token_kind::variable_end);
      } else {
        expect(token_kind::block_begin);
        if (at(token_kind::name) && std::find(ends.begin(), ends.end(), now().text) != ends.end())
          return body;
        statement_in(body, ends);
        expect(token_kind::block_end);
      }
    }
    if (ends.size() > 0)
      fail("Unexpected end of template. Jinja was looking for the following tags: " + listed(ends));
    return body;
  }

  static std::string listed(words ends) {
    std::string out;
    for (const std::string_view word : ends) out.append(out.empty() ? "'" : " or '").append(word).append("'");
    return out + ".";
  }

  /// The body of a statement whose tag's head has been read.
  block body_until(words ends) {
    skip_op(":"); // allowed for those who write Python
    expect(token_kind::block_end);
    return statements(ends);
  }

  /// The body of a statement that opens a scope: conditions around it do not excuse unknown names inside.
  block scope_until(words ends) {
    std::vector<syntax_error> outer = std::exchange(unknown_, {});
    ++scopes_;
    block body = body_until(ends);
    --scopes_;
    unknown_in_scopes_.insert(unknown_in_scopes_.end(), unknown_.begin(), unknown_.end());
    unknown_ = std::move(outer);
    return body;
  }

  void statement_in(block& body, words ends) {
    if (!at(token_kind::name)) fail("tag name expected");
    const token& tag = now();
    const std::string_view name = tag.text;
    if (name == "if") {
      body.push_back(if_statement());
    } else if (name == "for") {
      body.push_back(for_statement());
    } else if (name == "set") {
      body.push_back(set_statement());
    } else if (name == "macro") {
      body.push_back(macro_statement());
    } else if (name == "call") {
      body.push_back(call_block());
    } else if (name == "filter") {
      body.push_back(filter_block());
    } else if (name == "block") {
      body.push_back(named_block());
    } else if (name == "with") {
      body.push_back(with_statement());
    } else if (name == "generation") {
      take();
      statement* s = make(statement_kind::generation, tag.line);
      const std::size_t loops = std::exchange(loops_, 0);
      s->body = scope_until({"endgeneration"});
      loops_ = loops;
      take();
      body.push_back(s);
    } else if (name == "print") {
      take();
      do {
        statement* s = make(statement_kind::output, tag.line);
        s->head = condition();
        body.push_back(s);
      } while (skip_op(","));
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("'" + tag.text + "' outside of a loop");
      take();
      body.push_back(
          make(name == "break" ? statement_kind::loop_break : statement_kind::loop_continue, tag.line));
    } else if (name == "include" || name == "import" || name == "from" || name == "extends") {
      fail("the tag '" + tag.text + "' reaches other templates, which a chat template cannot");
    } else {
      fail(
          "Encountered unknown tag '" + tag.text + "'." +
          (ends.size() > 0 ? " Jinja was looking for the following tags: " + listed(ends) : ""));
    }
  }

  statement* if_statement() {
    statement* s = make(statement_kind::if_else, take().line);
    const std::size_t unknown = unknown_.size();
    while (true) {
      const expression* condition = tuple(false, false);
      block body = body_until({"elif", "else", "endif"});
      s->branches.push_back({condition, std::move(body)});
      if (skip_name("elif")) continue;
      if (skip_name("else")) s->otherwise = body_until({"endif"});
      break;
    }
    unknown_.resize(unknown);
    expect_name("endif");
    return s;
  }

  statement* for_statement() {
    statement* s = make(statement_kind::for_loop, take().line);
    s->target = target(true, false);
    refuse_loop(s->target, s->line);
    expect_name("in");
    s->head = tuple(false, false, true);
    if (skip_name("if")) s->condition = condition();
    s->recursive = skip_name("recursive");
    ++loops_;
    ++fors_;
    s->body = scope_until({"endfor", "else"});
    --loops_;
    if (skip_name(
            "else")) { // belongs to the loop around, except that a recursive loop is a function of its own
      const std::size_t loops = s->recursive ? std::exchange(loops_, 0) : loops_;
      s->otherwise = scope_until({"endfor"});
      loops_ = loops;
    }
    --fors_;
    expect_name("endfor");
    return s;
  }

  /// The name `loop` is not for templates to set: anywhere inside a for statement, its target included.
  void refuse_loop(const assign_target& t, std::uint32_t line) const {
    for (const assign_target& part : t.parts) refuse_loop(part, line);
    if (t.parts.empty() && !t.attribute && t.id == tree_->loop)
      throw syntax_error{line, "Can't assign to special loop variable in for-loop target"};
  }

  statement* set_statement() {
    const std::uint32_t line = take().line;
    const bool exports = scopes_ == 0;
    assign_target where = target(true, true);
    if (fors_ > 0) refuse_loop(where, line);
    if (skip_op("=")) {
      statement* s = make(statement_kind::set, line);
      s->exports = exports;
      s->target = std::move(where);
      s->head = tuple(false, true);
      return s;
    }
    statement* s = make(statement_kind::set_block, line);
    s->exports = exports;
    s->target = std::move(where);
    if (at_op("|")) s->head = filters(nullptr);
    s->body = scope_until({"endset"});
    expect_name("endset");
    return s;
  }

  void signature(statement& s) {
    expect_op("(");
    bool defaults = false;
    std::unordered_set<symbol> known;
    while (!at_op(")")) {
      if (!s.parameters.empty()) expect_op(",");
      const token& name = take_name();
      parameter p{intern(name.text), nullptr, nullptr};
      note_own_name(p.id, name_use::set);
      p.name = tree_->names[p.id];
      if (!known.insert(p.id).second)
        fail("duplicate argument " + p.name->bytes + " in the definition of a macro");
      if (skip_op("=")) {
        p.otherwise = condition();
        defaults = true;
      } else if (defaults) {
        fail("non-default argument follows default argument");
      }
      s.parameters.push_back(p);
    }
    expect_op(")");
  }

  /// A body that calls its caller has it beside its parameters, or as one that may be left out.
  void check_caller(const statement& s) const {
    for (const parameter& p : s.parameters) {
      if (s.uses_caller && p.id == tree_->caller && !p.otherwise)
        throw syntax_error{s.line, "the parameter \"caller\" of a macro must have a default"};
    }
  }

  statement* macro_statement() {
    statement* s = make(statement_kind::macro, take().line);
    s->id = intern(take_name().text);
    s->exports = scopes_ == 0;
    signature(*s);
    const std::size_t loops = std::exchange(loops_, 0);
    macros_.push_back(s);
    s->body = scope_until({"endmacro"});
    macros_.pop_back();
    loops_ = loops;
    check_caller(*s);
    expect_name("endmacro");
    return s;
  }

  statement* call_block() {
    statement* s = make(statement_kind::call_block, take().line);
    if (at_op("(")) signature(*s);
    s->head = condition();
    if (s->head->kind != expression_kind::call) fail("expected call");
    const std::size_t loops = std::exchange(loops_, 0);
    macros_.push_back(s);
    s->body = scope_until({"endcall"});
    macros_.pop_back();
    loops_ = loops;
    check_caller(*s);
    expect_name("endcall");
    return s;
  }

  statement* filter_block() {
    statement* s = make(statement_kind::filter_block, take().line);
    s->head = filters(filter(nullptr));
    s->body = scope_until({"endfilter"});
    expect_name("endfilter");
    return s;
  }

  statement* named_block() {
    statement* s = make(statement_kind::named_block, take().line);
    const std::string name = take_name().text;
    s->id = intern(name);
    s->scoped = skip_name("scoped");
    s->required = skip_name("required");
    if (at_op("-")) fail("a block's name has no hyphens, use an underscore");
    if (!block_names_.insert(s->id).second) throw syntax_error{s->line, "block '" + name + "' defined twice"};
    tree_->blocks.push_back(s);
    const std::size_t loops = std::exchange(loops_, 0);
    std::vector<statement*> macros = std::exchange(macros_, {});
    const own_names outer = std::exchange(own_names_, {});
    s->body = scope_until({"endblock"});
    s->uses_self = own_names_.self == name_use::read;
    s->uses_super = own_names_.super == name_use::read;
    own_names_ = outer;
    macros_ = std::move(macros);
    loops_ = loops;
    if (s->required && !std::all_of(s->body.begin(), s->body.end(), is_white_space))
      fail("Required blocks can only contain comments or whitespace");
    expect_name("endblock");
    skip_name(name);
    return s;
  }

  static bool is_white_space(const statement* s) {
    if (s->kind != statement_kind::text || s->text->bytes.empty()) return false;
    for (std::size_t at = 0; at < s->text->bytes.size();) {
      const utf8_step c = decode_utf8(s->text->bytes, at);
      if (!is_space(c.code)) return false;
      at += c.length;
    }
    return true;
  }

  statement* with_statement() {
    statement* s = make(statement_kind::scope, take().line);
    while (!at(token_kind::block_end)) {
      if (!s->bindings.empty()) expect_op(",");
      assign_target where = target(true, false);
      expect_op("=");
      const expression* v = condition();
      s->bindings.emplace_back(std::move(where), v);
    }
    s->body = scope_until({"endwith"});
    expect_name("endwith");
    return s;
  }

  // Targets of assignments.

  assign_target target(bool with_tuple, bool with_attribute) {
    const level nested(*this);
    std::vector<assign_target> parts;
    bool tuple = false;
    do {
      if (!parts.empty() && ends_tuple(true)) break;
      parts.push_back(single_target(with_attribute));
      tuple = tuple || (with_tuple && at_op(","));
    } while (with_tuple && skip_op(","));
    if (!tuple) return std::move(parts.front());
    assign_target out;
    out.parts = std::move(parts);
    return out;
  }

  assign_target single_target(bool with_attribute) {
    const bool bracketed = at_op("(") || at_op("[");
    if (bracketed) {
      const bool round = at_op("(");
      take();
      assign_target inner = target(true, with_attribute);
      expect_op(round ? ")" : "]");
      return inner;
    }
    const token& name = take_name();
    static constexpr std::string_view constants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(constants), std::end(constants), name.text) != std::end(constants)) {
      fail("can't assign to 'const'");
    }
    assign_target out;
    out.id = intern(name.text);
    if (with_attribute && skip_op("."))
      out.attribute = constant_text(take_name().text);
    else
      note_own_name(out.id, name_use::set);
    return out;
  }

  // Expressions, weakest binding first.

  const expression* condition() {
    const level nested(*this);
    const std::size_t unknown = unknown_.size();
    const expression* e = logical_or();
    while (at_name("if")) {
      const std::uint32_t line = take().line;
      const expression* test = logical_or();
      const expression* otherwise = skip_name("else") ? condition() : nullptr;
      unknown_.resize(unknown);
      e = make(expression_kind::conditional, line, {e, test, otherwise});
    }
    return e;
  }

  const expression* logical_or() {
    const expression* left = logical_and();
    while (at_name("or")) {
      const std::uint32_t line = take().line;
      const expression* right = logical_and();
      left = make(expression_kind::logical_or, line, {left, right});
    }
    return left;
  }

  const expression* logical_and() {
    const expression* left = logical_not();
    while (at_name("and")) {
      const std::uint32_t line = take().line;
      const expression* right = logical_not();
      left = make(expression_kind::logical_and, line, {left, right});
    }
    return left;
  }

  const expression* logical_not() {
    if (!at_name("not")) return comparison();
    const level nested(*this);
    const std::uint32_t line = take().line;
    expression* e = make(expression_kind::unary, line, {logical_not()});
    e->op = operation::logical_not;
    return e;
  }

  std::optional<operation> comparison_operator() {
    static constexpr std::pair<std::string_view, operation> operators[] = {
        {"==", operation::equal},      {"!=", operation::not_equal}, {"<", operation::less},
        {"<=", operation::less_equal}, {">", operation::greater},    {">=", operation::greater_equal},
    };
    if (at(token_kind::op)) {
      for (const auto& [text, op] : operators) {
        if (skip_op(text)) return op;
      }
      return std::nullopt;
    }
    if (skip_name("in")) return operation::in;
    if (at_name("not") && after().kind == token_kind::name && after().text == "in") {
      take();
      take();
      return operation::not_in;
    }
    return std::nullopt;
  }

  const expression* comparison() {
    const std::uint32_t line = now().line;
    const expression* first = sum();
    auto op = comparison_operator();
    if (!op) return first;
    expression* e = make(expression_kind::compare, line, {first});
    while (op) {
      e->ops.push_back(*op);
      const expression* operand = sum();
      deepen(*e, operand);
      e->operands.push_back(operand);
      op = comparison_operator();
    }
    return e;
  }

  const expression*
  binary(operation op, std::uint32_t line, const expression* left, const expression* right) {
    expression* e = make(expression_kind::binary, line, {left, right});
    e->op = op;
    return e;
  }

  const expression* sum() {
    const expression* left = concatenation();
    while (at_op("+") || at_op("-")) {
      const token& t = take();
      const operation op = t.text == "+" ? operation::add : operation::subtract;
      left = binary(op, t.line, left, concatenation());
    }
    return left;
  }

  const expression* concatenation() {
    const expression* first = product();
    if (!at_op("~")) return first;
    expression* e = make(expression_kind::concat, now().line, {first});
    while (skip_op("~")) {
      const expression* operand = product();
      deepen(*e, operand);
      e->operands.push_back(operand);
    }
    return e;
  }

  const expression* product() {
    const expression* left = power();
    while (at_op("*") || at_op("/") || at_op("//") || at_op("%")) {
      const token& t = take();
      const operation op = t.text == "*"    ? operation::multiply
                           : t.text == "/"  ? operation::divide
                           : t.text == "//" ? operation::floor_divide
                                            : operation::modulo;
      left = binary(op, t.line, left, power());
    }
    return left;
  }

  const expression* power() {
    const expression* left = unary(true);
    while (at_op("**")) { // to the left, as Jinja does
      const std::uint32_t line = take().line;
      left = binary(operation::power, line, left, unary(true));
    }
    return left;
  }

  const expression* unary(bool with_filters) {
    const level nested(*this);
    const expression* e = nullptr;
    if (at_op("-") || at_op("+")) {
      const token& t = take();
      expression* made = make(expression_kind::unary, t.line, {unary(false)});
      made->op = t.text == "-" ? operation::negate : operation::plus;
      e = made;
    } else {
      e = primary();
    }
    e = postfix(e);
    return with_filters ? filters(e) : e;
  }

  const expression* primary() {
    const token& t = now();
    switch (t.kind) {
    case token_kind::name: {
      take();
      if (t.text == "true" || t.text == "True") return make_constant(value::of(true), t.line);
      if (t.text == "false" || t.text == "False") return make_constant(value::of(false), t.line);
      if (t.text == "none" || t.text == "None") return make_constant(value::none(), t.line);
      expression* e = make(expression_kind::name, t.line);
      e->id = intern(t.text);
      note_own_name(e->id, name_use::read);
      for (statement* m : macros_) {
        m->uses_caller = m->uses_caller || e->id == tree_->caller;
        m->uses_varargs = m->uses_varargs || e->id == tree_->varargs;
        m->uses_kwargs = m->uses_kwargs || e->id == tree_->kwargs;
      }
      return e;
    }
    case token_kind::string: {
      std::string text;
      while (at(token_kind::string)) text += take().text; // neighbours are one string
      return make_constant(value::of(constant_text(text)), t.line);
    }
    case token_kind::integer:
      take();
      return make_constant(value::of(t.integer), t.line);
    case token_kind::real:
      take();
      return make_constant(value::of(t.real), t.line);
    case token_kind::op:
      if (skip_op("(")) {
        const expression* e = tuple(true, true);
        expect_op(")");
        return e;
      }
      if (at_op("[")) return list();
      if (at_op("{")) return dict();
      break;
    default:
      break;
    }
    if (at(token_kind::end)) fail("unexpected end of template");
    fail("unexpected '" + describe(t) + "'");
  }

  bool ends_tuple(bool in_for) const {
    return at(token_kind::variable_end) || at(token_kind::block_end) || at_op(")") ||
           (in_for && at_name("in")) || (in_for && at_name("recursive"));
  }

  /// One expression, or several with commas between.
  const expression* tuple(bool parenthesised, bool with_condition, bool in_for = false) {
    const level nested(*this);
    const std::uint32_t line = now().line;
    std::vector<const expression*> items;
    bool comma = false;
    while (true) {
      if (!items.empty()) expect_op(",");
      if (ends_tuple(in_for)) break;
      items.push_back(with_condition ? condition() : logical_or());
      if (!at_op(",")) break;
      comma = true;
    }
    if (!comma) {
      if (!items.empty()) return items.front();
      if (!parenthesised) fail("Expected an expression, got '" + describe(now()) + "'");
    }
    return make(expression_kind::tuple, line, std::move(items));
  }

  const expression* list() {
    const std::uint32_t line = take().line;
    std::vector<const expression*> items;
    while (!at_op("]")) {
      if (!items.empty()) expect_op(",");
      if (at_op("]")) break;
      items.push_back(condition());
    }
    expect_op("]");
    return make(expression_kind::list, line, std::move(items));
  }

  const expression* dict() {
    const std::uint32_t line = take().line;
    std::vector<const expression*> items;
    while (!at_op("}")) {
      if (!items.empty()) expect_op(",");
      if (at_op("}")) break;
      items.push_back(condition());
      expect_op(":");
      items.push_back(condition());
    }
    expect_op("}");
    return make(expression_kind::dict, line, std::move(items));
  }

  const expression* postfix(const expression* e) {
    while (true) {
      if (at_op(".") || at_op("[")) {
        e = subscript(e);
      } else if (at_op("(")) {
        e = call(e);
      } else {
        return e;
      }
    }
  }

  const expression* subscript(const expression* e) {
    const token& t = take();
    if (t.text == ".") {
      const token& key = take();
      if (key.kind == token_kind::name) {
        expression* made = make(expression_kind::attribute, t.line, {e});
        made->text = constant_text(key.text);
        return made;
      }
      if (key.kind != token_kind::integer) fail("expected name or number");
      return make(expression_kind::item, t.line, {e, make_constant(value::of(key.integer), key.line)});
    }
    std::vector<const expression*> items;
    while (!at_op("]")) {
      if (!items.empty()) expect_op(",");
      items.push_back(slice_or_index());
    }
    expect_op("]");
    if (items.size() == 1) return make(expression_kind::item, t.line, {e, items.front()});
    return make(expression_kind::item, t.line, {e, make(expression_kind::tuple, t.line, std::move(items))});
  }

  const expression* slice_or_index() {
    const std::uint32_t line = now().line;
    const expression* start = nullptr;
    if (!at_op(":")) {
      start = condition();
      if (!at_op(":")) return start;
    }
    take();
    const auto part = [&]() -> const expression* {
      return at_op(":") || at_op("]") || at_op(",") ? nullptr : condition();
    };
    const expression* stop = part();
    const expression* step = skip_op(":") ? part() : nullptr;
    return make(expression_kind::slice, line, {start, stop, step});
  }

  const expression* call(const expression* e) {
    expression* made = make(expression_kind::call, now().line, {e});
    call_arguments(*made);
    return made;
  }

  void call_arguments(expression& e) {
    const level nested(*this);
    call_syntax& a = e.arguments;
    expect_op("(");
    const auto ensure = [&](bool ok) {
      if (!ok) fail("invalid syntax for function call expression");
    };
    for (bool first = true; !at_op(")"); first = false) {
      if (!first) {
        expect_op(",");
        if (at_op(")")) break;
      }
      const expression* operand = nullptr;
      if (skip_op("*")) {
        ensure(!a.unpacked_list && !a.unpacked_dict);
        a.unpacked_list = operand = condition();
      } else if (skip_op("**")) {
        ensure(!a.unpacked_dict);
        a.unpacked_dict = operand = condition();
      } else if (at(token_kind::name) && after().kind == token_kind::op && after().text == "=") {
        ensure(!a.unpacked_dict);
        const text_object* name = constant_text(take().text);
        take();
        operand = condition();
        a.named.push_back({name, operand});
      } else {
        ensure(!a.unpacked_list && !a.unpacked_dict && a.named.empty());
        operand = condition();
        a.positional.push_back(operand);
      }
      deepen(e, operand);
    }
    expect_op(")");
  }

  const expression* filters(const expression* e) {
    while (true) {
      if (skip_op("|")) {
        e = filter(e);
      } else if (e && at_name("is")) {
        e = test(e);
      } else if (e && at_op("(")) {
        e = call(e);
      } else {
        return e;
      }
    }
  }

  std::string dotted_name() {
    std::string name = take_name().text;
    while (skip_op(".")) name += "." + take_name().text;
    return name;
  }

  const expression* filter(const expression* input) {
    const std::uint32_t line = now().line;
    const std::string name = dotted_name();
    expression* e = make(expression_kind::filter, line, {input});
    e->text = constant_text(name);
    e->filter = find_filter(name);
    if (!e->filter) unknown_.push_back({line, "No filter named '" + name + "'."});
    if (at_op("(")) call_arguments(*e);
    return e;
  }

  const expression* test(const expression* input) {
    const std::uint32_t line = take().line;
    const bool negated = skip_name("not");
    const std::string name = dotted_name();
    expression* e = make(expression_kind::test, line, {input});
    e->text = constant_text(name);
    e->test = find_test(name);
    if (!e->test) unknown_.push_back({line, "No test named '" + name + "'."});
    if (at_op("(")) {
      call_arguments(*e);
    } else if (starts_test_argument()) {
      if (at_name("is")) fail("You cannot chain multiple tests with is");
      const expression* operand = postfix(primary());
      deepen(*e, operand);
      e->arguments.positional.push_back(operand);
    }
    if (!negated) return e;
    expression* made = make(expression_kind::unary, line, {e});
    made->op = operation::logical_not;
    return made;
  }

  bool starts_test_argument() const {
    switch (now().kind) {
    case token_kind::name:
      return now().text != "else" && now().text != "or" && now().text != "and";
    case token_kind::string:
    case token_kind::integer:
    case token_kind::real:
      return true;
    case token_kind::op:
      return at_op("(") || at_op("[") || at_op("{");
    default:
      return false;
    }
  }

  /// Whether a name with a meaning of its own is read in the template or block before it is set there.
  enum class name_use : std::uint8_t { none, read, set };
  struct own_names {
    name_use self = name_use::none, super = name_use::none;
  };
  void note_own_name(symbol id, name_use use) {
    name_use* name = id == tree_->self ? &own_names_.self : id == tree_->super ? &own_names_.super : nullptr;
    if (name && *name == name_use::none) *name = use;
  }

  std::vector<token> tokens_;
  std::size_t at_ = 0;
  std::size_t nesting_ = 0;
  std::size_t loops_ = 0; ///< for loops around the current statement
  std::size_t fors_ = 0;  ///< the same, with those that a macro or block stands between
  std::unordered_set<symbol> block_names_;
  std::size_t scopes_ = 0;         ///< scopes around it, but for the outermost
  own_names own_names_;            ///< of the template or the block around it
  std::vector<statement*> macros_; ///< macros and call blocks around the current expression
  std::vector<syntax_error>
      unknown_; ///< unknown filters and tests; those behind a condition fail only if reached
  std::vector<syntax_error> unknown_in_scopes_;
  std::unique_ptr<syntax_tree> tree_;
};

} // namespace

std::unique_ptr<const syntax_tree> parse(std::string_view source) {
  return parser(source).run();
}

} // namespace troupe::models::jinja
