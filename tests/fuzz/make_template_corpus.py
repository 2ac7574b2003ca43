#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpus of fuzz_template from the cases of ../models/jinja_cases.json.

Cases that render are joined, several to a file; of those that fail one is kept for each message.
Usage: python3 make_template_corpus.py
"""
import json
import pathlib
import re

here = pathlib.Path(__file__).parent
cases = json.loads((here.parent / "models" / "jinja_cases.json").read_text())["cases"]
out = here / "corpus" / "template"
out.mkdir(parents=True, exist_ok=True)
good = [c["template"] for c in cases if "text" in c]
whole = [t for t in good if "{%" in t or "{#" in t]
simple = [t for t in good if t not in whole]
for i, text in enumerate(whole):
    (out / f"statements_{i:03}").write_text(text, newline="")
for i in range(0, len(simple), 30):
    (out / f"expressions_{i // 30:03}").write_text("\n".join(simple[i : i + 30]), newline="")
seen = set()
for c in cases:
    message = re.sub(r"'[^']*'|\d+", "_", c.get("error", ""))
    if message and message not in seen:
        seen.add(message)
        (out / f"error_{len(seen):03}").write_text(c["template"], newline="")
(out / "bad_utf8").write_bytes(b"a\xff{{ x }}")
(out / "chat").write_text(
    "{%- if tools %}{{ tools | tojson(indent=4) }}{% endif %}{%- for m in messages[::-1] %}{{ '<|im_start|>' + m.role + '\\n'"
    " + m['content'].split('</think>')[-1] | trim + '<|im_end|>\\n' }}{%- for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ eos_token }}{% endif %}"
)
(out / "methods").write_text(
    "{% set x = [3, 1] %}{% set d = {'a': 1, 'b': 2} %}{{ x.append }}{{ x.count(1) }}{{ x.index(1) }}{{ d.pop is defined }}"
    "{{ d.copy() }}{{ x.copy() }}{{ x }}{{ d }}"
    "{{ s.rindex('l') }}{{ s.index('o', 5, -1) }}{{ s.find('x', -3) }}{{ s.endswith(('x', 'd'), 2) }}{{ u.swapcase() }}"
    "{{ '-5'.zfill(6) }}{{ '+5'.zfill(1) }}{{ '{0}{x!r}{{}}'.format(1, x='a') }}{{ u.title() }}{{ u.isupper() }}"
    "{{ u.center(30) }}{{ s.rpartition('zz') }}{{ s.partition('o') }}{{ nl.splitlines(true) }}{{ (1, 2, 1).count(1) }}"
)
for i, text in enumerate(["{{ [].pop() }}", "{{ {}.pop('a') }}", "{{ [1].index(2) }}", "{{ 'a'.index('b') }}",
                          "{{ messages.append(1) }}", "{{ messages[0].update(x=1) }}", "{{ '{'.format() }}",
                          "{{ '}'.format() }}", "{{ '{:>3}'.format(1) }}", "{{ '{1}{}'.format(1, 2) }}", "{{ 'a'.center(3, 'xy') }}",
                          "{{ 'a'.split('') }}", "{{ ''.partition('') }}", "{{ 'a'.strip(1) }}", "{{ 'a'.find() }}"]):
    (out / f"method_error_{i:02}").write_text(text)
