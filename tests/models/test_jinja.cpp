// SPDX-License-Identifier: Apache-2.0
// The template interpreter against Jinja2's answers, its bounds, its error lines, and where text came from.
#include "models/jinja/json_value.hpp"
#include "models/jinja/template.hpp"
#include "tests/growth.hpp"
#include "tests/models/allocation_meter.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::models;
namespace json = boost::json;

namespace {

std::tm noon() {
  std::tm t{};
  t.tm_year = 126;
  t.tm_mon = 10;
  t.tm_mday = 29;
  t.tm_hour = 12;
  t.tm_wday = 0;
  t.tm_yday = 332;
  return t;
}

result<jinja::rendered_text>
render(std::string_view source, const json::value& context, const jinja::limits& bounds = {}) {
  auto compiled = jinja::compiled_template::compile(source);
  if (!compiled) return compiled.error();
  jinja::heap values;
  auto variables = jinja::from_json(values, context);
  if (!variables) return variables.error();
  return compiled->render(variables->as_dict(), noon(), bounds);
}

std::string text_of(std::string_view source, const json::value& context = json::object()) {
  auto out = render(source, context);
  if (!out) BOOST_FAIL(out.error().message);
  return out->text;
}

std::string error_of(
    std::string_view source, const json::value& context = json::object(), const jinja::limits& bounds = {}) {
  auto out = render(source, context, bounds);
  if (out) BOOST_FAIL("rendered: " << out->text.substr(0, 100));
  BOOST_TEST((out.error().code == errc::bad_template));
  return out.error().message;
}

std::string repeated(std::string_view unit, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += unit;
  return out;
}

/// The untrusted parts of what a template wrote, each in brackets.
std::string marked(std::string_view source, const json::value& context) {
  auto out = render(source, context);
  if (!out) BOOST_FAIL(out.error().message);
  std::string text;
  std::size_t at = 0;
  for (const text_span& span : out->untrusted) {
    text += out->text.substr(at, span.begin - at);
    text += '[';
    text += out->text.substr(span.begin, span.end - span.begin);
    text += ']';
    at = span.end;
  }
  text += out->text.substr(at);
  return text;
}

} // namespace

BOOST_AUTO_TEST_SUITE(jinja_)

BOOST_AUTO_TEST_CASE(renders_and_fails_as_jinja2_does) {
  const auto folder = std::filesystem::path(TROUPE_TEST_DATA).parent_path() / "models";
  const json::value all = json::parse(models::test::read_file(folder / "jinja_cases.json"));
  for (const auto& c : all.at("cases").as_array()) {
    const std::string_view source = c.at("template").as_string();
    const auto got = render(source, all.at("context"));
    BOOST_TEST_CONTEXT(source) {
      if (const auto* text = c.as_object().if_contains("text")) {
        BOOST_TEST_CONTEXT((got ? "" : got.error().message)) BOOST_REQUIRE(got.has_value());
        BOOST_TEST(got->text == std::string_view(text->as_string()));
      } else {
        BOOST_TEST_CONTEXT((got ? got->text : "") << " / " << c.at("error")) BOOST_TEST(!got.has_value());
      }
    }
  }
}

/// CPython's address is another each time; ours stands for it, so that lengths and words are the same.
BOOST_AUTO_TEST_CASE(a_method_that_is_not_called_is_written_as_python_does) {
  BOOST_TEST(text_of("{{ {}.items }}") == "<built-in method items of dict object at 0x7f0000000000>");
  BOOST_TEST(text_of("{{ 'x'.upper|wordcount }}") == "9");
}

