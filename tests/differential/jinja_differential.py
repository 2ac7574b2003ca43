#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random templates over random variables, rendered by Jinja2 (PyPI, with the conventions of chat templates) and by ours.

Usage: python3 jinja_differential.py RENDER_LINES [--count N] [--seed S] [--show N]
Exit status 0: no difference; 1: differences, printed with their seeds; 77: Jinja2 is not installed.
"""
import argparse
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
try:
    from make_jinja_cases import environment
except ImportError:
    print("skipped: the Python package Jinja2 is not installed")
    sys.exit(77)

TEXTS = ["", " ", "a", "B", "Hello, World", "  padded \n", "a\nb\r\nc\n\nd", "Grüße", "ß", "ΟΔΟΣ", "😀", "it's \"q\" \\", "<b>&",
         "42", "-7", "3.5", " 12 ", "1e3", "key", "user", "assistant", "x,y,,z", "a b  c", "\t", "%s", "{x}", "aAbB", "é\u0301",
         "\u00a0nb\u2003", "True", "None", "content", "\u0663\u0664", "-\uff11\uff12.\uff15", "\u3000\u096b ", "\u0661_\u0662", "\U0001d7d8\U0001d7d9", "\u00b2", "\u0661e\u0662",
         "a well-known, state-of-the-art thing -- it is--so; e-mail a-b ab-c", "aaaa-bbbb--cccc-d -- --e",
         "one two  three\tfour\x0bfive\u00a0six\n\n seven-eight-nine ten", "------ -a-aaaaaaaa \u2003\u2003 b", "\u200b", "\u0378\u00ad", "A\u2028B"]
INTS = [0, 1, 2, 3, -1, -2, 5, 7, 10, 100, -13]
FLOATS = [0.0, 1.0, 2.5, -0.5, 1e20, 1e-7, 3.14159, 100.0, -2.0, 0.1]
NAMES = ["s", "t", "n", "m", "f", "b", "nil", "l", "ls", "d", "e", "msgs", "x", "undef"]
ATTRIBUTES = ["role", "content", "a", "b", "key", "n", "items", "length"]
# What suits a kind of value; now and then something is taken from elsewhere.
FILTERS = {
    "text": ["trim", "upper", "lower", "title", "capitalize", "length", "list", "string", "first", "last", "reverse", "join('-')", "int",
             "float", "tojson", "default('D')", "d('D', true)", "e", "safe", "wordcount", "replace('a', 'X')", "replace('a', 'X', 1)",
             "indent(2)", "indent(2, true)", "truncate(8)", "truncate(5, true, '')", "center(9)", "trim('a')", "int(7)", "float(1.5)",
             "select|list", "map('upper')|list", "unique|list", "batch(2)|list", "sort|list", "string|length", "format(1)", "count", "wordwrap(5)",
             "wordwrap(7, wrapstring='|')"],
    "number": ["abs", "int", "float", "round", "round(1)", "round(0, 'floor')", "round(-1, 'ceil')", "string", "tojson", "default(3)",
               "string|length", "e", "center(6)", "trim", "upper", "d(1, true)"],
    "list": ["length", "first", "last", "join", "join(',')", "sort", "sort(reverse=true)", "unique|list", "reverse|list", "list", "sum",
             "min", "max", "tojson", "tojson(indent=2)", "string", "map('string')|list", "map('upper')|join(',')", "select|list",
             "reject|list", "select('string')|list", "select('gt', 1)|list", "batch(2)|list", "batch(2, 'p')|list", "slice(2)|list",
             "map(attribute='role')|list", "map(attribute='role')|join(',')", "map(attribute='nope', default='q')|list", "selectattr('role')|list|length",
             "selectattr('role', 'equalto', 'user')|list|length", "rejectattr('content')|list|length", "groupby('role')|length",
             "groupby('role')|list", "groupby('role')|map(attribute='grouper')|list", "groupby('role')|map(attribute='list')|list",
             "groupby('content', default='')|map('first')|list", "groupby('role', case_sensitive=true)|map('last')|map('length')|list", "groupby('role')|tojson",
             "map('int')|list", "map('length')|list", "default([])", "e", "d('D', true)", "map(attribute='content')|list|tojson"],
    "dict": ["length", "list", "items|list", "dictsort", "dictsort(reverse=true)", "dictsort(by='value')", "tojson", "tojson(indent=1)",
             "string", "attr('role')", "first", "default('D')", "join(',')", "e"],
}
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "iterable", "sequence", "boolean", "true",
         "false", "odd", "even", "divisibleby(3)", "equalto(1)", "eq('a')", "ne(2)", "gt(1)", "lt(2)", "ge(1)", "le(1)", "in([1, 'a'])",
         "lower", "upper", "sameas(none)", "callable", "filter", "escaped"]
METHODS = {
    "text": ["strip()", "strip('a')", "lstrip()", "rstrip('\\n')", "upper()", "lower()", "title()", "capitalize()", "split()", "split(',')",
             "split(',', 1)", "splitlines()", "startswith('a')", "endswith(('a', 'b'))", "replace('a', 'bb')", "find('b')", "rfind('a')",
             "count('a')", "join(['p', 'q'])", "isdigit()", "isalpha()", "isspace()", "rsplit(' ', 1)", "partition(',')", "zfill(5)",
             "swapcase()", "format(1, x=2)", "removeprefix('a')", "removesuffix('a')", "ljust(4)", "rjust(4, '.')", "islower()",
             "casefold()", "isascii()", "isprintable()", "istitle()", "isnumeric()", "isdecimal()", "expandtabs()", "expandtabs(3)"],
    "number": [],
    "list": ["index('a')", "count(1)", "copy()", "append(1)", "pop()", "sort", "insert"],
    "dict": ["update(a=1)", "pop('a')", "update", "copy()", "items()|list", "keys()|list", "values()|list", "get('role')", "get('nope', 3)", "get('a')|default('z')"],
}
KINDS = {"text": ["s", "t", "s", "t", "w"], "number": ["n", "f", "n"], "list": ["l", "ls", "msgs"], "dict": ["d", "d", "e"]}
OPERATORS = {"text": ["+", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"],
             "number": ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or"],
             "list": ["+", "==", "!=", "and", "or", "~"], "dict": ["==", "!=", "and", "or", "~"]}
ANY_OPERATOR = ["==", "!=", "~", "and", "or"]
SUBSCRIPTS = ["0", "-1", "1", "5", "'role'", "'a'", "n", "s"]
SLICES = ["::-1", "1:", ":2", ":-1", "::2", "1:3", "-2:", ":n"]
IMAGINARY = re.compile(r"[0-9a-z]j\)", re.IGNORECASE)  # of complex numbers: "(1+2j)", "(nan+infj)"
# Addresses and integers above 64 bits. Not drawn at all: NaN and infinity from constants, which Jinja2's optimiser
# writes as names.
DIFFERENT_BY_DESIGN = ("object at 0x", "built-in method", "bound method", "<function", "<generator", "range(", "dict_",
                       "000000000000000000", "Undefined", "<Macro", "Cycler object", "Joiner object", "LoopContext", "Namespace", "TemplateReference")


class Writer:
    """Draws one template."""

    def __init__(self, rng):
        self.rng = rng
        self.names = list(NAMES)
        self.loops = 0
        self.macros = []
        self.blocks = []

    def pick(self, *ways):
        return self.rng.choice(ways)

    def text_literal(self):
        return "'" + self.rng.choice(TEXTS).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"

    def literal(self):
        r = self.rng.random()
        if r < 0.4:
            return self.text_literal()
        if r < 0.6:
            return str(abs(self.rng.choice(INTS)))
        if r < 0.7:
            return repr(abs(self.rng.choice(FLOATS)))
        return self.rng.choice(["true", "false", "none", "[]", "{}", "[1, 2, 'a']", "{'a': 1, 'role': 'user'}", "('a', 2)", "True", "None"])

    def value(self, kind, depth):
        """Something that is mostly of that kind."""
        r = self.rng.random()
        if r < 0.04:
            return self.operand(depth)
        if depth > 0 and r < 0.10 and kind == "text":
            return f"({self.rng.choice(KINDS['text'])}|{self.pick('upper', 'trim', 'lower', 'string', 'title')})"
        if r < 0.16 and kind == "number":
            return str(abs(self.rng.choice(INTS)))
        if r < 0.2 and kind == "text":
            return self.text_literal()
        if r < 0.3 and kind == "number":
            return f"({self.rng.choice(KINDS[self.pick('list', 'text')])}|length)"
        return self.rng.choice(KINDS[kind])

    def specification(self, kind):
        """Of str.format, without what is refused by name: grouped zeros."""
        pick = self.pick
        kinds = pick("", "s", "d") if kind == "text" else pick("", "d", "f", "e", "g", "%", "x", "X", "o", "b", "E", "G", "s")
        group, zero = pick("", "", "", ",", "_"), pick("", "", "0")
        precision = pick("", ".0", ".2", ".5")
        return pick("", "<", ">", "^", "*^", "\u00e9>", "=") + pick("", "", "+", " ", "-") + pick("", "", "#") + ("" if group else zero) + pick("", "5", "12") + group + precision + kinds

    def conversion(self, kind):
        """Of %-formatting."""
        pick = self.pick
        letters = {"text": "srasac", "number": "diuxXofFeEgGsrac", "list": "sra", "dict": "sra"}[kind]
        flags = "".join(pick("", "", "", f) for f in "-+ 0#")
        return "%" + flags + pick("", "", "5", "12", "*") + pick("", "", ".0", ".2", ".5", ".*") + pick("", "", "", "l") + self.rng.choice(letters)

    def percent(self, kind, depth):
        conversion, value = self.conversion(kind), self.value(kind, depth)
        if "*" not in conversion and self.rng.random() < 0.2:
            return f"('%%{self.pick('', 'x')}%(k){conversion[1:]}' % {{'k': {value}}})"
        stars = [str(self.pick(0, 3, 9)) if self.rng.random() < 0.9 else "n"] * conversion.count("*")
        return f"('{conversion}|' % ({', '.join([*stars, value])},))"

    def expression(self, depth=2):
        r = self.rng.random()
        if depth <= 0 or r < 0.15:
            return self.rng.choice(self.names) if self.rng.random() < 0.75 else self.literal()
        inner = lambda: self.expression(depth - 1)
        kind = self.pick("text", "text", "number", "list", "list", "dict")
        value = lambda: self.value(kind, depth - 1)
        if r < 0.42:
            return f"{value()}|{self.rng.choice(FILTERS[kind])}"
        if r < 0.52:
            return f"{self.operand(depth - 1)} is {self.rng.choice(['', 'not '])}{self.rng.choice(TESTS)}"
        if r < 0.53:
            return self.percent(kind, depth - 1)
        if r < 0.535:
            return self.wrap()
        if r < 0.55:
            return f"'{{:{self.specification(kind)}}}'.format({value()})"
        if r < 0.62 and METHODS[kind]:
            return f"{value()}.{self.rng.choice(METHODS[kind])}"
        if r < 0.66:
            return f"{self.rng.choice(KINDS[kind])}[{self.rng.choice(SUBSCRIPTS)}]"
        if r < 0.70:
            # Never of a constant: Jinja2's optimiser turns the failure of such a slice into undefined.
            return f"{self.rng.choice(KINDS[self.pick('text', 'list')])}[{self.rng.choice(SLICES)}]"
        if r < 0.74:
            return f"{self.rng.choice(['d', 'e', 'd', 'm'])}.{self.rng.choice(ATTRIBUTES)}"
        if r < 0.84:
            return f"{value()} {self.rng.choice(OPERATORS[kind])} {value()}"
        if r < 0.88:
            return f"{self.operand(depth - 1)} {self.rng.choice(ANY_OPERATOR)} {self.operand(depth - 1)}"
        if r < 0.92:
            return f"{inner()} if {inner()} else {inner()}"
        if r < 0.95:
            return f"not {self.operand(depth - 1)}"
        if r < 0.96:
            return f"-{self.value('number', depth - 1)}"
        if r < 0.98:
            return f"[{inner()}, {inner()}]"
        if self.blocks and self.rng.random() < 0.3:
            return self.pick("self.{}()", "self.{}()", "self.{}()", "self['{}']()", "self.{} is defined", "self.{}(1)").format(self.rng.choice(self.blocks))
        if self.rng.random() < 0.02:
            return self.pick("self.nope is defined", "self is defined", "super is defined", "super()", "self.nope()", "self is number")
        if self.loops:
            return "loop." + self.rng.choice(["index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "depth"])
        return f"{{'k': {inner()}}}"

    def wrap(self):
        """wordwrap with arguments that mostly suit; a template variable of every type is among them."""
        any_name = lambda: self.rng.choice(self.names)
        suits = lambda: self.rng.random() < 0.88
        width = str(self.rng.randint(1, 12)) if suits() else self.pick("n", "f", "2.5", "0", any_name())
        flag = lambda: self.pick("true", "false", "b", any_name())
        between = self.pick("'|'", "'\\n> '", "none", "s", "''", "('<br>'|safe)") if suits() else any_name()
        arguments = [width, flag(), between, flag()][:self.rng.choice([1, 1, 2, 3, 3, 4])]
        if self.rng.random() < 0.3:
            arguments = [f"{name}={value}" for name, value in zip(["width", "break_long_words", "wrapstring", "break_on_hyphens"], arguments)]
            self.rng.shuffle(arguments)
        value = self.rng.choice(KINDS["text"]) if suits() else any_name()
        return f"{value}|wordwrap({', '.join(arguments)})"

    def operand(self, depth):
        text = self.expression(depth)
        return text if text.replace("_", "").isalnum() else f"({text})"

    def tag(self, words):
        return "{%" + self.pick("", "", "-", "+") + " " + words + " " + self.pick("", "", "-", "") + "%}"

    def text(self):
        return self.rng.choice(["", "x", " ", "\n", "  \n", "line\n", " a ", "\n\n", "\t", "{", "}", "#", "é", "|", "\r\n"])

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randint(1, 3)))

    def output(self):
        return "{{" + self.pick("", "", "-") + " " + self.expression() + " " + self.pick("", "", "-") + "}}"

    def statement(self, depth):
        r = self.rng.random()
        if r < 0.02 and depth > 0:
            return self.block(depth)
        if depth <= 0 or r < 0.45:
            return self.text() + self.output() + self.text()
        if r < 0.57:
            out = self.tag("if " + self.expression(2)) + self.body(depth - 1)
            if self.rng.random() < 0.4:
                out += self.tag("elif " + self.expression(2)) + self.body(depth - 1)
            if self.rng.random() < 0.5:
                out += self.tag("else") + self.body(depth - 1)
            return out + self.tag("endif")
        if r < 0.75:
            return self.loop(depth)
        if r < 0.82:
            name = self.rng.choice(["x", "y", "n", "s"])
            out = self.tag(f"set {name} = {self.expression(2)}")
            self.names.append(name)
            return out
        if r < 0.85:
            return self.tag("set w") + self.body(depth - 1) + self.tag("endset") + "{{ w }}"
        if r < 0.89:
            return self.tag("set ns = namespace(v=0, w='')") + self.tag("for i in " + self.rng.choice(["l", "ls", "msgs"])) + self.tag(
                "set ns.v = " + self.pick("ns.v + 1", "i", "loop.index")) + self.tag("endfor") + "{{ ns.v }}"
        if r < 0.92:
            name = f"macro{len(self.macros)}"
            out = self.tag(f"macro {name}(p, q={self.literal()})") + "{{ p }}" + self.text() + "{{ q }}" + self.tag("endmacro")
            self.macros.append(name)
            return out + "{{ " + name + "(" + self.expression(1) + ") }}"
        if r < 0.935:
            return self.block(depth)
        if r < 0.943:
            return self.tag("filter " + self.rng.choice(["upper", "trim", "indent(2)", "replace('a', 'b')"])) + self.body(
                depth - 1) + self.tag("endfilter")
        if r < 0.948:
            return self.helper()
        if r < 0.95:
            return "{% raw %}{{ x }}{% endraw %}"
        if r < 0.97:
            return "{#" + self.pick("", "-") + " c " + self.pick("", "-") + "#}" + self.text()
        if r < 0.98:
            return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")
        if r < 0.99:
            return self.tag("with x = " + self.expression(1)) + self.body(depth - 1) + self.tag("endwith")
        return self.tag("if " + self.expression(1)) + "{{ raise_exception('stop') }}" + self.tag("endif")

    def helper(self):
        """A cycler or a joiner at work, or a group with its names."""
        rnd = self.rng
        items = ", ".join(self.expression(1) for _ in range(rnd.randint(0 if rnd.random() < 0.1 else 1, 3)))
        made, uses = rnd.choice([
            (f"cycler({items})", ["h.next()", "h.current", "h.pos", "h.items", "h.reset()", "h.nope", "h is callable", "h()"]),
            (f"joiner({self.pick('', self.literal())})", ["h()", "h()", "h.sep", "h.used", "h.next", "h is callable"]),
            ("msgs|groupby('role')|first", ["h.grouper", "h.list", "h[0]", "h['list']|length", "h.count(1)", "h", "h|list", "h == h"]),
        ])
        body = "".join("{{ " + rnd.choice(uses) + " }}" + self.text() for _ in range(rnd.randint(1, 4)))
        return self.tag(f"set h = {made}") + self.tag("for q in [1, 2, 3]") + body + self.tag("endfor")

    def block(self, depth):
        name = self.rng.choice(self.blocks) if self.blocks and self.rng.random() < 0.03 else f"block{len(self.blocks)}"
        self.blocks.append(name)
        required = self.rng.random() < 0.04
        out = self.tag(f"block {name}" + self.pick("", "", " scoped") + (" required" if required else ""))
        out += self.rng.choice([" ", "\n", "", "{# c #}", "x"]) if required else self.body(depth - 1)
        return out + self.tag("endblock" + self.pick("", " " + name)) + self.pick("", "", "{{ self." + name + "() }}")

    def loop(self, depth):
        target, source = self.rng.choice([("loop" if self.rng.random() < 0.02 else "x", "l"), ("x", "ls"), ("m", "msgs"), ("k, v", "d.items()"), ("x", "s"), ("k", "d"),
                                          ("x", "range(3)"), ("x", "ls|sort"), ("k, v", "d|dictsort"), ("x", self.expression(1))])
        out = self.tag(f"for {target} in {source}" + (" if " + self.expression(1) if self.rng.random() < 0.15 else ""))
        known = len(self.names)
        self.names += target.split(", ")
        self.loops += 1
        out += self.body(depth - 1)
        if self.rng.random() < 0.15:
            out += self.tag("if " + self.expression(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif")
        self.loops -= 1
        del self.names[known:]
        if self.rng.random() < 0.2:
            out += self.tag("else") + "none"
        return out + self.tag("endfor")


def draw_value(rng, depth=2):
    r = rng.random()
    if depth <= 0 or r < 0.35:
        return rng.choice(TEXTS)
    if r < 0.5:
        return rng.choice(INTS)
    if r < 0.58:
        return rng.choice(FLOATS)
    if r < 0.68:
        return rng.choice([True, False, None])
    if r < 0.84:
        return [draw_value(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(ATTRIBUTES + TEXTS): draw_value(rng, depth - 1) for _ in range(rng.randint(0, 4))}


def draw_context(rng):
    context = {"s": rng.choice(TEXTS), "t": rng.choice(TEXTS), "n": rng.choice(INTS), "f": rng.choice(FLOATS),
               "w": rng.choice(TEXTS), "b": rng.choice([True, False]), "nil": None, "l": [rng.choice(INTS) for _ in range(rng.randint(0, 4))],
               "ls": [rng.choice(TEXTS) for _ in range(rng.randint(0, 4))], "d": {
                   rng.choice(ATTRIBUTES): draw_value(rng) for _ in range(rng.randint(0, 3))},
               "e": {}, "x": draw_value(rng), "m": draw_value(rng),
               "msgs": [{"role": rng.choice(["user", "assistant", "system"]), "content": rng.choice(TEXTS)}
                        for _ in range(rng.randint(0, 3))]}
    return context


def reference(env, source, context):
    try:
        return {"text": env.from_string(source).render(**copy.deepcopy(context))}
    except Exception as problem:  # every kind of failure is an answer
        return {"error": f"{type(problem).__name__}: {problem}"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=10, help="differences to print")
    a = p.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # of the Python that Jinja2 writes
    env = environment()
    ours = subprocess.Popen([a.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    different = left_out = failed = 0
    for seed in range(a.seed, a.seed + a.count):
        rng = random.Random(seed)
        context = draw_context(rng)
        source = Writer(rng).body(2)
        want = reference(env, source, context)
        if IMAGINARY.search(want.get("text", "")) or any(mark.lower() in want.get("text", "").lower()
                                                         for mark in DIFFERENT_BY_DESIGN):
            left_out += 1
            continue
        ours.stdin.write(json.dumps({"template": source, "context": context}).encode() + b"\n")
        ours.stdin.flush()
        line = ours.stdout.readline()
        if not line:
            print(f"seed {seed}: our program ended\n{source!r}\n{json.dumps(context)}")
            sys.exit(1)
        got = json.loads(line)
        if "does not fit 64 bits" in got.get("error", ""):
            left_out += 1
            continue
        failed += "error" in want
        if ("error" in want) == ("error" in got) and want.get("text") == got.get("text"):
            continue
        different += 1
        if different <= a.show:
            print(f"seed {seed}\n  template {source!r}\n  context  {json.dumps(context, ensure_ascii=False)}\n  Jinja2   {want}\n"
                  f"  ours     {got}")
    ours.stdin.close()
    ours.wait()
    print(f"{a.count} templates: {different} different, {failed} fail in both, {left_out} left out (addresses, wide integers)")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
