// SPDX-License-Identifier: Apache-2.0
// TOML parsing over the property table, and the documents made from it.
#include "config/loader.hpp"

#include "config/nearest.hpp"
#include "config/property.hpp"
#include "runtime/base/bounded_file.hpp"

#include <toml++/toml.h>

#include <filesystem>
#include <string>

namespace troupe::config {

namespace {

std::string_view group_of(std::string_view name) {
  return name.substr(0, name.find('.'));
}
std::string_view key_of(std::string_view name) {
  return name.substr(name.find('.') + 1);
}

error at(
    const std::string& file, const toml::source_region& where, std::string message,
    std::string_view key = {}) {
  return {
      errc::bad_config, file + ':' + std::to_string(where.begin.line) + ": " + std::move(message),
      std::string(key), 0};
}

std::string suggest_group(std::string_view wrong) {
  nearest_name near(wrong);
  for (const property& row : properties()) near.consider(group_of(row.name));
  return near.best().empty() ? suggest_property(wrong) : "did you mean [" + near.best() + "]?";
}

bool is_group(std::string_view name) {
  for (const property& row : properties())
    if (group_of(row.name) == name) return true;
  return false;
}

// The value by its TOML type; a type that does not suit the row is refused by the row's setter.
result<void> set_node(const property& row, settings& into, const toml::node& node) {
  if (const auto* number = node.as_integer()) {
    if (std::holds_alternative<double& (*)(settings&)>(row.field))
      return row.set_fraction(into, static_cast<double>(number->get()));
    return row.set_integer(into, number->get());
  }
  if (const auto* number = node.as_floating_point()) return row.set_fraction(into, number->get());
  if (const auto* yes = node.as_boolean()) return row.set_switch(into, yes->get());
  const bool takes_text = std::holds_alternative<std::string& (*)(settings&)>(row.field) ||
                          std::holds_alternative<std::uint64_t& (*)(settings&)>(row.field);
  if (const auto* text = node.as_string(); text != nullptr && takes_text)
    return row.set_text(into, text->get());
  return error{errc::bad_config, "has the wrong type; it takes " + row.takes(), std::string(row.name), 0};
}

} // namespace

result<void> apply_toml(settings& into, std::string_view text, const std::string& name) {
  toml::table document;
  try {
    document = toml::parse(text, name);
  } catch (const toml::parse_error& bad) {
    return at(name, bad.source(), std::string(bad.description()));
  }
  for (const auto& [group, node] : document) {
    const std::string group_name(group.str());
    const toml::table* keys = node.as_table();
    if (keys == nullptr)
      return at(
          name, group.source(), "unknown key \"" + group_name + "\"; " + suggest_property(group_name),
          group_name);
    if (!is_group(group_name))
      return at(
          name, group.source(), "unknown table [" + group_name + "]; " + suggest_group(group_name),
          group_name);
    for (const auto& [key, value] : *keys) {
      const std::string dotted = group_name + '.' + std::string(key.str());
      const property* row = find_property(dotted);
      if (row == nullptr)
        return at(name, key.source(), "unknown key \"" + dotted + "\"; " + suggest_property(dotted), dotted);
      if (const auto done = set_node(*row, into, value); !done)
        return at(name, key.source(), dotted + ' ' + done.error().message, dotted);
    }
  }
  return {};
}

result<void> apply_file(settings& into, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return error{errc::io, path + ": is a folder, not a TOML file", {}, 0};
  constexpr std::uint64_t most = 1U << 20;
  const auto text = read_bounded_file(path, most); // an empty file sets nothing
  if (!text)
    return error{
        errc::io, text.error().message + "; `troupe serve --dump-config` prints a file to begin with", {}, 0};
  return apply_toml(into, *text, path);
}

result<void> apply_assignment(settings& into, std::string_view assignment) {
  const auto equals = assignment.find('=');
  const std::string name(assignment.substr(0, equals));
  if (equals == std::string_view::npos)
    return error{
        errc::bad_config, "--set takes TABLE.KEY=VALUE, not \"" + std::string(assignment) + '"', {}, 0};
  const property* row = find_property(name);
  if (row == nullptr)
    return error{errc::bad_config, "unknown setting \"" + name + "\"; " + suggest_property(name), name, 0};
  if (const auto done = row->set_text(into, assignment.substr(equals + 1)); !done)
    return error{errc::bad_config, name + ' ' + done.error().message, name, 0};
  return {};
}

std::string dump(const settings& all) {
  std::string out;
  std::string_view group;
  for (const property& row : properties()) {
    if (group_of(row.name) != group) {
      if (!group.empty()) out += '\n';
      group = group_of(row.name);
      out += '[';
      out += group;
      out += "]\n";
    }
    out += key_of(row.name);
    out += " = ";
    out += row.toml(all);
    out += "  # ";
    out += row.help;
    if (const std::string range = row.allowed(); !range.empty()) out += " (" + range + ')';
    out += '\n';
  }
  return out;
}

std::string reference_markdown() {
  const settings defaults;
  std::string out =
      "# Settings\n\n"
      "Made from the property table by `troupe doctor --config-reference`; do not edit.\n\n"
      "A setting comes from, in rising order: the default, the TOML file given with `--config`, the command "
      "line. Every\n"
      "setting can be given as `--set table.key=value`; those with a flag also by it. `troupe serve "
      "--dump-config` prints\n"
      "the result as a TOML file. Sizes are texts such as `\"256MiB\"` or whole numbers of bytes.\n";
  std::string_view group;
  for (const property& row : properties()) {
    if (group_of(row.name) != group) {
      group = group_of(row.name);
      out += "\n## [";
      out += group;
      out += "]\n\n| Key | Flag | Type | Allowed | Default | Unit | Change | Meaning "
             "|\n|---|---|---|---|---|---|---|---|\n";
    }
    const auto cell = [&](std::string_view text, bool code) {
      out += ' ';
      if (code && !text.empty())
        (out += '`').append(text) += '`';
      else
        out += text;
      out += " |";
    };
    const std::string allowed = row.allowed();
    const std::string standard = row.toml(defaults);
    out += '|';
    cell(key_of(row.name), true);
    cell(row.flag, true);
    cell(row.type_name(), false);
    cell(allowed, false);
    cell(standard, true);
    cell(row.unit, false);
    cell(row.change == change::live ? "live" : "restart", false);
    cell(row.help, false);
    out += '\n';
  }
  return out;
}

} // namespace troupe::config
