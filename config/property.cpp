// SPDX-License-Identifier: Apache-2.0
// Text forms, bounds and look-up of the property table.
#include "config/property.hpp"

#include "config/nearest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

namespace troupe::config {

namespace {

struct byte_unit {
  std::string_view name;
  double bytes;
};
// Largest first: format_bytes takes the first binary one that divides a size.
constexpr byte_unit byte_units[] = {
    {"TiB", 1099511627776.0},
    {"GiB", 1073741824.0},
    {"MiB", 1048576.0},
    {"KiB", 1024.0},
    {"TB", 1e12},
    {"GB", 1e9},
    {"MB", 1e6},
    {"kB", 1e3},
    {"KB", 1e3},
    {"B", 1.0}};
constexpr double largest_exact = 9007199254740992.0; // 2^53: up to here a double is every whole number

error wrong(const property& row, std::string_view value) {
  std::string message = "cannot be ";
  message += value;
  message += "; it takes " + row.takes();
  return {errc::bad_config, std::move(message), std::string(row.name), 0};
}

std::string in_quotes(std::string_view text) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

template<class Number>
std::string bound_text(const property& row, double bound) {
  if constexpr (std::is_same_v<Number, std::uint64_t>) return format_bytes(static_cast<std::uint64_t>(bound));
  if constexpr (std::is_same_v<Number, double>) return shortest(bound);
  (void)row;
  return std::to_string(static_cast<std::int64_t>(bound));
}

template<class Field>
using value_of = std::remove_reference_t<std::invoke_result_t<Field, settings&>>;

} // namespace

std::string_view property::type_name() const noexcept {
  constexpr std::string_view names[] = {"text",           "true or false", "a whole number",
                                        "a whole number", "a size",        "a number"};
  return names[field.index()];
}

std::string property::takes() const {
  std::string range = allowed();
  if (!choices.empty()) return range;
  return std::string(type_name()) + (range.empty() ? "" : ", " + range);
}

std::string property::allowed() const {
  if (!choices.empty()) {
    const auto list = words(choices);
    std::string out;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out += i + 1 == list.size() ? " or " : ", ";
      out += list[i] == "-" ? "\"\"" : list[i];
    }
    return out;
  }
  return std::visit(
      [&]<class Field>(Field) -> std::string {
        using value = value_of<Field>;
        if constexpr (std::is_same_v<value, std::string> || std::is_same_v<value, bool>)
          return {};
        else
          return bound_text<value>(*this, least) + " to " + bound_text<value>(*this, most);
      },
      field);
}

std::string property::toml(const settings& from) const {
  auto& all = const_cast<settings&>(from); // a field only forms a reference, which is read here
  return std::visit(
      [&]<class Field>(Field get) -> std::string {
        const auto& value = get(all);
        using type = value_of<Field>;
        if constexpr (std::is_same_v<type, std::string>)
          return in_quotes(value);
        else if constexpr (std::is_same_v<type, bool>)
          return value ? "true" : "false";
        else if constexpr (std::is_same_v<type, std::uint64_t>)
          return in_quotes(format_bytes(value));
        else if constexpr (std::is_same_v<type, double>) {
          std::string number = shortest(value);
          if (number.find_first_of(".e") == std::string::npos) number += ".0";
          return number;
        } else
          return std::to_string(value);
      },
      field);
}

std::string property::text(const settings& from) const {
  std::string out = toml(from);
  if (out.size() > 1 && out.front() == '"') out = out.substr(1, out.size() - 2);
  return out;
}