BOOST_AUTO_TEST_CASE(errors_name_line_and_reason) {
  BOOST_TEST(error_of("a\nb\n{{ raise_exception('no') }}") == "template line 3: no");
  BOOST_TEST(
      error_of("\n{{ x.y.z }}", {{"x", json::object()}}) ==
      "template line 2: 'dict object' has no attribute 'y'");
  BOOST_TEST(error_of("{{ nosuch() }}") == "template line 1: 'nosuch' is undefined");
  BOOST_TEST(
      error_of("{% if x %}\n{% for %}") ==
      "template line 2: expected token 'name', got 'end of statement block'");
  BOOST_TEST(error_of("\n\n{{ 1 + }}") == "template line 3: unexpected 'end of print statement'");
  BOOST_TEST(error_of("\n{% include 'x' %}").starts_with("template line 2: the tag 'include'"));
  BOOST_TEST(error_of("\n{{ 'a'|nosuch }}") == "template line 2: No filter named 'nosuch'.");
  BOOST_TEST(
      error_of("{% macro m() %}\n\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}") ==
      "template line 3: division by zero");
  BOOST_TEST(error_of("a\n\xFF") == "template line 2: not valid UTF-8");
}

BOOST_AUTO_TEST_CASE(integers_are_64_bits_and_overflow_is_an_error) {
  BOOST_TEST(text_of("{{ 9223372036854775807 - 1 }}") == "9223372036854775806");
  for (const std::string_view source :
       {"{{ 9223372036854775807|round(-1) }}", "{{ 9223372036854775807 + 1 }}",
        "{{ 9223372036854775807 * 2 }}", "{{ 2 ** 63 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ 9223372036854775808 }}"}) {
    BOOST_TEST_CONTEXT(source) BOOST_TEST(error_of(source).find("64 bits") != std::string::npos);
  }
  BOOST_TEST(text_of("{{ (-9223372036854775807 - 1) % -1 }}") == "0");
  BOOST_TEST(text_of("{{ 1 ** 9223372036854775807 }}{{ 2 ** 62 }}") == "14611686018427387904");
}

BOOST_AUTO_TEST_CASE(methods_that_change_a_list_or_a_dict_are_refused_as_in_transformers) {
  const json::value context{{"l", {1, 2}}, {"d", {{"a", 1}, {"update", 2}}}};
  for (const std::string_view name :
       {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}) {
    const std::string why =
        "template line 1: access to attribute '" + std::string(name) + "' of 'list' object is unsafe.";
    for (const std::string_view list : {"l", "[1]", "l[:]"})
      BOOST_TEST(error_of("{{ " + std::string(list) + "." + std::string(name) + "() }}", context) == why);
    BOOST_TEST(error_of("{{ (l|attr('" + std::string(name) + "'))() }}", context) == why);
  }
  for (const std::string_view name : {"clear", "pop", "popitem", "setdefault", "update"})
    for (const std::string_view dict : {"d", "{}", "dict(d)"})
      BOOST_TEST(
          error_of("{{ " + std::string(dict) + "." + std::string(name) + "() }}", context) ==
          "template line 1: access to attribute '" + std::string(name) + "' of 'dict' object is unsafe.");
  // Undefined until it is used; a key of that name is found as a key.
  BOOST_TEST(text_of("{{ l.append }}{{ l.append is defined }}{{ d['update'] }}", context) == "False2");
}

