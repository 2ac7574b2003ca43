// SPDX-License-Identifier: Apache-2.0
// Reads workloads.
#include "sim/load_workload.hpp"

#include <charconv>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace troupe::sim {
namespace {

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r"), last = s.find_last_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view{} : s.substr(first, last - first + 1);
}

[[noreturn]] void wrong(std::string_view name, std::string_view value) {
  throw std::runtime_error("\"" + std::string(value) + "\" is no " + std::string(name));
}

double number(std::string_view name, std::string_view value, double least = 0, double most = 1e12) {
  double x = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
  if (error != std::errc{} || end != value.data() + value.size() || !(x >= least && x <= most))
    wrong(name, value);
  return x;
}

std::uint32_t count(std::string_view name, std::string_view value, double least, double most) {
  return static_cast<std::uint32_t>(number(name, value, least, most));
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

void set_arrivals(crowd& c, std::string_view value) {
  const auto w = words(value);
  if (w.empty()) wrong("way to arrive", value);
  if (w[0] == "poisson" && w.size() == 1) {
    c.arrives = crowd::arrival::poisson;
  } else if (w[0] == "bursts" && w.size() == 3) {
    c.arrives = crowd::arrival::bursts;
    c.on_s = number("length of a burst", w[1], 1e-6);
    c.off_s = number("time between bursts", w[2]);
  } else if (w[0] == "closed" && w.size() >= 2) {
    c.arrives = crowd::arrival::closed;
    c.think = parse_law(value.substr(value.find(w[1], value.find("closed") + 6)));
  } else {
    wrong("way to arrive", value);
  }
}

void set_of_crowd(crowd& c, std::string_view name, std::string_view value) {
  const auto w = words(value);
  if (name == "arrivals") {
    set_arrivals(c, value);
  } else if (name == "load" || name == "fixed_load") {
    c.load = number(name, value);
    c.fixed = name == "fixed_load";
  } else if (name == "prompt" || name == "output" || name == "cancel_after") {
    (name == "prompt" ? c.prompt : name == "output" ? c.output : c.cancel_after) = parse_law(value);
  } else if (name == "max_tokens") {
    c.max_tokens = count(name, value, 1, 1e9);
  } else if (name == "priority") {
    if (w.empty() || w.size() > 2) wrong(name, value);
    c.priority_from = count(name, w.front(), 0, 9);
    c.priority_to = count(name, w.back(), c.priority_from, 9);
  } else if (name == "tenants") {
    c.tenants = count(name, value, 0, 1e6);
  } else if (name == "prefix") {
    if (w.size() != 2) wrong("prefix (TOKENS, and how many such)", value);
    c.prefix_tokens = count(name, w[0], 0, 1e6);
    c.prefixes = count(name, w[1], 1, 1e6);
  } else if (name == "cancels" || name == "stalls") {
    (name == "cancels" ? c.cancels : c.stalls) = number(name, value, 0, 1);
  } else if (name == "read_s" || name == "deadline_s") {
    (name == "read_s" ? c.read_s : c.deadline_s) = number(name, value, 0, 86'400);
  } else if (name == "credit") {
    c.credit = count(name, value, 1, 4096);
  } else if (name == "tries") {
    c.tries = count(name, value, 1, 1e9);
  } else {
    throw std::runtime_error("a crowd has no \"" + std::string(name) + "\"");
  }
}

void set_of_workload(workload& w, std::string_view name, std::string_view value) {
  if (name == "about") {
    w.about = value;
  } else if (name == "axis") {
    if (value != "rate" && value != "clients" && value != "capacity") wrong(name, value);
    w.unit = value == "rate"      ? workload::axis::rate
             : value == "clients" ? workload::axis::clients
                                  : workload::axis::capacity;
  } else if (name == "loads") {
    w.loads.clear();
    for (const auto& x : words(value)) w.loads.push_back(number("load", x, 1e-6));
    if (w.loads.empty()) wrong(name, value);
  } else if (name == "seconds") {
    w.seconds = number(name, value, 0.1);
  } else if (name == "fair_window_s") {
    w.fair_window_s = number(name, value, 0);
  } else if (name == "warm_up") {
    w.warm_up = number(name, value, 0, 0.9);
  } else { // a setting of the machine or the policies
    load_settings probe;
    set(probe, name, value);
    w.settings.emplace_back(name, value);
  }
}

} // namespace

workload parse_workload(std::string_view name, std::string_view text) {
  workload made;
  made.name = name;
  std::istringstream in{std::string(text)};
  std::size_t number_of_line = 0;
  for (std::string raw; std::getline(in, raw);) {
    ++number_of_line;
    const std::string_view line = trimmed(std::string_view(raw).substr(0, raw.find('#')));
    try {
      if (line.empty()) continue;
      if (line.starts_with("[crowd ") && line.ends_with("]")) {
        made.crowds.emplace_back();
        made.crowds.back().name = trimmed(line.substr(7, line.size() - 8));
        continue;
      }
      const auto equals = line.find('=');
      if (equals == std::string_view::npos) throw std::runtime_error("neither NAME = VALUE nor [crowd NAME]");
      const auto key = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
      if (made.crowds.empty())
        set_of_workload(made, key, value);
      else
        set_of_crowd(made.crowds.back(), key, value);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(made.name + ", line " + std::to_string(number_of_line) + ": " + e.what());
    }
  }
  if (made.crowds.empty()) throw std::runtime_error(made.name + ": there is no [crowd NAME]");
  if (made.loads.empty()) throw std::runtime_error(made.name + ": there are no \"loads\"");
  for (const crowd& c : made.crowds)
    if (!c.fixed && (c.arrives == crowd::arrival::closed) != (made.unit == workload::axis::clients))
      throw std::runtime_error(
          made.name + ": the load of crowd " + c.name +
          " is not counted as the axis is: it needs a fixed_load");
  return made;
}

workload find_workload(const std::string& name_or_file) {
  for (const auto& w : named_workloads())
    if (w.name == name_or_file) return parse_workload(w.name, w.text);
  std::ifstream file(name_or_file);
  if (!file) throw std::runtime_error("there is neither a workload nor a file \"" + name_or_file + "\"");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_workload(name_or_file, text.str());
}

} // namespace troupe::sim