result<void> property::set_text(settings& into, std::string_view value) const {
  return std::visit(
      [&]<class Field>(Field get) -> result<void> {
        using type = value_of<Field>;
        if constexpr (std::is_same_v<type, std::string>) {
          if (!choices.empty()) {
            const auto list = words(choices);
            const std::string_view sought = value.empty() ? std::string_view("-") : value;
            if (std::find(list.begin(), list.end(), sought) == list.end())
              return wrong(*this, in_quotes(value));
          }
          get(into) = value;
          return {};
        } else if constexpr (std::is_same_v<type, bool>) {
          if (value != "true" && value != "false") return wrong(*this, in_quotes(value));
          return set_switch(into, value == "true");
        } else if constexpr (std::is_same_v<type, std::uint64_t>) {
          const auto bytes = parse_bytes(value);
          if (!bytes || static_cast<double>(*bytes) > largest_exact) return wrong(*this, in_quotes(value));
          return set_integer(into, static_cast<std::int64_t>(*bytes));
        } else if constexpr (std::is_same_v<type, double>) {
          double number = 0;
          const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
          if (code != std::errc{} || end != value.data() + value.size())
            return wrong(*this, in_quotes(value));
          return set_fraction(into, number);
        } else {
          std::int64_t number = 0;
          const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
          if (code != std::errc{} || end != value.data() + value.size())
            return wrong(*this, in_quotes(value));
          return set_integer(into, number);
        }
      },
      field);
}

result<void> property::set_integer(settings& into, std::int64_t value) const {
  return std::visit(
      [&]<class Field>(Field get) -> result<void> {
        using type = value_of<Field>;
        if constexpr (std::is_same_v<type, std::string> || std::is_same_v<type, bool>)
          return wrong(*this, std::to_string(value));
        else {
          const auto number = static_cast<double>(value);
          if (number < least || number > most) return wrong(*this, std::to_string(value));
          get(into) = static_cast<type>(value);
          return {};
        }
      },
      field);
}

result<void> property::set_fraction(settings& into, double value) const {
  const auto* get = std::get_if<double& (*)(settings&)>(&field);
  // Written so that a NaN is refused too.
  if (get == nullptr || !(value >= least && value <= most)) return wrong(*this, shortest(value));
  (*get)(into) = value;
  return {};
}

result<void> property::set_switch(settings& into, bool value) const {
  const auto* get = std::get_if<bool& (*)(settings&)>(&field);
  if (get == nullptr) return wrong(*this, value ? "true" : "false");
  (*get)(into) = value;
  return {};
}

void property::copy(const settings& from, settings& to) const {
  auto& source = const_cast<settings&>(from); // as in toml()
  std::visit([&](auto get) { get(to) = get(source); }, field);
}

reloading reload(const settings& old, const settings& wanted) {
  reloading out{old, {}, {}};
  for (const property& row : properties()) {
    if (row.toml(old) == row.toml(wanted)) continue;
    const bool live = row.change == change::live;
    (live ? out.taken : out.for_restart).push_back(row.name);
    if (live) row.copy(wanted, out.in_force);
  }
  return out;
}

const property* find_property(std::string_view name) noexcept {
  for (const property& row : properties())
    if (row.name == name) return &row;
  return nullptr;
}

std::string suggest_property(std::string_view wrong_name) {
  const auto table_of = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const auto last_part = [](std::string_view name) { return name.substr(name.rfind('.') + 1); };
  nearest_name near(wrong_name);
  std::string same_table, tables;
  std::string_view table;
  for (const property& row : properties()) {
    // A key under the wrong table is as near as its own spelling, plus one.
    near.consider(
        row.name, std::min(
                      edit_distance(wrong_name, row.name),
                      edit_distance(last_part(wrong_name), last_part(row.name)) + 1));
    if (table_of(row.name) == table_of(wrong_name))
      (same_table += same_table.empty() ? "" : ", ") += last_part(row.name);
    if (table_of(row.name) != table) {
      table = table_of(row.name);
      (tables += tables.empty() ? "[" : ", [") += std::string(table) + ']';
    }
  }
  if (!near.best().empty()) return "did you mean \"" + near.best() + "\"?";
  if (same_table.empty()) return "the tables are " + tables;
  return '[' + std::string(table_of(wrong_name)) + "] has " + same_table;
}