BOOST_AUTO_TEST_CASE(a_cycle_cannot_be_spelled_or_compared_without_end) {
  const std::string cycle = "{% set n = namespace() %}{% set n.x = [n] %}";
  BOOST_TEST(text_of(cycle + "{{ n.x|length }}") == "1"); // harmless by itself
  BOOST_TEST(error_of(cycle + "{{ n.x }}").find("deeper than allowed") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(steps_memory_output_and_depth_are_bounded) {
  const json::value context{{"l", {1, 2, 3}}, {"s", "abc"}};
  jinja::limits few;
  few.steps = 1000;
  BOOST_TEST(
      error_of("{% for i in range(10000) %}{{ i }}{% endfor %}", context, few).find("more steps") !=
      std::string::npos);
  jinja::limits small;
  small.memory_bytes = 100'000;
  BOOST_TEST(error_of("{{ 'ab' * 100000 }}", context, small).find("more memory") != std::string::npos);
  BOOST_TEST(error_of("{{ [0] * 9223372036854775807 }}", context).find("more memory") != std::string::npos);
  BOOST_TEST(
      error_of("{{ 'x'.center(9223372036854775807) }}", context).find("more memory") != std::string::npos);
  BOOST_TEST(
      error_of(
          "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
          context, small)
          .find("more memory") != std::string::npos);
  jinja::limits narrow;
  narrow.output_bytes = 10;
  BOOST_TEST(error_of("{{ 'ab' * 6 }}", context, narrow).find("output is longer") != std::string::npos);
  BOOST_TEST(
      error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("deeper than allowed") !=
      std::string::npos);
  BOOST_TEST(error_of("{{ range(1000000)|length }}").find("Range too big") != std::string::npos);
  // 2^40 list ends behind 40 names: spelling them is bounded, building is not needed.
  std::string twins = "{% set x = [] %}";
  for (int i = 0; i < 40; ++i) twins += "{% set x = [x, x] %}";
  BOOST_TEST(error_of(twins + "{{ x|tojson }}").find("more") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(blocks_that_call_themselves_or_each_other_are_bounded) {
  const std::string self = "{% block b %}{% if n %}x{{ self.b() }}{% endif %}{% endblock %}";
  BOOST_TEST(error_of(self, {{"n", 1}}).find("nests deeper") != std::string::npos);
  BOOST_TEST(text_of(self, {{"n", 0}}).empty());
  // Every block calls the next one twice.
  std::string tree;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{{ self.b" + std::to_string(i + 1) + "() }}";
    tree += "{% block b" + std::to_string(i) + " %}{% if n %}" + next + next + "{% endif %}{% endblock %}";
  }
  tree += "{% block b40 %}{% endblock %}{{ self.b0() }}";
  BOOST_TEST(error_of(tree, {{"n", 1}}).find("more ") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_size_that_no_number_of_bytes_holds_is_more_memory_than_allowed) {
  for (const std::string_view source :
       {"{{ [1]|batch(1152921504606846976, 0)|list }}", "{{ [1]|batch(9223372036854775807, 0)|list }}",
        "{{ [1]|slice(9223372036854775807)|list }}", "{{ 'x'.center(4611686018427387905, '😀') }}",
        "{{ 'x'.ljust(9223372036854775807, 'é') }}"}) {
    BOOST_TEST_CONTEXT(source) BOOST_TEST(error_of(source).find("than allowed") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(filters_that_apply_filters_nest_only_so_deep) {
  const std::string deep =
      "{% set x = namespace(l=[1]) %}{% for i in range(900) %}{% set x.l = [x.l] %}{% endfor %}";
  BOOST_TEST(error_of(deep + "{{ x.l|map(*(['map'] * 900))|list }}").find("deeper") != std::string::npos);
  BOOST_TEST(
      error_of("{{ (['ab'] * 90000)|map('map', *(['map'] * 700 + ['upper']))|list }}").find("more memory") !=
      std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_render_without_memory_says_so) {
  auto compiled =
      jinja::compiled_template::compile("{% for x in l %}{{ {x: [x]|map('string')|list} }}{% endfor %}");
  BOOST_REQUIRE(compiled.has_value());
  jinja::heap values;
  auto variables =
      jinja::from_json(values, json::value{{"l", {"a", 1, "some longer text that is no small string"}}});
  BOOST_REQUIRE(variables.has_value());
  bool done = false;
  for (std::uint64_t n = 0; !done; ++n) {
    troupe::test::fail_allocation_after(n);
    auto out = compiled->render(variables->as_dict(), noon());
    done = !troupe::test::allocation_failed();
    if (!done) BOOST_REQUIRE((!out.has_value() && out.error().code == errc::no_memory));
  }
}

BOOST_AUTO_TEST_CASE(deep_and_long_sources_are_refused_not_crashed_on) {
  constexpr std::size_t n = 100'000;
  for (const std::string_view unit :
       {"(", "[", "{", "{1:", "not ", "-", "f(", "x[", "1 if ", "1 or (", "'a'|f("}) {
    BOOST_TEST_CONTEXT(unit) BOOST_TEST(error_of("{{ " + repeated(unit, n) + " }}").size() < 300u);
  }
  BOOST_TEST(error_of("{{ 1" + repeated(" + 1", n) + " }}").find("deeper") != std::string::npos);
  BOOST_TEST(error_of("{{ x" + repeated(".a", n) + " }}").find("deeper") != std::string::npos);
  BOOST_TEST(error_of("{{ x" + repeated("|e", n) + " }}").find("deeper") != std::string::npos);
  BOOST_TEST(error_of(repeated("{% if 1 %}", n)).find("deeper") != std::string::npos);
  BOOST_TEST(
      error_of(std::string(jinja::max_template_bytes + 1, 'a')).find("longer than") != std::string::npos);
  BOOST_TEST(text_of("{{ 'a'" + repeated(" ~ 'b'", 2000) + " }}").size() == 2001u); // flat: no depth
  BOOST_TEST(text_of("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% else %}x{% endif %}") == "x");
}

BOOST_AUTO_TEST_CASE(compiling_takes_near_linear_time) {
  const auto many_names = [](std::size_t bytes) {
    std::string many;
    for (int i = 0; many.size() + 100 < bytes; ++i)
      many += "{% if a" + std::to_string(i) + " %}{% set b" + std::to_string(i) + " = 1 %}{% endif %}";
    BOOST_TEST(text_of(many).empty());
  };
  const auto many_blocks = [](std::size_t bytes) {
    std::string many;
    for (std::size_t i = 0; many.size() < bytes; ++i) {
      const std::string name = std::to_string(i);
      many += "{% block b" + name + " %}{% set c" + name + " = 1 %}{% endblock %}";
    }
    BOOST_TEST(text_of(many).empty());
  };
  BOOST_TEST(troupe::test::growth(jinja::max_template_bytes / 4, many_names) < troupe::test::near_linear);
  BOOST_TEST(troupe::test::growth(jinja::max_template_bytes / 4, many_blocks) < troupe::test::near_linear);
  for (const std::string_view unit :
       {"{", "{#", "{%", "{{", "  ", "\n", "{{'", "{%raw%}", "{##}", "{%if 1%}{%endif%}", "{{1}}"}) {
    const auto compile = [&](std::size_t bytes) {
      (void)render(repeated(unit, bytes / unit.size()), json::object());
    };
    BOOST_TEST_CONTEXT(unit)
    BOOST_TEST(troupe::test::growth(jinja::max_template_bytes / 4, compile) < troupe::test::near_linear);
  }
}

BOOST_AUTO_TEST_CASE(rendering_takes_time_in_proportion_to_the_steps_it_counts) {
  const auto seconds = [](const std::string& source) {
    return troupe::test::cpu_seconds([&] { (void)render(source, json::object()); });
  };
  // Plain steps, as many as there may be.
  const double plain =
      seconds("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}");
  std::string many_names;
  for (int i = 0; i < 40'000; ++i) many_names += "{% set n" + std::to_string(i) + " = 1 %}";
  for (const std::string& source :
       {many_names + "{% for i in range(90000) %}{{ n0 }}{{ n39999 }}{% endfor %}",
        std::string("{% set a = 'a' * 4000000 %}{% for i in range(9) %}{{ a.find('a' * 2000000 ~ 'b') }}{% "
                    "endfor %}"),
        std::string("{% set a = 'é' * 4000000 %}{% for i in range(90000) %}{{ a[-1] }}{% endfor %}"),
        std::string("{% set a = range(90000)|list %}{% for i in a %}{{ i in a }}{% endfor %}")})
    BOOST_TEST_CONTEXT(source.substr(source.size() - 60)) BOOST_TEST(seconds(source) < 30 * plain);
}

BOOST_AUTO_TEST_CASE(the_steps_of_a_key_are_its_parts) {
  const auto too_many = [](const std::string& source) {
    BOOST_TEST_CONTEXT(source.substr(0, 80) << source.substr(std::max<std::size_t>(source.size(), 80) - 80))
    BOOST_TEST(error_of(source).find("more steps") != std::string::npos);
  };
  // 2^30 leaves behind 30 names.
  std::string twins = "{% set x = (1, 2) %}";
  for (int i = 0; i < 29; ++i) twins += "{% set x = (x, x) %}";
  too_many(twins + "{{ {x: 1} }}");
  too_many(twins + "{{ {1: 1}.get(x) }}");
  too_many(twins + "{{ x in {1: 1} }}");
  too_many(twins + "{{ {1: 1}[x] }}");
  too_many(twins + "{{ [x]|unique|list }}");
  too_many(twins + "{{ dict([(x, 1)]) }}");
  too_many(twins + "{{ x is filter }}");
  // Long keys, again and again.
  const std::string text = "{% set a = 'a' * 10000000 %}{% set d = {a: 1} %}";
  for (const std::string_view use :
       {"{{ d.get(a) }}", "{{ a in d }}", "{{ d[a] }}", "{% set x = d.copy() %}", "{% set x = dict(d) %}",
        "{{ d == {a: 1} }}", "{{ d|attr(a) }}", "{{ a.startswith(a) }}",
        "{{ a.removeprefix(a) is defined }}"}) {
    too_many(text + "{% for i in range(90000) %}" + std::string(use) + "{% endfor %}");
  }
  too_many("{% set g = ([0] * 300000)|map('string') %}{% for i in range(90000) %}{{ g|first }}{% endfor %}");
}

BOOST_AUTO_TEST_CASE(keys_without_an_order_are_found_quickly) {
  // As many functions, and NaNs, as there are places: with one hash for all, the work is their number
  // squared.
  const auto functions = [](std::size_t n) {
    const std::string count = std::to_string(n);
    BOOST_TEST(text_of("{{ (['a'] * " + count + ")|map(attribute='upper')|unique|list|length }}") == count);
  };
  const auto nans = [](std::size_t n) {
    const std::string source =
        "{{ ((['nan'] * " + std::to_string(n) + ")|map('float'))|unique|list|length }}";
    BOOST_TEST(text_of(source) == "1");
  };
  BOOST_TEST(troupe::test::growth(60'000, functions) < troupe::test::near_linear);
  BOOST_TEST(troupe::test::growth(60'000, nans) < troupe::test::near_linear);
}

BOOST_AUTO_TEST_CASE(a_text_of_many_origins_is_taken_apart_in_near_linear_time) {
  const auto apart = [](std::size_t parts) {
    json::array l(parts, "a");
    const json::value context{{"l", std::move(l)}};
    BOOST_TEST(text_of("{{ (l|join('-')).split('-')|length }}", context) == std::to_string(parts));
    BOOST_TEST(text_of("{% for c in l|join('-') %}{% endfor %}", context).empty());
  };
  BOOST_TEST(troupe::test::growth(40'000, apart) < troupe::test::near_linear);
}

BOOST_AUTO_TEST_CASE(wrapping_words_takes_near_linear_time) {
  for (const std::string_view unit : {"a", "-", "ab-", " ", "a ", "\u00a0", "\u00a0a", "a--"}) {
    for (const std::string_view width : {"1", "70"}) {
      const auto wrap = [&](std::size_t bytes) {
        const std::string source = "{{ (u|wordwrap(" + std::string(width) + "))[-1] }}";
        BOOST_TEST(text_of(source, {{"u", repeated(unit, bytes / unit.size()) + "\u00a0-x"}}) == "x");
      };
      BOOST_TEST_CONTEXT("'" << unit << "' " << width)
      BOOST_TEST(troupe::test::growth(96'000, wrap) < troupe::test::near_linear);
    }
  }
}

BOOST_AUTO_TEST_CASE(lipsum_is_refused_by_name) {
  BOOST_TEST(error_of("{{ lipsum() }}").find("'lipsum' is not supported") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_integer_that_fits_no_value_is_named_by_its_keys) {
  jinja::heap values;
  const auto refused = jinja::from_json(values, json::parse(R"({"a": [1, {"b": 9223372036854775808}]})"));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message == "an integer in \"a.b\" does not fit 64 bits with a sign");
  BOOST_TEST(refused.error().param == "a.b");
}

BOOST_AUTO_TEST_CASE(text_from_the_request_stays_marked_through_operations) {
  const json::value context{{"u", " <|x|> "}, {"l", {"a", "b"}}, {"n", 5}};
  const auto check = [&](std::string_view source, std::string_view want) {
    BOOST_TEST_CONTEXT(source) BOOST_TEST(marked(source, context) == want);
  };
  check("<{{ u }}>", "<[ <|x|> ]>");
  check("{{ '<' + u + '>' }}", "<[ <|x|> ]>");
  check("{{ '<' ~ u ~ n }}", "<[ <|x|> ]5");
  check("{{ u|trim }}{{ u.strip() }}", "[<|x|><|x|>]");
  check("{% block b %}<{{ u }}>{% endblock %}{{ self.b()|trim('<>') }}", "<[ <|x|> ]>[ <|x|> ]");
  check("{% for x in l %}{% block b scoped %}{{ x }}.{% endblock %}{% endfor %}", "[a].[b].");
  check("{{ u|wordwrap(2) }}", "[ <]\n[|x]\n[|>]");
  check("{{ 'ab cd'|wordwrap(3, wrapstring=u) }}", "ab[ <|x|> ]cd");
  check("{{ u[2:4] }}.{{ u[::-1] }}", "[|x].[ >|x|< ]");
  check("{{ u.split('|')[0] }}-{{ u.split('|')|join('+') }}", "[ <]-[ <]+[x]+[> ]");
  check("{{ l|join('</s>') }}", "[a]</s>[b]");
  check("{{ u|replace('x', '</s>') }}", "[ <|]</s>[|> ]");
  check("{{ '</s>X'|replace('X', u) }}", "</s>[ <|x|> ]");
  check("{{ u|upper }}{{ 'a'|upper }}", "[ <|X|> ]A");
  check("{{ l|tojson }}", "[\"[a]\", \"[b]\"]");
  check("{% set x %}<{{ u }}>{% endset %}{{ x|trim }}", "<[ <|x|> ]>");
  check("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(u) }}", "([ <|x|> ])");
  check("{{ '%s!' % u }}", "[ <|x|> ]!");
  check("{% filter trim %} {{ u }} !{% endfilter %}", "[<|x|> ] !");
  check("{{ 'role' if u else '' }}{{ n }}", "role5");
  check("{{ u|e }}", "[ &lt;|x|&gt; ]");
}

BOOST_AUTO_TEST_CASE(strftime_now_formats_the_time_it_is_given) {
  BOOST_TEST(
      text_of("{{ strftime_now('%d %b %Y %H:%M:%S %A %-d %f%%') }}") ==
      "29 Nov 2026 12:00:00 Sunday 29 000000%");
  BOOST_TEST(
      error_of("{{ strftime_now('" + std::string(2000, 'x') + "') }}").find("longer than") !=
      std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_compiled_template_renders_many_times) {
  auto compiled = jinja::compiled_template::compile(
      "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}");
  BOOST_REQUIRE(compiled.has_value());
  for (int round = 0; round < 3; ++round) {
    jinja::heap values;
    auto variables = jinja::from_json(values, json::value{{"l", {round, 1}}});
    BOOST_REQUIRE(variables.has_value());
    auto out = compiled->render(variables->as_dict(), noon());
    BOOST_REQUIRE(out.has_value());
    BOOST_TEST(out->text == std::to_string(round + 1));
  }
}

BOOST_AUTO_TEST_CASE(a_number_that_no_value_holds_is_a_bad_request) {
  jinja::heap values;
  auto v = jinja::from_json(values, json::parse("[18446744073709551615]"));
  BOOST_REQUIRE(!v.has_value());
  BOOST_TEST((v.error().code == errc::bad_request));
}

BOOST_AUTO_TEST_SUITE_END()
