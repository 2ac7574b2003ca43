#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes jinja_cases.json: templates of our own rendered by Jinja2 3.1 with the conventions of chat templates.

Usage: python3 make_jinja_cases.py > jinja_cases.json   (needs the PyPI package Jinja2, 3.1.6 made the committed file)
"""
import copy
import datetime
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %} ... {% endgeneration %}: transparent, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 11, 29, 12, 0, 0).strftime(f)
    return env


CONTEXT = {
    "s": "Hello, World", "t": "  padded \n", "u": "Grüße ǅ ß ﬁ 😀 ΟΔΟΣ", "e": "", "n": 3, "z": 0, "neg": -7, "f": 2.5,
    "big": 1e20, "tiny": 1e-7, "b": True, "c": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "el": [],
    "mixed": [1, "a", None, 2.5, True, [1, 2], {"k": "v"}], "d": {"b": 1, "a": 2, "C": 3}, "ed": {},
    "nested": {"x": {"y": [10, 20, {"z": "deep"}]}, "items": [1], "get": "got"},
    "msgs": [{"role": "user", "content": "Hi <b>", "n": 1}, {"role": "assistant", "content": "Yo", "tool": None, "n": 2},
             {"role": "user", "content": "", "n": 0}],
    "q": "it's \"q\" \\ \t\x07é\u200b", "num": "42", "fl": "3.75", "neg_s": " -12 ", "nl": "a\nb\r\nc\n\nd",
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}],
}

FILTERS = """trim upper lower title capitalize length list string first last sort unique|list reverse|list join join(",")
default("D") default("D",true) int float abs round round(1) tojson tojson(indent=2) tojson(indent=1,sort_keys=true)
items|list dictsort e safe replace("l","L") replace("a","",1) indent indent(2,true) indent(3,blank=true) select|list
reject|list select("string")|list reject("none")|list map("upper")|list map(attribute="role")|list
map(attribute="role",default="x")|join("-") selectattr("role","equalto","user")|list rejectattr("tool")|list
selectattr("n","gt",1)|list batch(2)|list slice(2)|list sum min max wordcount center(20) truncate(8) truncate(6,true)
groupby("role") sort(attribute="role") sort(reverse=true) dictsort(by="value") dictsort(reverse=true) count
int(base=16) int("x") round(method="floor") round(0,"ceil") trim("Hd") e|upper forceescape
tojson(separators=(",",":")) tojson(true) nosuch upper(1) wordwrap wordwrap(5) wordwrap(3,false) wordwrap(7,true,"/")
wordwrap(width=4,break_on_hyphens=false) wordwrap(0)""".split()

TESTS = """defined undefined none string number integer float mapping iterable sequence boolean true false odd even
divisibleby(2) eq(3) equalto("a") ne(3) in([1,2,3]) in("Hello") lower upper callable gt(1) lt(2) escaped nosuch""".split()
METHODS = """strip() lstrip() rstrip() strip("H") split() split(",") split("l",1) rsplit("l",1) rsplit() split(none,1)
rsplit(none,1) splitlines() upper() lower() title() capitalize() swapcase() startswith("H") endswith(("d","x"))
replace("o","0") replace("","-") replace("l","",1) find("l") rfind("l") count("l") find("l",4) index("zz") join(ls)
join(mixed) items()|list keys()|list values()|list get("a") get("zz") get("zz",5) isdigit() isalpha() isupper()
islower() isspace() zfill(15) center(15) ljust(15,".") rjust(15) partition(",") rpartition("o") removeprefix("He")
removesuffix("ld") x y z.q role nosuch() isascii() istitle()
isnumeric() casefold() expandtabs() expandtabs(3) isprintable() isprintable(1)""".split()
OPERATORS = "+ - * / // % ** ~ == != < > <= >= in".split()
SUBSCRIPTS = ['0', '-1', '1:', '::-1', ':-1', '::2', '-2:', '5', '1:10:3', ':', '"a"', '"role"', 'none:2', '3:1:-1', '"items"', 'n']

TEMPLATES = [
    # White space around tags.
    "a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  {%- if true %}\n  b\n  {%- endif %}\nc\n", "a\n  {%+ if true +%}\n  b{% endif %}\n\n",
    "a  {{- 1 -}}  b", "  {{ 1 }}  \n", "x {#- c -#} y", "x\n  {# c #}\ny", "{# a #}\n{# b #}\nz", "\n{% set x = 1 %}\n{{ x }}\n",
    "{% raw %}{{ x }} {% if %}{% endraw %}\n!", "  {% raw -%}  \n {{ y }}  {%- endraw %}  z", "a\r\nb\rc{{ '\r\n' }}d\r\n", "{{ 1 }}\n\n", "\t{% if 1 %}x{% endif %}",
    "{% for i in l %}\n- {{ i }}\n{% endfor %}\nend", "{%for i in l-%} {{i}} {%-endfor%}", "{ {% if 1 %}%{% endif %} } }} %}", "a{%- set x = 1 +%}\n b{{+ x }}",
    # Scopes.
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(v=0) %}{% for i in l %}{% set ns.v = ns.v + i %}{% endfor %}{{ ns.v }}", "{% if b %}{% set y = 5 %}{% endif %}{{ y }}",
    "{% if c %}{% set y = 5 %}{% endif %}{{ y }}", "{% for i in l %}{{ loop.index0 }}{% for j in ls %}{{ loop.index }}{% endfor %}{{ loop.last }}{% endfor %}",
    "{% macro m(x) %}{{ x }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m(1) }}", "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 9 %}{{ m() }}",
    "{% for i in l %}{{ n }}{% endfor %}{% set n = 9 %}{{ n }}", "{{ n }}{% for i in l %}{{ n }}{% endfor %}{% set n = 9 %}{{ n }}",
    "{% if b %}{% set n = 8 %}{% endif %}{% for i in l %}{{ n }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ q1 }}{% endfor %}{% set q1 = i %}{{ q1 }}{% endfor %}",
    "{% set n = n + 1 %}{{ n }}{% for i in l %}{% set n = n + i %}{{ n }}{% endfor %}{{ n }}", "{% with n = 1, m = n %}{{ n }}{{ m }}{% endwith %}{{ n }}",
    "{% set x %}a{% set inner = 1 %}b{% endset %}{{ x }}{{ inner }}", "{% set x | upper | trim %} a b {% endset %}[{{ x }}]", "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% generation %}{% set g = 1 %}in{{ g }}{% endgeneration %}out{{ g }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", "{% set a, b2 = 1, 2 %}{{ a }}{{ b2 }}", "{% set a, b2 = l %}",
    # Loops.
    "{% for i in l %}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}",
    "{% for i in el %}x{% else %}none{% endfor %}", "{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% else %}no{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}no{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% break %}{% else %}else{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for i in nil %}{% endfor %}", "{% for i in undef %}x{% else %}e{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ range(5, 0, -2)|list }}",
    "{% for t in tree recursive %}{{ t.v }}({{ loop(t.kids) }}){{ loop.depth }}{% endfor %}", "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}", "{% break %}",
    # Macros and calls.
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=5, a=4) }}|{{ m() }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, z=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('p') %}in {{ s }}{% endcall %}",
    "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each(ls) %}{{ i }}:{{ v }} {% endcall %}", "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}", "{{ s() }}", "{{ undef() }}", "{{ d.nosuch() }}",
    # Expressions.
    "{{ 'a' 'b' }}{{ \"q\\n\\t\\x41\\u00e9\\\"\\'\\\\\" }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}", "{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 7 // -2 }}{{ 7 % -2 }}{{ -7.5 // 2 }}{{ -7.5 % 2 }}", "{{ 1 / 3 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 100.0 }} {{ 1.5e300 * 1e10 }} {{ -0.0 }}",
    "{{ 'x' if b }}{{ 'x' if c }}{{ 'x' if c else 'y' if c else 'z' }}", "{{ not b or c and b }}{{ b and 'x' or 'y' }}{{ nil or e or 'last' }}", "{{ [1, 'a', (1,), (), {'k': none}, true] }}", "{{ 'a' in s }}{{ 1 in l }}{{ 'b' not in d }}{{ 'H' in undef }}",
    "{{ -1|abs }}{{ (-1)|abs }}{{ 1 + 2 ~ 3 }}{{ 'a' ~ 1 ~ none ~ true ~ undef }}", "{{ l[0] }}{{ l[-1] }}{{ l[9] }}{{ l.0 }}{{ d['a'] }}{{ d.a }}{{ d.zz }}", "{{ nested.x.y[2].z }}{{ nested.items }}{{ nested['items'] }}{{ nested.get('x').y[0] }}", "{{ undef.x }}", "{{ undef['x'] }}", "{{ undef + 1 }}", "{{ d.zz.y }}", "{{ l.zz.y }}", "{{ l[7].y }}", "{{ nil.x }}{{ n.x }}",
    "{{ '%s-%05.2f-%d-%%' % ('a', 2.345, 7) }}{{ '%(k)s' % {'k': 1} }}", "{{ '{} {1}'.format(1, 2) }}", "{{ '{} {} {x}'.format(1, 'b', x=s) }}", "{{ s|replace('o', '') ~ '!' }}", "{{ '<b>'|e }}{{ '<b>'|safe + '<i>' }}{{ ('<' ~ '>'|safe)|e }}", "{{ dict(a=1, b=2) }}{{ dict([('x', 1)]) }}{{ namespace(a=1) is defined }}",
    "{{ [1, 2] == [1, 2.0] }}{{ {'a': 1} == {'a': 1} }}{{ (1, 2) == [1, 2] }}{{ 1 == true }}{{ '1' == 1 }}{{ none == undef }}", "{{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{{ {[1]: 2} }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ [1] + 'a' }}", "{{ 1 / 0 }}", "{{ 'a' * 3 }}{{ 3 * [0] }}{{ 'a' * -1 }}", "{{ 'a' < 1 }}", "{{ [1, 2] < [1, 3] }}",
    "{{ strftime_now('%d %b %Y %H:%M:%S %A %B %j %y %p %I') }}", "{{ raise_exception('no ' ~ s) }}", "a\n\n{{ 1 +\n raise_exception('x') }}", "{{ nested|tojson(indent=4) }}", "{{ q|tojson }}{{ u|tojson(ensure_ascii=true) }}", "{{ undef|tojson }}", "{{ q }}{{ [q] }}", "{{ {'a': undef} }}", "{{ mixed|tojson }}", "{{ d.items() }}{{ d.keys() }}{{ d.values() }}",
    "{{ ls|sort }}{{ ls|sort(case_sensitive=true) }}{{ mixed|sort }}", "{{ msgs|map(attribute='role')|unique|list }}", "{{ msgs|selectattr('tool', 'defined')|list|length }}", "{{ msgs|groupby('role') }}", "{{ msgs|sum(attribute='n') }}", "{{ (msgs|last).content|length }}", "{{ msgs|map(attribute='x.y', default=1)|list }}",
    "{{ 'abc'|first }}{{ 'abc'|last }}{{ el|first }}{{ el|last }}", "{{ 'a b-c (d) it\\'s'|title }}{{ 'a b-c it\\'s'.title() }}", "{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 25|round(-1) }}{{ 2.1|round(0, 'ceil') }}{{ 42|round }}", "{{ ' 4_2 '|int }}{{ '0x1f'|int(base=16) }}{{ '4.9'|int }}{{ 'x'|int(5) }}{{ '1e3'|float }}{{ nil|int }}",
    # Loop controls inside blocks, and in the else of an inner loop.
    "{% for x in l %}{% for y in el %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in el %}{% else %}{% continue %}{% endfor %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l %}{% for y in l %}{% break %}{% else %}{% continue %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in l %}{% set y %}a{% if x == 1 %}{% break %}{% endif %}b{% endset %}{{ x }}{{ y }}{% endfor %}",
    "{% for x in l %}{% set y %}a{% if x == 1 %}{% continue %}{% endif %}b{% endset %}{{ x }}{{ y }}{% endfor %}",
    "{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{{ x }}{% endfor %}",
    "{% for x in l %}{% filter upper %}a{% break %}b{% endfilter %}{{ x }}{% endfor %}!",
    "{% for x in l %}{% with %}{% set z %}{% break %}{% endset %}{% endwith %}{{ x }}{% endfor %}.",
    "{% for x in l %}{% for y in el recursive %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{{ m() }}{% endfor %}", "{% for x in el %}{% else %}{% break %}{% endfor %}",
    # Numbers at their edges.
    "{{ 0.5e400 }}{{ 0.0e400 }}{{ 1e-400 }}{{ 100.5e-400 }}", "{{ 1.5|round(400, 'floor') }}", "{{ 1.5|round(-400, 'ceil') }}", "{{ 1e300|round(300, 'ceil') }}", "{{ 1|round(308, 'floor') }}",
    "{{ (l|reverse) is filter }}{{ d.values() is test }}{{ (l|reverse) in d }}{{ {d.values(): 1}|length }}",
    "{% set g = l|reverse %}{{ {g: 1}[g] }}", "{{ d.keys() is filter }}",
    "{{ 'yes' if undef|reverse else 'no' }}{{ undef|reverse|list }}{{ 'yes' if el|reverse else 'no' }}",
    "{{ '%li|%hd|%5Lf|%-4ls|'|format(1, 2, 3.5, 'x') }}", "{{ '%l'|format(1) }}", "{{ '%hhd'|format(1) }}",
    "{{ -1|round(-1, 'ceil') }} {{ -0.5|round(0, 'ceil') }} {{ -0.5|round(0) }}",
    "{{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ 1350|round(-2) }} {{ neg|round(-1) }} {{ 5|round(-19) }} {{ 5|round(-400) }}", "{{ 9223372036854774507|round(-3) }}",
    "{{ 1.5|round(-400) }}{{ 1e-5|round(310) }}{{ 1e-5|round(400) }}", "{{ 1.7e308|round(-308) }}",
    "{{ ('1' + '0' * 400 + 'e-5')|float }}{{ ('0.' + '0' * 400 + '1e5')|float }}{{ ('0.' + '0' * 400 + '1')|float }}{{ '0.5E400'|float }}{{ '0e999'|float }}{{ '-1e999'|float }}",
    "{{ '5'.zfill(-9223372036854775807 - 1) }}{{ '-5'.zfill(-9223372036854775807 - 1) }}",
    "{{ 'aa'.replace('a', 'b', -9223372036854775807 - 1) }}{{ 'a,b'.split(',', -9223372036854775807 - 1) }}{{ 'a b'.split(none, -9223372036854775807 - 1) }}{{ 'a,b'.rsplit(',', -9223372036854775807 - 1) }}",
    # Keys.
    "{{ {(1, 2): 3}[(1, 2)] }}{{ range(1, 3) in {(1, 2): 3} }}", "{{ {1: 2}[[]] is defined }}", "{{ d.get([]) }}", "{{ {(1, [2]): 3} }}",
    "{{ [ls, l]|map('map', 'string')|map('list')|list }}",
    # Characters and format specifications.
    "{% for c in '²①٣½一Ⅷaǅ' %}{{ c.isdigit() }}{{ c.isdecimal() }}{{ c.isnumeric() }}{{ c.isalnum() }} {% endfor %}", "{{ 'Straße ﬁ ΣΑΣ İ'.casefold() }}",
    "{% for t in ['Ab Cd', 'aB', 'ǅa', 'A1B', 'A1b', '', '12'] %}{{ t.istitle() }}{% endfor %}", "{{ 'a\tbc\td\n\te\r\tf'.expandtabs() }}|{{ 'é\tb'.expandtabs(4) }}|{{ 'a\tb'.expandtabs(0) }}|{{ 'a\tb'.expandtabs(-1) }}",
    "{{ '{:.2f}|{:8.3e}|{:<8}|{:^9}|{:>5}|{:*^7}|{:é>4}'.format(2.675, 12345.678, 'ab', 'mid', 7, 'x', 'y') }}", "{{ '{:05d}|{:+d}|{: d}|{:x}|{:#X}|{:#06x}|{:b}|{:o}|{:,}|{:_x}'.format(42, 5, 5, 255, 255, 255, 5, 8, 1234567, 1048575) }}",
    "{{ '{:05}|{:<05}|{:05}|{:=+7.1f}|{:,.2f}|{:.0%}|{:G}|{:g}'.format('a', 7, -3, 2.25, 1234567.891, 0.5, 1e-10, 100000.0) }}", "{{ '{0:>4}{x!r:>6}{1!s:.2}'.format(1, 'abc', x='q') }}", "{{ '{:d}{:>6}{:.1f}'.format(true, true, 3) }}",
    "{{ '{:.3}'.format('abcdef') }}{{ '{:}'.format(1.5) }}{{ '{:10}'.format(1.5) }}{{ '{:f}'.format(-0.0) }}",
    "{{ '{:.3}|{:.3}|{:.3}|{:.0}|{:.1}|{:.2}|{:.17}|{:.4}|{:#.3}'.format(2.0, 12.0, 123.0, 2.0, 0.0, 0.0, 0.1, 0.00001234, 2.0) }}",
    "{{ '{:d}'.format(1.5) }}", "{{ '{:d}'.format('a') }}", "{{ '{:.2d}'.format(1) }}", "{{ '{:=5}'.format('a') }}", "{{ '{:-5}'.format('a') }}", "{{ '{:-5d}'.format(3) }}", "{{ '{:5}'.format(none) }}", "{{ '{:5}'.format(undef) }}", "{{ '{:5}'.format(l) }}", "{{ '{:s}'.format(1) }}", "{{ '{:,}'.format('a') }}", "{{ '{:,x}'.format(5) }}", "{{ '{:.}'.format(5.0) }}", "{{ '{:5qq}'.format(5) }}",
    # Groups have names; cyclers and joiners; parts of numbers.
    "{% for g in msgs|groupby('role') %}{{ g.grouper }}{{ g.list|length }}{{ g['list'][0].n }}{{ g[0] }}{{ g }}{% endfor %}", "{{ (msgs|groupby('role'))[0] == ('assistant', [msgs[1]]) }}", "{{ (msgs|groupby('role'))[0][:].grouper }}", "{{ msgs|groupby('role')|map(attribute='grouper')|join(',') }}", "{{ msgs|groupby('role')|map(attribute='list')|map('length')|list }}", "{{ ('a', 1).grouper }}", "{{ msgs|groupby('role')|tojson }}",
    "{% set c = cycler('a', 'b', n) %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.pos }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}{{ c.items }}{{ c is callable }}{{ c.nope }}", "{{ cycler() }}", "{{ cycler(a=1) }}", "{{ cycler(1)() }}", "{% set c = cycler(1, 2) %}{{ c == c }}{{ c == cycler(1, 2) }}{{ {c: 3}[c] }}", "{{ cycler(1)|list }}", "{{ cycler(1)|tojson }}",
    "{% set j = joiner() %}{% for x in ls %}{{ j() }}{{ x }}{% endfor %}|{{ j.sep }}{{ j.used }}", "{% set j = joiner('|') %}{{ j() }}{{ j() }}{{ j() }}{{ j is callable }}", "{% set j = joiner(sep=5) %}{{ j() }}{{ j() + 1 }}", "{{ joiner(1, 2) }}", "{{ joiner()(1) }}",
    "{{ (5).real }}{{ (5).imag }}{{ true.numerator }}{{ n.denominator }}{{ f.real }}{{ f.imag }}", "{{ f.numerator }}",
    # Digits of any script.
    "{{ '٣٤'|int }} {{ '-५६'|int }} {{ '１２.５'|float }} {{ '１２.５'|int }} {{ '\u3000\u0664\u2003'|int }} {{ '𝟘𝟙𝟚𝟛'|int }} {{ '𝟿𝟶'|int(base=16) }} {{ '١_٢'|int }} {{ '²'|int(7) }} {{ '١x'|int(7) }} {{ '\x1c5'|int(7) }} {{ '\x1c٥'|int(7) }} {{ '٥\x85'|int(7) }} {{ '߁e٢'|float }}",
    # Names that a template may not give.
    "{% for loop in l %}{% endfor %}", "{% for a, loop in d.items() %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for x in l %}{% set loop %}{% endset %}{% endfor %}", "{% for x in el %}{% macro m() %}{% set a, loop = 1, 2 %}{% endmacro %}{% endfor %}", "{% for x in el %}{% else %}{% set loop = 1 %}{% endfor %}", "{% set loop = 1 %}{{ loop }}", "{% for x in l %}{% with loop = 1 %}{{ loop }}{% endwith %}{% endfor %}", "{% for x in l %}{% macro m(loop) %}{{ loop }}{% endmacro %}{{ m(x) }}{% endfor %}", "{% macro loop() %}x{% endmacro %}{{ loop() }}", "{% for x in l %}{% endfor %}{% set loop = 2 %}{{ loop }}",
    "{% macro f(a, a) %}{% endmacro %}", "{% macro f(a, b, a=1) %}{% endmacro %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, a) f() %}{% endcall %}", "{% if c %}{% macro f(a, a) %}{% endmacro %}{% endif %}",
    "{% macro f(caller) %}{{ caller }}{% endmacro %}", "{% macro f(caller) %}x{% endmacro %}{{ f(1) }}", "{% macro f(caller=1) %}{{ caller }}{% endmacro %}{{ f() }}{{ f(2) }}",
    # What changes a list or a dict.
    "{{ l.append(1) }}", "{{ [].append }}|{{ [].append is defined }}", "{% set x = {} %}{% set _ = x.update(a=1) %}", "{{ {'pop': 1}['pop'] }}", "{{ {'pop': 1}.pop }}", "{{ l|attr('sort') }}", "{{ l.index(1) }}", "{{ l.copy() }}", "{{ d.copy() }}",
    # %-formatting.
    "{{ '%c%c%c|%3c|%-3c|%05c'|format(65, 'é', 0x1F600 if false else 128512, 'x', 'y', 'z') }}", "{{ '%c' % -1 }}", "{{ '%c' % 1114112 }}", "{{ '%c' % 'ab' }}", "{{ '%c' % 1.0 }}", "{{ '%c' % true == '\x01' }}",
    "{{ '%a|%8a|%.3a' % ('é', 'ü😀', 'ab') }}", "{{ '%a' % [['é']] }}", "{{ '%r' % 'é' }}", "{{ '%*d|%-*d|%*d|%.*f|%*.*f' % (5, 42, 5, 42, -5, 42, 2, 3.14159, 8, 1, 2.55) }}", "{{ '%*d' % 5 }}", "{{ '%*d' % ('a', 5) }}", "{{ '%.*f' % (-1, 2.5) }}", "{{ '%*s|' % (4, 'é') }}",
    "{{ '%(a)*d' % {'a': 1} }}", "{{ '%(a)s %(b)05.1f %(a)d%%' % {'a': 7, 'b': 2.25} }}", "{{ '%(a)s %s' % {'a': 1} }}", "{{ '%s %(a)s' % {'a': 1} }}", "{{ '%(a(b))s' % {'a(b)': 1} }}", "{{ '%(a' % {'a': 1} }}", "{{ '%(zz)s' % d }}", "{{ '%(a)%|' % d }}",
    "{{ '%x|%X|%o|%#x|%#X|%#o|%+x|% o|%#06x|%-8x|%08x' % (-255, 255, 8, 255, 255, 8, 255, 8, 255, -255, -255) }}", "{{ '%#x|%#o' % (0, 0) }}", "{{ '%.5d|%08.5d|%-8.5d|%+.3d|%.5x' % (42, 42, 42, -7, 255) }}", "{{ '%05d|%+05d|% 05d|%-05d|%05d|%- 5d|%0+5d' % (3, 3, 3, 3, -3, 3, 3) }}", "{{ '%05f|%F|%5.1f|%+.2e|%G|%#g|%#.0f|%05.0f' % (-1.5, 2.5, 0.25, 12345.678, 1e-10, 1.0, 3.0, -2.0) }}", "{{ '%d|%i|%u|%5.1d' % (3.9, -3.9, 2.0, 7) }}", "{{ '%x' % 1.5 }}", "{{ '%d' % 'a' }}", "{{ '%z' % 1 }}", "{{ '%s' % ('a', 'b') }}", "{{ '%%%s%%' % 1 }}", "{{ '%5%|' % () }}", "{{ '%.3s|%5.2s|%-5.2s|%.0s' % ('abcdef', 'abc', 'abc', 'x') }}", "{{ '%f %f %05f' % ('inf'|float, 'nan'|float, '-inf'|float) }}",
    # Blocks.
    "a{% block x %}b{{ n }}{% endblock %}c", "{% block x %}1{% endblock x %}{{ self.x() }}{{ self['x']() }}", "{{ self.x() }}{% block x %}{{ n }}{% set n = 5 %}{{ n }}{% endblock %}{{ n }}",
    "{% set q1 = 1 %}{% block x %}{{ q1 }}{% set q1 = 2 %}{{ q1 }}{% endblock %}{{ q1 }}{% set q1 = 3 %}{{ self.x() }}", "{% block x %}{{ q1 }}{% endblock %}{% set q1 = 1 %}{{ self.x() }}", "{% block x %}{{ n }}{% endblock %}{% set n = 9 %}{{ n }}{{ self.x() }}",
    "{% if b %}{% set q1 = 4 %}{% endif %}{% if c %}{% set n = 4 %}{% endif %}{% block x %}{{ q1 }}{{ n }}{% endblock %}", "{% set q1, q2 = 1, 2 %}{% set q3 %}t{{ q1 }}{% endset %}{% block x %}{{ q1 }}{{ q2 }}{{ q3 }}{% endblock %}",
    "{% set ns = namespace(v=1) %}{% block x %}{{ ns.v }}{% set ns.v = 2 %}{% endblock %}{{ ns.v }}", "{% macro m(a) %}<{{ a }}{{ q1 }}>{% endmacro %}{% set q1 = 3 %}{% block x %}{{ m(1) }}{% endblock %}", "{% block x %}{{ m is defined }}{% endblock %}{% macro m() %}{% endmacro %}{{ self.x() }}",
    "{% for i in l %}{% block x %}[{{ i }}{{ loop }}{{ n }}]{% endblock %}{% endfor %}", "{% for i in l %}{% block x scoped %}[{{ i }}{{ loop.index }}{{ n }}]{% endblock %}{% endfor %}{{ self.x() is string }}", "{% for i in l %}{% block x scoped %}[{{ i }}]{% endblock %}{% endfor %}{{ self.x() }}",
    "{% for i in l %}{% set q1 = i %}{% block x scoped %}{{ q1 }}{% block y %}{{ q1 }}{% set q1 = 'z' %}{% endblock %}{{ q1 }}{{ self.y() }}{% endblock %}{% endfor %}", "{% for n in l %}{% block x %}{{ n }}{% block y scoped %}{{ n }}{% endblock %}{% endblock %}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% set n = i %}{% endif %}{% block x scoped %}{{ n }};{% endblock %}{% endfor %}", "{% for i in l %}{% block x scoped %}{{ n }};{% endblock %}{% set n = i %}{% endfor %}", "{% with n = 7 %}{% block x scoped %}{{ n }}{% endblock %}{% endwith %}{% block y %}{{ n }}{% endblock %}",
    "{% block x scoped %}{{ n }}{{ q1 }}{% endblock %}{% set n = 1 %}{% set q1 = 2 %}", "{% set n = q9 %}{% block x scoped %}[{{ n }}]{% endblock %}", "{% macro m(n) %}{% block x %}{{ n }}{% endblock %}{% block y scoped %}{{ n }}{% endblock %}{% endmacro %}{{ m('a') }}{{ self.y() }}",
    "{% macro m() %}{% block y scoped %}{{ caller is defined }}{% endblock %}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{% macro m() %}{{ caller() }}{% block y scoped %}{{ caller() }}{% endblock %}{% endmacro %}{% call m() %}k{% block x %}{{ n }}{% endblock %}{% endcall %}",
    "{% for t in tree recursive %}{% block x scoped %}{{ t.v }}({{ loop(t.kids) }}){% endblock %}{% endfor %}", "{% for i in l %}{% macro m() %}{{ i }}{% block x %}{{ i }}{% endblock %}{% endmacro %}{% block y scoped %}{{ m() }}{% endblock %}{% endfor %}", "{% block x %}{% set q1 = 1 %}{% macro m() %}{{ q1 }}{% block y scoped %}{{ q1 }}{% endblock %}{% endmacro %}{{ m() }}{% endblock %}{{ self.y() }}",
    "{% block x %}a{% block y %}b{% endblock %}c{% endblock %}{{ self.x() }}{{ self.y() }}", "{% if c %}{% block x %}hidden{% endblock %}{% endif %}{{ self.x()|upper }}", "{% set v %}{% block x %}cap{{ n }}{% endblock %}{% endset %}[{{ v }}]{% filter upper %}{% block y %}low{% endblock %}{% endfilter %}",
    "{% block x required %}{% endblock %}", "a{% if c %}{% block x required %} {# c #} {% endblock %}{% endif %}[{{ self.x() }}]", "{% block x scoped required %}{% endblock %}", "{% block x required scoped %}{% endblock %}", "{% block x required %}a{% endblock %}", "{% block x required %}{{ '' }}{% endblock %}", "{% block x required %}{% if b %}{% endif %}{% endblock %}",
    "{% block scoped %}s{{ n }}{% endblock %}{{ self.scoped() }}", "{% block required scoped %}r{% endblock %}", "{% block x %}{% endblock y %}", "{% block x %}", "{% block %}{% endblock %}", "{% block 'x' %}{% endblock %}", "{% block a-b %}{% endblock %}", "{% endblock %}", "{% block x %}{% endblock %}{% block x %}{% endblock %}", "{% block x %}{% block x %}{% endblock %}{% endblock %}",
    "{{ self is defined }}{{ self.x is defined }}{{ self.x }}{{ self.x() }}", "{{ 'y' if self else 'n' }}{{ self.x is callable }}{{ self.items is callable }}{{ self is mapping }}{% block items %}i{% endblock %}{{ self.items() }}", "{{ self[0] is defined }}{{ self['zz'] is defined }}{{ self == self }}", "{% block x %}x{% endblock %}{{ self.x(1) }}", "{% block x %}x{% endblock %}{{ self.x(a=1) }}", "{% block x %}{% endblock %}{% set self.x = 1 %}",
    "{% set self = 5 %}{{ self }}{% block x %}{{ self is number }}{{ self }}{% endblock %}", "{% for self in l %}{{ self }}{% endfor %}{{ self }}", "{{ self is number }}{% set self = 1 %}{{ self }}", "{% macro m(self) %}{{ self }}{% endmacro %}{{ m(3) }}{{ self }}", "{% macro m() %}{{ self.x() }}{% endmacro %}{% block x %}v{% endblock %}{{ m() }}",
    "{% block x %}{{ super is defined }}{{ super }}{% endblock %}{{ super is defined }}", "{% block x %}{{ super() }}{% endblock %}", "{{ super() }}", "{% block x %}{% set super = 1 %}{{ super }}{% endblock %}", "{% block x %}{{ super is defined }}{% set super = 1 %}{{ super }}{% endblock %}",
    "{% block x %}{% if n > 0 %}{{ self.x() }}{% endif %}{% endblock %}", "{% for i in l %}{% block x %}{% break %}{% endblock %}{% endfor %}", "{% for i in l %}{% block x %}{% for j in l %}{{ j }}{% break %}{% endfor %}{% endblock %}{% endfor %}", "{% block x %}{{ 1|nosuch }}{% endblock %}", "{% if c %}{% block x %}{{ 1|nosuch }}{% endblock %}{% endif %}", "{% block x %}{% if c %}{{ 1|nosuch }}{% endif %}k{% endblock %}",
    "{% block x -%}  \n a {%- endblock %}\n b\n  {% block y %}\n  c\n  {% endblock %}\n", "{% generation %}{% block x %}g{{ n }}{% endblock %}{% endgeneration %}{{ self.x() }}", "{% block range %}{{ range(2)|list }}{% endblock %}", "{% block _x %}{{ _q }}{% endblock %}{% set _q = 1 %}{{ self._x() }}",
    # Wrapped words.
    "{% for w in range(1, 30) %}{{ 'state-of-the-art, well-known -- and so--on: a-b a-bc ab-c 1-a ab-1 ab-c-d x-y-z e-mail'|wordwrap(w, wrapstring='/') }}\n{% endfor %}",
    "{% for w in range(1, 30) %}{{ 'state-of-the-art, well-known -- and so--on: a-b a-bc ab-c 1-a ab-1 ab-c-d x-y-z e-mail'|wordwrap(w, false, '/') }}\n{% endfor %}",
    "{% for w in range(1, 20) %}{{ 'state-of-the-art, well-known -- and so--on: a-b a-bc'|wordwrap(w, true, '/', false) }}\n{{ 'state-of-the-art, well-known'|wordwrap(w, false, '/', false) }}\n{% endfor %}",
    "{% for w in range(1, 9) %}{{ 'aaaaaaaa  --------  ---a--- -a-aaaaaaaaa a--b ?--b a---_ a--- a --b'|wordwrap(w, wrapstring='/') }}\n{% endfor %}",
    "{% for w in range(1, 6) %}{{ 'ab \u00a0\u00a0 c\u2003d  \t\x0be\x1cf\x85\u00a0\u00a0\u00a0\u00a0g'|wordwrap(w, wrapstring='/') }}\n{% endfor %}",
    "{{ '  a\n\n b  c \r\nd \n'|wordwrap(3, wrapstring='/') }}|{{ ''|wordwrap(0) }}|{{ ''|wordwrap('x', wrapstring='<b>'|safe)|e }}", "{{ 'Grüße ΑΒΓ-ΔΕΖ ǅǅ😀😀😀 e\u0301-e\u0301e\u0301'|wordwrap(4, wrapstring='/') }}",
    "{{ '\n'|wordwrap(0) }}", "{{ 'a'|wordwrap(-1) }}", "{{ 'a'|wordwrap(none) }}", "{{ 'a'|wordwrap('3') }}", "{{ 'a'|wordwrap(undef) }}", "{{ 'ab cd'|wordwrap(2.5, wrapstring='/') }}", "{{ 'abc'|wordwrap(2.5) }}", "{{ 'abc d'|wordwrap(2.5, false, '/') }}",
    "{{ 'a-bc de-fg aa-bb'|wordwrap(4, true, '/', 1) }}|{{ 'aaa-aaa-aaa bb-bb'|wordwrap(6, true, '/', l) }}", "{{ 'ab  c-d'|wordwrap(0.5, wrapstring='/') }}|{{ ' a'|wordwrap(0.5, false, '/') }}|{{ 'a'|wordwrap(0.5, wrapstring='/') }}",
    "{{ 'ab c'|wordwrap(true, wrapstring='/') }}", "{{ 'a b'|wordwrap(1, true, 5) }}", "{{ 'a b'|wordwrap(1, true, undef) }}", "{{ 'a b'|wordwrap(1, undef, none) }}", "{{ ''|wordwrap(1, true, l) }}", "{{ 5|wordwrap }}", "{{ undef|wordwrap }}", "{{ nil|wordwrap }}", "{{ 'a'|wordwrap(1, 2, 3, 4, 5) }}",
    "{{ ('<a> b'|safe)|wordwrap(3) is escaped }}{{ '<a> <b>'|wordwrap(3, wrapstring='<br>'|safe) }}{{ ('<a> b'|safe)|wordwrap(3, wrapstring='&'|safe) }}",
    "{% for t in ['', 'a b', 'é', '\t', '\u00a0', '\u3000', '\u200b', '\u00ad', '\ue000', '\u0378', '😀', 'e\u0301', '\u2028', '\x7f', '~'] %}{{ t.isprintable() }}{% endfor %}",
    # Syntax errors.
    "{% if %}x{% endif %}", "{% if b %}x", "{{ 1 +", "{{ }}", "{{ a b }}", "{% endfor %}", "{% unknown %}", "{{ 'abc }}", "{# never", "{% raw %}x", "{{ [1, 2 }}", "{{ (1 }}", "{% for in x %}{% endfor %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ x|nosuch }}", "{{ x is nosuch }}", "{% if c %}{{ x|nosuch }}{% endif %}ok", "{{ 1 if c else 2|nosuch }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ 007 }}", "{{ $ }}", "{% set s.x = 1 %}",
]


def templates():
    yield from TEMPLATES
    names = [k for k in CONTEXT if k not in ("tree",)] + ["undef"]
    for i, f in enumerate(FILTERS):
        for k, name in enumerate(names):
            if (i + k) % 3 == 0:
                yield "{{ %s|%s }}" % (name, f)
    for i, t in enumerate(TESTS):
        yield "".join("{{ %s is %s }}" % (name, t) for name in names if not ("nosuch" in t)) or "{{ s is %s }}" % t
        yield "".join("{{ %s is not %s }}" % (name, t) for name in ("s", "n", "undef"))
    for i, m in enumerate(METHODS):
        for k, name in enumerate(("s", "t", "u", "nl", "d", "l", "num", "n")):
            if (i + k) % 2 == 0:
                yield "{{ %s.%s }}" % (name, m)
    for i, op in enumerate(OPERATORS):
        for k, a in enumerate(("n", "f", "s", "l", "b", "nil", "neg", "undef", "d", "z")):
            for j, b in enumerate(("n", "z", "s", "l", "c", "neg", "undef", "d", "f")):
                if (i + k + 2 * j) % 4 == 0:
                    yield "{{ %s %s %s }}" % (a, op, b)
    for name in ("s", "u", "l", "msgs", "d", "e", "mixed", "nested"):
        for sub in SUBSCRIPTS:
            yield "{{ %s[%s] }}" % (name, sub)


def main():
    env = environment()
    cases = []
    for source in templates():
        case = {"template": source}
        try:
            text = env.from_string(source).render(**copy.deepcopy(CONTEXT))
            # Addresses, and numbers above 64 bits, differ by design.
            if any(mark in text for mark in ("object at 0x", "built-in method", "bound method", "j)", "00000000000000000", "range(")):
                continue
            case["text"] = text
        except Exception as problem:  # every kind of failure is an answer
            case["error"] = f"{type(problem).__name__}: {problem}"
        cases.append(case)
    json.dump({"context": CONTEXT, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
