// SPDX-License-Identifier: Apache-2.0
// Which names start out undefined in a scope.
#include "models/jinja/resolver.hpp"

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::models::jinja {
namespace {

/// What a name holds when its scope opens.
enum class start : std::uint8_t { passed_in, outer, undefined };

struct start_change {
  symbol id;
  start kind;
  std::optional<start> before;
};

/// Changes that one branch made, to be undone and merged.
struct changes {
  std::vector<start_change> starts;
  std::vector<symbol> stores;
};

/// Names of one scope, in the order the scope's own statements meet them.
class frame {
 public:
  explicit frame(const frame* parent) : parent_(parent) {}

  bool knows(symbol id) const {
    for (const frame* f = this; f; f = f->parent_) {
      if (f->starts_.contains(id)) return true;
    }
    return false;
  }

  void load(symbol id) {
    if (!knows(id)) set_start(id, start::passed_in);
  }

  void store(symbol id) {
    if (stores_.insert(id).second && log_) log_->stores.push_back(id);
    if (starts_.contains(id)) return;
    set_start(id, parent_ && parent_->knows(id) ? start::outer : start::undefined);
  }

  void parameter(symbol id) {
    if (stores_.insert(id).second && log_) log_->stores.push_back(id);
    set_start(id, start::outer); // its value is given when the scope opens
  }

  /// Runs `visit` as one of several branches: its changes are returned, not kept.
  template<class Visit>
  changes branch(Visit visit) {
    changes made;
    changes* const before = std::exchange(log_, &made);
    visit();
    log_ = before;
    for (auto change = made.starts.rbegin(); change != made.starts.rend(); ++change) {
      if (change->before) {
        starts_[change->id] = *change->before;
      } else {
        starts_.erase(change->id);
      }
    }
    for (const symbol id : made.stores) stores_.erase(id);
    return made;
  }

  /// Keeps the changes of all branches. A name that not every branch stores keeps what it had outside.
  void merge(const std::vector<changes>& branches) {
    std::unordered_map<symbol, std::size_t> counts;
    for (const changes& b : branches) {
      for (const symbol id : b.stores) ++counts[id];
    }
    for (const changes& b : branches) {
      for (const start_change& change : b.starts) set_start(change.id, change.kind);
      for (const symbol id : b.stores) {
        if (stores_.insert(id).second && log_) log_->stores.push_back(id);
      }
    }
    for (const auto& [id, count] : counts) {
      if (count != branches.size())
        set_start(id, parent_ && parent_->knows(id) ? start::outer : start::passed_in);
    }
  }

  std::vector<symbol> undefined() const {
    std::vector<symbol> out;
    for (const auto& [id, kind] : starts_) {
      if (kind == start::undefined) out.push_back(id);
    }
    return out;
  }

 private:
  void set_start(symbol id, start kind) {
    const auto [at, fresh] = starts_.try_emplace(id, kind);
    if (log_) log_->starts.push_back({id, kind, fresh ? std::nullopt : std::optional(at->second)});
    at->second = kind;
  }

  const frame* parent_;
  std::unordered_map<symbol, start> starts_;
  std::unordered_set<symbol> stores_;
  changes* log_ = nullptr;
};

class resolver {
 public:
  explicit resolver(syntax_tree& tree) : tree_(tree) {}

  void run() {
    frame root(nullptr);
    if (tree_.uses_self) root.parameter(tree_.self);
    visit(tree_.body, root);
    tree_.unset = unset(root);
    inner(tree_.body, root);
  }

 private:
  std::vector<std::pair<symbol, value>> unset(const frame& f) {
    std::vector<std::pair<symbol, value>> out;
    for (const symbol id : f.undefined()) {
      const text_object* reason = tree_.constants.make_text("'" + tree_.names[id]->bytes + "' is undefined");
      tree_.unset_reasons.emplace(reason, id);
      out.emplace_back(id, value::undefined(reason));
    }
    return out;
  }

  // What a scope's own statements load and store.

  void visit(const expression* e, frame& f) {
    if (!e) return;
    if (e->kind == expression_kind::name) f.load(e->id);
    for (const expression* operand : e->operands) visit(operand, f);
    for (const expression* operand : e->arguments.positional) visit(operand, f);
    for (const keyword_argument& k : e->arguments.named) visit(k.operand, f);
    visit(e->arguments.unpacked_list, f);
    visit(e->arguments.unpacked_dict, f);
  }

  void visit(const assign_target& t, frame& f, bool parameter) {
    for (const assign_target& part : t.parts) visit(part, f, parameter);
    if (!t.parts.empty()) return;
    if (t.attribute) {
      f.load(t.id);
    } else if (parameter) {
      f.parameter(t.id);
    } else {
      f.store(t.id);
    }
  }

  void visit(const block& body, frame& f) {
    for (const statement* s : body) visit(*s, f);
  }

  void visit_if(const statement& s, frame& f) {
    visit(s.branches[0].condition, f);
    // Jinja counts three branches, whether they are there or not: then, the elifs, else.
    std::vector<changes> branches(3);
    branches[0] = f.branch([&] { visit(s.branches[0].body, f); });
    branches[1] = f.branch([&] {
      for (std::size_t i = 1; i < s.branches.size(); ++i) visit_elif(s.branches[i], f);
    });
    branches[2] = f.branch([&] { visit(s.otherwise, f); });
    f.merge(branches);
  }

  /// An elif is an if of its own without else.
  void visit_elif(const branch& b, frame& f) {
    visit(b.condition, f);
    std::vector<changes> branches(3);
    branches[0] = f.branch([&] { visit(b.body, f); });
    f.merge(branches);
  }

  void visit(const statement& s, frame& f) {
    switch (s.kind) {
    case statement_kind::output:
      visit(s.head, f);
      return;
    case statement_kind::if_else:
      visit_if(s, f);
      return;
    case statement_kind::for_loop:
      visit(s.head, f);
      return;
    case statement_kind::set:
      visit(s.head, f);
      visit(s.target, f, false);
      return;
    case statement_kind::set_block:
      visit(s.target, f, false);
      return;
    case statement_kind::macro:
      f.store(s.id);
      return;
    case statement_kind::call_block:
    case statement_kind::filter_block:
      visit(s.head, f);
      return;
    case statement_kind::scope:
      for (const auto& [target, head] : s.bindings) visit(head, f);
      return;
    default:
      return;
    }
  }

  // The scopes inside.

  void inner(const block& body, const frame& f) {
    for (statement* s : body) inner(*s, f);
  }

  void finish(statement& s, frame& f) {
    s.unset = unset(f);
    inner(s.body, f);
  }

  void inner(statement& s, const frame& f) {
    frame own(&f);
    switch (s.kind) {
    case statement_kind::if_else:
      for (const branch& b : s.branches) inner(b.body, f);
      inner(s.otherwise, f);
      return;
    case statement_kind::for_loop: {
      own.parameter(tree_.loop);
      visit(s.target, own, true);
      visit(s.body, own);
      finish(s, own);
      frame otherwise(&f);
      visit(s.otherwise, otherwise);
      s.unset_otherwise = unset(otherwise);
      inner(s.otherwise, otherwise);
      return;
    }
    case statement_kind::macro:
    case statement_kind::call_block:
      for (const parameter& p : s.parameters) own.parameter(p.id);
      for (const parameter& p : s.parameters) visit(p.otherwise, own);
      own.parameter(tree_.caller);
      own.parameter(tree_.varargs);
      own.parameter(tree_.kwargs);
      break;
    case statement_kind::scope:
      for (const auto& [target, head] : s.bindings) visit(target, own, true);
      break;
    case statement_kind::named_block: { // a function that knows no scope around it
      frame alone(nullptr);
      if (s.uses_self) alone.parameter(tree_.self);
      if (s.uses_super) alone.parameter(tree_.super);
      visit(s.body, alone);
      finish(s, alone);
      return;
    }
    case statement_kind::set_block:
    case statement_kind::filter_block:
    case statement_kind::generation:
      break;
    default:
      return;
    }
    visit(s.body, own);
    finish(s, own);
  }

  syntax_tree& tree_;
};

} // namespace

void resolve_names(syntax_tree& tree) {
  resolver(tree).run();
}

} // namespace troupe::models::jinja
