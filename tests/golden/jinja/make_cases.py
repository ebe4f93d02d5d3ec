#!/usr/bin/env python3
"""Writes cases.json: what jinja2 (3.1.6) prints for the templates below and for some random ones,
and conversations.json: what it prints for a checkpoint's template over many conversations.

    python3 tests/golden/jinja/make_cases.py      # needs: pip install jinja2==3.1.6
"""

import json
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../runtime/jinja"))

import conversations  # noqa: E402
import jinja_oracle  # noqa: E402
from chat_generator import ChatGenerator  # noqa: E402
from jinja_fuzz import has_address  # noqa: E402
from jinja_generator import Generator  # noqa: E402

EXPRESSIONS = r"""
True
none
1e20
1e-7
1e17
0.1 + 0.2
[1, none, 'x', {'a': true}]
('a',)
"it's"
'"' ~ "'"
5 / 2
4 / 2
-7 // 2
-7 % 3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
'a' * 3
1 + true
'x' is iterable
'x' is sequence
{} is sequence
{} is mapping
[] is mapping
true is number
true is integer
1 is boolean
1 == 1.0
'' or 'y'
1 and 0
none or []
{'items': 1}.items
{'items': 1}['items']
{'a': 1}.missing
{'a': 1}.missing.x
nothing.x
nothing.x.y
undef
undef.x
undef|length
none|length
'a' in none
'a' in undef
undef|tojson
none|default('q')
none|default('q', true)
undef|default('q')
'a' if false
('a' if false) is undefined
1 + 'a'
'a' + 1
'a' ~ 1
'%s-%d'|format('a', 2)
'%s' % 'a'
'%5.2f|%-4d|%04d|%x' % (3.14159, 7, 7, 255)
'{} {}'.format(1, 'b')
'{0}{k:>4}'.format('a', k=2)
'a,b,c'.split(',', 1)
' a  b '.split()
' a  b '.split(' ')
'a b c'.rsplit(' ', 1)
'xxaxx'.strip('x')
'\n a \n'|trim
'\u00e9\x41\q\n'|tojson
'a' 'b' "c"
'abc'[::-1]
'héé😀'[1:3]
'héé😀'|length
'héé😀'[-1]
[1, 2, 3][-2:]
[1, 2, 3][5]
[1, 2, 3][::-2]
(1, 2, 3)[1:]
none[1:]
{'b': 1, 'a': 2}|dictsort
{'b': 1, 'a': 2}|tojson(sort_keys=true)
{'b': [1, {}], 'é': 'ü'}|tojson(indent=2)
{'b': 'ü😀\u007f'}|tojson(ensure_ascii=true)
[1, 2]|tojson(separators=(',', ':'))
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
'</script>&'|tojson
[3, 1, 2]|sort
['b', 'A', 'c']|sort
['b', 'A', 'c']|sort(case_sensitive=true, reverse=true)
[1, 'a']|sort
['a', 'A', 'b']|unique|list
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3]|select('odd')|list
[1, none, 2]|reject('none')|list
messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list
messages|map(attribute='missing', default='d')|join(',')
messages|rejectattr('role', 'eq', 'user')|list|length
[1, 2, 3]|sum
[1, 2, 3]|min
[]|max
[]|first
'abc'|first
'abc'|last
'abc'|reverse
[1, 2]|reverse|list
'abc'|list
'hello world-wide'|title
'hello world'.title()
'hELLO'|capitalize
'ßﬁ'|upper
'ΑΣ'|lower
'a\nb\n\nc'|indent
'a\nb'|indent(2, true)
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar'|wordcount
'42'|int
'42.7'|int
'x'|int(7)
'0x1f'|int(0, 16)
'3.5'|float
42.55|round
42.55|round(1, 'floor')
-3|abs
'<a>'|e
('<a>'|safe) + '<b>'
('<a>'|e) ~ '<b>'
'a' < 'b' < 'c'
[1, 2] < [1, 3]
1 < 'a'
'a' in 'abc'
1 in [1, 2]
1 in 'a'
'k' in {'k': 1}
2 not in [1]
not true and false
range(3)
range(5, 0, -2)|list
range(3)|length
dict(a=1, b=2)
namespace(a=1).a
namespace(a=1)
'a' is string and 'a' is not number
3 is divisibleby 3
3 is odd
'A' is upper
x is defined and x
messages[0].role
messages[0]['content']
messages[-1].content|length
messages|first
(messages|last)['role']
messages|length > 1
messages|tojson
18446744073709551615 + 1
9007199254740993
true + true
'a'.upper
'{:>8.3f}|{:<5}|{:^5}|{:+d}'.format(3.14159, 'a', 'b', 5)
'%c%c' % ('a', 66)
'%(k)s' % {'k': 1}
'a'.startswith(('b', 'a'))
'abc'.find('c')
'a-b'.partition('-')
'7'.zfill(3)
'a\tb\r\nc'.splitlines()
[['a', 1], ['b', 2]]|map('first')|list
{'a': 1}.get('b', 'z')
{'a': 1}.items()|list
{'a': 1}|items|list
strftime_now('%d %b %Y')
raise_exception('stop')
'x'|nofilter
'x' is notest
lipsum
joiner('-')()
[1, [2, 'x']]|string
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i is even %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}",
    "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1] %}{% break %}{% else %}E{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }},{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1]] %}{{ a }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 10 %}{{ x }} {% endfor %}{{ x }}",
    "{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% for i in [1] %}{% if false %}{% set x = 5 %}{% endif %}{{ x }}{% endfor %}",
    "{% for i in [1] %}{{ x }}{% endfor %}{% set x = 2 %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set d = {} %}{% set d.a = 1 %}",
    "{% for i in [1, 2] %}{% for j in [7, 8] %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "{% macro m(a, b='d', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m() }}{{ m(1) }}{{ m(1, c=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 3 %}{{ m() }}",
    "{% macro m() %}{{ i }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(f) %}{% if f %}{{ f }}{{ m(f - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}<{{ caller('q') }}>{% endmacro %}{% call(x) m() %}{{ x }}!{% endcall %}",
    "{% set x %}a{{ 1 }}{% endset %}{{ x|upper }}{% filter upper %}b{{ x }}{% endfilter %}",
    "{% set x | trim | upper %}  ab  {% endset %}[{{ x }}]",
    "{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% generation %}{% set q = 1 %}x{{ q }}{% endgeneration %}{{ q }}",
    "{% raw %}{{ x }}{% endraw %}{# c #}|{#- c -#}  |",
    "a  \n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {{ 1 }}\n{%- if true -%}\n  b  \n{%- endif %}\n\nc\n\n",
    "  {%+ if true +%}\n x{% endif %}",
    "{{ '\n' }}{%- set x = 1 -%}\n\n  {{- x -}}  \n z",
    "\r\na\r{% if 1 %}\r\nb{% endif %}\r\n",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}",
    "{% set a, b = 1 %}",
    "{% print 1, 2 %}{%- print 'x' -%}  y",
    "{{ {'a': {'b': [1, 2]}}.a.b.1 }}{{ [[1, 2]].0.1 }}",
    "{% if x is defined %}d{% elif y %}y{% else %}n{% endif %}",
    "{% set ns = namespace(f=false) %}{% for i in [1, 2, 3] if not ns.f %}{{ i }}{% set ns.f = i == 2 %}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('x', 'y') }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ m.role }}{{ loop.index }}{% endfor %}",
    "{%- for m in messages -%}\n<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor -%}\n{% if add %}<|im_start|>assistant\n{% endif %}",
    "{{ foo('a'", "{% if %}", "{{ }}", "{{ a b }}", "{{ 'a }}", "{# x", "{% raw %}", "{% endif %}", "{{ a.1.2 }}", "{{ a[1:2, 3] }}",
    "{% break %}", "{% for loop in x %}{% endfor %}", "{% set 1 = 2 %}", "{{ f(a=1, a=2) }}", "{% macro m(a, a) %}{% endmacro %}",
    "{{ x is defined is none }}", "{{ (1 }}", "{{ [1 }}", "{% for x in %}{% endfor %}", "{{ 1|  }}", "{{ _x }}{{ x._y }}",
    "{{ 'a'|map }}", "{{ messages.append(1) if false }}ok", "{% if false %}{{ 1|nofilter }}{% endif %}ok",
]

MESSAGES = [{"role": "user", "content": " Héllo <b> "}, {"role": "assistant", "content": "", "n": 1}]
RANDOM_CASES = 120
CHAT_CASES = 80
CHECKPOINT = os.path.join(HERE, "../demo-moe-mlx-4bit/chat_template.jinja")


def chat_cases(env):
    """Random templates that look like chat templates, with their variables."""
    number = 0
    cases = []
    while len(cases) < CHAT_CASES:
        generator = ChatGenerator(f"golden/{number}")
        number += 1
        template, variables = generator.template(), generator.variables()
        text = jinja_oracle.render(env, template, variables)[0]
        if len(template) < 1500 and text and len(text) < 1500:
            cases.append((template, variables))
    return cases


def write_json(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=0, separators=(",", ":"))
        file.write("\n")


def write_conversations(env):
    with open(CHECKPOINT, encoding="utf-8") as file:
        template = file.read()
    renderings = []
    for name, messages in conversations.CONVERSATIONS.items():
        for tools in (None, conversations.TOOLS["tools"]):
            variables = {"messages": messages, "tools": tools, "add_generation_prompt": True}
            renderings.append({"conversation": name, "with_tools": tools is not None,
                               "text": jinja_oracle.render(env, template, variables)[0]})
    write_json("conversations.json", {"conversations": conversations.CONVERSATIONS,
                                      "tools": conversations.TOOLS["tools"], "renderings": renderings})


def main():
    warnings.simplefilter("ignore")
    env = jinja_oracle.environment(0)
    cases = [("{{ " + source + " }}", {"messages": MESSAGES, "nothing": None, "x": 3}) for source in EXPRESSIONS]
    cases += [(source, {"messages": MESSAGES, "add": True}) for source in TEMPLATES]
    for number in range(4 * RANDOM_CASES):
        generator = Generator(f"golden/{number}")
        template, variables = generator.template(), generator.variables()
        if len(template) < 400 and jinja_oracle.render(env, template, variables)[0]:
            cases.append((template, variables))
        if len(cases) == len(EXPRESSIONS) + len(TEMPLATES) + RANDOM_CASES:
            break
    cases += chat_cases(env)
    written = []
    for template, variables in cases:
        text, _ = jinja_oracle.render(env, template, variables)
        if text is None or not has_address(text):
            written.append({"template": template, "variables": variables, "text": text})
    write_json("cases.json", written)
    write_conversations(env)
    print(f"{len(written)} cases, {sum(case['text'] is None for case in written)} of them errors")


if __name__ == "__main__":
    main()
