// SPDX-License-Identifier: Apache-2.0
// Numbers by inversion of the distribution function, so that one draw of the law is one number of the stream.
#include "sim/load_law.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::sim {
namespace {

/// Box and Muller, "A note on the generation of random normal deviates", 1958. The one exception: it takes
/// two.
double normal(runtime::random_stream& chance) {
  const double radius = std::sqrt(-2 * std::log1p(-chance.unit()));
  return radius * std::cos(2 * std::numbers::pi * chance.unit());
}

struct form {
  std::string_view name;
  law::shape kind;
  std::size_t numbers;
};
constexpr form forms[] = {
    {"fixed", law::shape::fixed, 1},
    {"uniform", law::shape::uniform, 2},
    {"exponential", law::shape::exponential, 1},
    {"lognormal", law::shape::log_normal, 2},
    {"pareto", law::shape::pareto, 2},
};

} // namespace

double law::draw(runtime::random_stream& chance) const {
  double x = a;
  switch (kind) {
  case shape::fixed:
    break;
  case shape::uniform:
    x = a + (b - a) * chance.unit();
    break;
  case shape::exponential:
    x = -a * std::log1p(-chance.unit());
    break;
  case shape::log_normal:
    x = a * std::exp(b * normal(chance));
    break;
  case shape::pareto:
    x = a * std::pow(1 - chance.unit(), -1 / b);
    break;
  }
  return std::clamp(x, least, most);
}

std::uint32_t law::draw_count(runtime::random_stream& chance) const {
  return static_cast<std::uint32_t>(std::clamp(std::round(draw(chance)), 1.0, 1e9));
}

law parse_law(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string name, rest;
  in >> name;
  const auto at =
      std::find_if(std::begin(forms), std::end(forms), [&](const form& f) { return f.name == name; });
  std::vector<double> numbers;
  for (double x = 0; in >> x;) numbers.push_back(x);
  const bool whole = in.eof();
  const auto wrong = [&] { return std::runtime_error("\"" + std::string(text) + "\" is no distribution"); };
  if (at == std::end(forms) || !whole) throw wrong();
  const bool cut = numbers.size() == at->numbers + 2 && at->numbers == 2 && at->kind != law::shape::uniform;
  if (numbers.size() != at->numbers && !cut) throw wrong();
  for (const double x : numbers)
    if (!(x >= 0) || !std::isfinite(x)) throw wrong();
  law made{at->kind, numbers[0], at->numbers > 1 ? numbers[1] : 0};
  if (cut) made.least = numbers[2], made.most = numbers[3];
  if (made.least > made.most || (made.kind == law::shape::uniform && made.a > made.b)) throw wrong();
  if (made.kind == law::shape::pareto && made.b == 0) throw wrong();
  return made;
}

} // namespace troupe::sim
