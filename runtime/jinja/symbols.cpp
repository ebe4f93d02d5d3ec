#include "runtime/jinja/symbols.h"

namespace moepack::jinja {

void Symbols::define(const std::string& name, Beginning beginning) {
  const auto next = static_cast<std::uint32_t>(function_->variables.size());
  const auto [entry, is_new] = function_->variables.emplace(std::pair(level_, name), next);
  names_[name] = Variable{function_, entry->second};
  beginnings_[entry->second] = std::move(beginning);
}

const Symbols::Variable* Symbols::find(const std::string& name) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto found = scope->names_.find(name);
    if (found != scope->names_.end()) return &found->second;
  }
  return nullptr;
}

void Symbols::load(const std::string& name) {
  if (find(name) == nullptr) define(name, {Load::Kind::kResolve, name, {}});
}

void Symbols::store(const std::string& name) {
  stored_.insert(name);
  if (names_.contains(name)) return;
  const Variable* outer = parent_ == nullptr ? nullptr : parent_->find(name);
  if (outer != nullptr) {
    define(name, {Load::Kind::kAlias, "", *outer});
  } else {
    define(name, {Load::Kind::kMissing, "", {}});
  }
}

void Symbols::declare_parameter(const std::string& name) {
  stored_.insert(name);
  define(name, {Load::Kind::kParameter, "", {}});
}

void Symbols::join(const std::vector<Symbols>& branches) {
  std::set<std::string> stored;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stored_) {
      if (!stored_.contains(name)) stored.insert(name);
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, variable] : branch.names_) names_[name] = variable;
    for (const auto& [index, beginning] : branch.beginnings_) beginnings_[index] = beginning;
    stored_.insert(branch.stored_.begin(), branch.stored_.end());
  }
  // Set in some branches only: elsewhere the name keeps what it meant before.
  for (const std::string& name : stored) {
    const Variable variable = *find(name);
    const Variable* outer = parent_ == nullptr ? nullptr : parent_->find(name);
    if (outer != nullptr) {
      beginnings_[variable.index] = {Load::Kind::kAlias, "", *outer};
    } else {
      beginnings_[variable.index] = {Load::Kind::kResolve, name, {}};
    }
  }
}

Slot Symbols::slot_of(const Variable& variable) const {
  Slot slot{0, variable.index};
  for (const FunctionScope* at = function_; at != variable.function; at = at->parent) ++slot.hops;
  return slot;
}

Slot Symbols::slot(const std::string& name) const {
  const Variable* variable = find(name);
  if (variable == nullptr) {
    fail("the name '" + name + "' cannot be used here", ErrorKind::kSyntax);
  }
  return slot_of(*variable);
}

Scope Symbols::scope() const {
  Scope scope;
  for (const auto& [index, beginning] : beginnings_) {
    Load load{beginning.kind, index, beginning.name, {}};
    if (load.kind == Load::Kind::kAlias) load.source = slot_of(beginning.source);
    scope.push_back(std::move(load));
  }
  return scope;
}

}  // namespace moepack::jinja