result<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [rest, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const error bad{
      errc::bad_config, in_quotes(text) + " is not a size; write for example 256MiB or 1.5GiB", {}, 0};
  if (code != std::errc{} || !(number >= 0)) return bad;
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit.empty()) unit = "B";
  for (const byte_unit& known : byte_units) {
    if (known.name != unit) continue;
    const double bytes = number * known.bytes;
    if (bytes > largest_exact || bytes != std::floor(bytes)) return bad;
    return static_cast<std::uint64_t>(bytes);
  }
  return bad;
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes == 0) return "0";
  for (const byte_unit& unit : byte_units) {
    const auto size = static_cast<std::uint64_t>(unit.bytes);
    if (unit.name.size() == 3 && bytes % size == 0)
      return std::to_string(bytes / size) + std::string(unit.name);
  }
  return std::to_string(bytes) + "B";
}

result<std::array<std::uint32_t, 10>> parse_by_priority(std::string_view text) {
  constexpr std::uint32_t most = 86'400'000;
  const error bad{
      errc::bad_config,
      in_quotes(text) +
          " is no list of times by priority; write one number of milliseconds, or for example " +
          "\"0:30,5:50,7:0\"",
      {},
      0};
  const auto number = [](std::string_view digits, std::uint32_t limit) -> std::optional<std::uint32_t> {
    std::uint32_t n = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (code != std::errc{} || end != digits.data() + digits.size() || n > limit) return std::nullopt;
    return n;
  };
  std::array<std::uint32_t, 10> all{};
  if (const auto one = number(text, most)) {
    all.fill(*one);
    return all;
  }
  std::uint32_t next = 0; // the least priority that may come
  for (bool first = true; first || !text.empty(); first = false) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) return bad;
    const auto priority = number(part.substr(0, colon), 9);
    const auto value = number(part.substr(colon + 1), most);
    if (!priority || !value || *priority < next || (first && *priority != 0)) return bad;
    std::fill(all.begin() + *priority, all.end(), *value);
    next = *priority + 1;
    if (part.size() == text.size()) return all;
    text.remove_prefix(part.size() + 1);
  }
  return bad;
}

result<void> check_together(const settings& all) {
  if (auto goals = parse_by_priority(all.engine.tpot_goal_ms); !goals) {
    error why = goals.error();
    why.param = "engine.tpot_goal_ms";
    why.message = "engine.tpot_goal_ms: " + why.message;
    return why;
  }
  if (all.engine.kv_low_watermark > all.engine.kv_high_watermark)
    return error{
        errc::bad_config,
        "engine.kv_low_watermark (" + shortest(all.engine.kv_low_watermark) +
            ") must not be above engine.kv_high_watermark (" + shortest(all.engine.kv_high_watermark) + ")",
        "engine.kv_low_watermark", 0};
  if (all.engine.memory_low_watermark > all.engine.memory_high_watermark)
    return error{
        errc::bad_config,
        "engine.memory_low_watermark (" + shortest(all.engine.memory_low_watermark) +
            ") must not be above engine.memory_high_watermark (" +
            shortest(all.engine.memory_high_watermark) + ")",
        "engine.memory_low_watermark", 0};
  if (all.engine.max_step_tokens < all.engine.max_batch)
    return error{
        errc::bad_config,
        "engine.max_step_tokens (" + std::to_string(all.engine.max_step_tokens) +
            ") must not be below engine.max_batch (" + std::to_string(all.engine.max_batch) +
            "): every running sequence takes one row of a step",
        "engine.max_step_tokens", 0};
  if (all.engine.max_context == 1)
    return error{
        errc::bad_config,
        "engine.max_context of 1 has no room for a prompt and its answer; give 2 or more, or 0 for the "
        "model's own",
        "engine.max_context", 0};
  if (all.model.path.empty())
    return error{
        errc::bad_config, "model.path is empty; give a GGUF file or a name of `troupe pull --list`",
        "model.path", 0};
  if (all.server.host.empty()) // which the system would take for every network there is
    return error{
        errc::bad_config,
        "server.host is empty; give 127.0.0.1 for this machine alone, an address of it, or 0.0.0.0 for every "
        "network",
        "server.host", 0};
  return {};
}

} // namespace troupe::config
