"""Random templates that look like chat templates: what stands where it may stand, by its type.

jinja_generator.py writes anything anywhere, and much of it fails. Here little fails, so that long
templates with macros, recursion, namespaces and loops in loops are compared to their end.
"""

import random

SCHEMA_MACRO = """{%- macro schema(value, depth=0) -%}
{%- if value is mapping -%}{ {%- for k, v in value.items() -%}{{ ' ' * depth ~ k }}: {{ schema(v, depth + 1) }}
{%- if not loop.last %}, {% endif -%}{%- endfor -%} }
{%- elif value is iterable and value is not string -%}[{% for v in value %}{{ schema(v, depth + 1) }}{{ '|' if not loop.last }}{% endfor %}]
{%- else -%}{{ value|tojson if value is not undefined else 'nothing' }}{%- endif -%}
{%- endmacro -%}
"""
CONTENT_MACRO = """{% macro content_of(message, quiet=false) %}
{%- if message.content is string -%}
{{- message.content if not quiet else message.content|trim -}}
{%- elif message.content is iterable -%}
{%- for part in message.content -%}{%- if part is mapping and part.type == 'text' -%}{{ part.text }}{%- elif part is mapping -%}<{{ part.type }}>{%- endif -%}{%- endfor -%}
{%- elif message.content is none or message.content is undefined -%}
{%- else -%}{{ message.content|tojson(indent=2) }}{%- endif -%}
{% endmacro %}
"""
WRAP_MACRO = "{% macro wrap(tag, between='\\n') %}<{{ tag }}>{{ between }}{{ caller() if caller is defined else tag|upper }}</{{ tag }}>{% endmacro %}\n"
MACROS = {"schema": SCHEMA_MACRO, "content_of": CONTENT_MACRO, "wrap": WRAP_MACRO}

LITERALS = ["''", "'\\n'", "'a'", "'<|im_start|>'", "'user'", "\"it's\"", "' pad '", "'a,b,,c'", "'é€😀ß'",
            "'{}'", "'%'", "'</think>'", "'x\\ty'", "'\\u00e9'", "'Hello World'", "'<b>&\"'", "'ab' 'cd'", "'line\\n\\nline '",
            "'İI'", "'42'", "'ß ﬁ'"]
NEEDLES = ["'a'", "'</think>'", "','", "' '", "'\\n'", "'<|im_end|>'", "'é'", "'l'", "'ab'"]
TEXT_CHANGES = [".strip()", ".lstrip('\\n')", ".rstrip()", ".rstrip('\\n ')", ".strip('ab\\n')", ".upper()",
                ".lower()", ".title()", ".capitalize()", ".swapcase()", ".replace('a', 'bb')", ".replace('\\n', ' ', 1)",
                "|trim", "|upper", "|lower", "|title", "|capitalize", "|replace('l', 'L')", "|indent", "|indent(2, true)",
                "|indent(width=3, blank=true)", "|e", "|safe", "|string", "|default('d')", "|default('d', true)",
                "|truncate(9, true)", "|truncate(12)", "|center(11)", "|reverse", "|tojson", "|urlencode",
                "|list|join", "|list|join('.')", ".split()|join('_')", ".split(',')[0]", ".split('</think>')[-1]",
                ".split(' ', 1)[-1]", ".rsplit('\\n', 1)[0]", ".splitlines()|join('/')", ".partition(',')[2]",
                ".rpartition(' ')[0]", "[1:]", "[:-1]", "[::-1]", "[2:9:3]", "[-4:]", "|first|default('-')",
                "|last|default('-')", ".removeprefix('a')", ".removesuffix('\\n')", ".zfill(5)", ".ljust(6, '.')",
                ".rjust(8)", ".center(9, '*')", "|wordcount|string", "|forceescape", "|batch(3)|map('join')|join('/')",
                "|select('in', 'aeiou')|join", "|map('upper')|join", "|unique|join", "|sort|join", "|format",
                ".lstrip().rstrip('.')", "|replace('%', '%%')", "|int(7)|string", "|float(1.5)|string", "|int|string"]
TEXT_TESTS = [" is string", " is defined", " is not none", ".startswith('a')", ".endswith('\\n')", ".startswith(('<', ' '))",
              ".isdigit()", ".isspace()", ".isupper()", ".islower()", ".isalpha()", ".isalnum()", ".istitle()", " is iterable",
              " is sequence", " is mapping", " is lower", " is upper", " is equalto 'a'", "|length > 3", " == ''",
              " is in ['a', 'b']", " is true", " is boolean", " is escaped"]
NUMBER_CHANGES = [" + 1", " - 2", " * 3", " // 2", " % 3", " / 4", " ** 2", "|abs", "|float", "|int", "|round", "|round(1)",
                  "|round(0, 'ceil')", "|round(2, 'floor')", " * -1", " + 0.5", "|default(3)", " - -1"]
NUMBER_TESTS = [" > 1", " == 0", " is odd", " is even", " is divisibleby 3", " >= 2", " != 1", " is number", " is integer",
                " is float", " in [0, 1, 2]", " < 2.5", " is boolean", " is ge 2", " is lt(3)", " is sameas 1", " is not none"]
LOOP_NUMBERS = ["loop.index", "loop.index0", "loop.revindex", "loop.revindex0", "loop.length", "loop.depth", "loop.depth0"]
LOOP_TESTS = ["loop.first", "loop.last", "not loop.first", "not loop.last", "loop.changed(flag)", "loop.index is odd",
              "loop.previtem is defined", "loop.nextitem is undefined"]
FORMS = ["'%s: %s' % ({t}, {n})", "'%s' % {t}", "'%5s|%-6s|' % ({t}, {t})", "'%d%%' % {n}", "'%.2f' % {n}", "'%03d' % {n}",
         "'%s-%s'|format({t}, {t})", "'{{}} {{}}'.format({t}, {n})", "'{{0}}{{1}}{{0}}'.format({t}, {t})",
         "'{{a:>6}}'.format(a={t})", "'{{:.3f}}'.format({n})", "'%r' % ({t},)", "'{{!r}}'.format({t})"]
DATES = ["'%d %b %Y'", "'%Y-%m-%d'", "'%H:%M'", "'%B %d, %Y'", "'%A'", "'%H:%M:%S.%f %Z%z %%Z'"]
WORDS = ["user", "assistant", "Hello World", "", "a,b", " x ", "é€😀", "<think>\nhm\n</think>\n\nyes", "line\nline\n", "'q'", "\"",
         "<|im_end|>", "{}", "%s", "42", "3.5", "true", "null", "A", "\\", "tab\t", "ﬁß"]
NAMES = ["name", "city", "query", "type", "items", "a", "b", "ключ", "x y", "keys"]


class ChatGenerator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.scope = [("s", "text"), ("n", "number"), ("flag", "truth"), ("messages", "messages"), ("words", "texts"),
                      ("nums", "numbers"), ("d", "mapping"), ("ns.text", "text"), ("ns.n", "number"), ("ns.seen", "truth"),
                      ("bos_token", "text"), ("add_generation_prompt", "truth")]
        self.loops = 0
        self.in_macro = False
        self.used = set()

    def pick(self, options):
        return self.r.choice(options)

    def chance(self, share):
        return self.r.random() < share

    def variable(self, kind):
        return self.pick([name for name, held in self.scope if held == kind])

    def has(self, kind):
        return any(held == kind for _, held in self.scope)

    # Expressions of a type.
    def text(self, depth=2):
        kind = self.r.randrange(14)
        if depth <= 0 or kind < 2:
            return self.variable("text") if self.chance(0.6) else self.pick(LITERALS)
        if kind < 6:
            return f"({self.text(depth - 1)}){self.pick(TEXT_CHANGES)}"
        if kind == 6:
            return f"({self.any(depth - 1)} ~ {self.any(depth - 1)})"
        if kind == 7:
            return f"({self.text(depth - 1)} + {self.text(depth - 1)})"
        if kind == 8:
            return f"({self.text(depth - 1)} if {self.truth(depth - 1)} else {self.text(depth - 1)})"
        if kind == 9:
            form = self.pick(FORMS)
            return "(" + form.format(t=self.text(depth - 1), n=self.number(depth - 1)) + ")"
        if kind == 10:
            options = ["(%s)|tojson" % self.any(depth - 1), "(%s)|tojson(ensure_ascii=false)" % self.any(depth - 1),
                       "(%s)|tojson(indent=4)" % self.any(depth - 1),
                       "(%s)|tojson(separators=(',', ':'), sort_keys=true)" % self.texts(depth - 1)]
            return self.pick(options)
        if kind == 11:
            return f"({self.texts(depth - 1)})|join({self.pick(['', repr(', '), repr('|')])})"
        if kind == 12:
            return self.from_message(depth)
        return self.pick([f"({self.any(depth - 1)})|string", f"strftime_now({self.pick(DATES)})",
                          f"({self.text(depth - 1)} * {self.pick(['2', '0', 'loop.index' if self.loops else '3'])})",
                          self.macro_call(depth)])

    def macro_call(self, depth):
        name = self.pick(["schema", "content_of", "wrap"])
        self.used.add(name)
        if name == "schema":
            return f"schema({self.any(depth - 1)})"
        if name == "wrap":
            return f"wrap({self.text(0)}{self.pick(['', ', between=' + self.text(0)])})"
        return f"content_of({self.message()}{self.pick(['', ', true', ', quiet=flag'])})"

    def message(self):
        return self.variable("message") if self.has("message") else "messages[0]|default({})"

    def from_message(self, depth):
        m = self.message()
        m = m if "|" not in m else f"({m})"
        return self.pick([f"{m}.role|string", f"{m}['role']|default('none')", f"({m}.content or '')|string",
                          f"({m}.content if {m}.content is string else '')", f"{m}.get('name', 'none')|string",
                          f"{m}.content|default('', true)|string", f"({m}.reasoning_content|trim if {m}.reasoning_content is string else '')",
                          f"({m}.tool_calls|length)|string if {m}.tool_calls else '0'", f"({m}.missing)|string",
                          f"({m}.keys()|list|join(','))", f"{m}|tojson", f"({m}.tool_calls or [])|map(attribute='function.name')|join(',')"])

    def number(self, depth=2):
        kind = self.r.randrange(8)
        if depth <= 0 or kind < 2:
            return self.variable("number") if self.chance(0.6) else self.pick(["0", "1", "2", "-3", "10", "1.5", "0.1"])
        if kind < 5:
            return f"({self.number(depth - 1)}){self.pick(NUMBER_CHANGES)}"
        if kind == 5:
            return f"({self.pick([self.text, self.texts])(depth - 1)})|{self.pick(['length', 'count'])}"
        if kind == 6:
            return self.pick([f"({self.text(depth - 1)}).find({self.pick(NEEDLES)})", f"({self.text(depth - 1)}).count({self.pick(NEEDLES)})",
                              "nums|sum", "nums|max", "nums|min", "nums|first", "nums[-1]", "messages|length",
                              f"(nums|map('abs')|sum(start={self.number(0)}))"])
        return self.pick(LOOP_NUMBERS) if self.loops else f"({self.number(depth - 1)} + {self.number(depth - 1)})"

    def truth(self, depth=2):
        kind = self.r.randrange(12)
        if depth <= 0 or kind == 0:
            return self.pick([self.variable("truth"), "true", "tools", "tools is defined", "flag", "not flag"])
        if kind < 4:
            return f"({self.text(depth - 1)}){self.pick(TEXT_TESTS)}"
        if kind < 6:
            return f"({self.number(depth - 1)}){self.pick(NUMBER_TESTS)}"
        if kind == 6:
            return f"({self.pick(NEEDLES)} {self.pick(['in', 'not in'])} {self.text(depth - 1)})"
        if kind == 7:
            return f"({self.truth(depth - 1)} {self.pick(['and', 'or'])} {self.truth(depth - 1)})"
        if kind == 8:
            return f"(not {self.truth(depth - 1)})"
        if kind == 9:
            m = self.message()
            m = m if "|" not in m else f"({m})"
            return self.pick([f"{m}.role == 'user'", f"{m}.tool_calls", f"{m}.content is string", f"{m}.content is none",
                              f"{m}.tool_calls is defined and {m}.tool_calls", f"'content' in {m}", f"{m}.role in ['tool', 'user']",
                              f"{m}.content is iterable and {m}.content is not string", f"{m} is mapping", f"{m}['role'] != \"system\""])
        if kind == 10 and self.loops:
            return self.pick(LOOP_TESTS)
        return f"({self.any(depth - 1)} {self.pick(['==', '!='])} {self.any(depth - 1)})"

    def texts(self, depth=2):
        kind = self.r.randrange(9)
        if depth <= 0 or kind < 2:
            return self.variable("texts")
        if kind == 2:
            return f"({self.text(depth - 1)}).split({self.pick(['', *NEEDLES])})"
        if kind == 3:
            return f"[{self.text(depth - 1)}, {self.text(depth - 1)}]"
        if kind == 4:
            return self.pick(["messages|map(attribute='role')|list", "messages|selectattr('role', 'equalto', 'user')|map(attribute='role')|list",
                              "messages|rejectattr('role', 'in', ['system', 'tool'])|map(attribute='role')|list", "d.keys()|list",
                              "d|list", "d|dictsort|map('first')|list", "d|items|map('first')|list",
                              "messages|map(attribute='name', default='?')|list", "messages|groupby('role')|map(attribute='grouper')|list",
                              "messages|selectattr('tool_calls', 'defined')|map(attribute='role')|list",
                              "(tools or [])|map(attribute='function')|map(attribute='name')|list",
                              "messages|selectattr('content', 'string')|map(attribute='content')|list",
                              "(messages|groupby('role')|first|default(('', [])))[1]|map(attribute='role')|list"])
        if kind < 7:
            return f"({self.texts(depth - 1)})" + self.pick(["|map('upper')|list", "|map('trim')|list", "|select|list", "|reject('none')|list",
                                                          "|unique|list", "|sort|list", "|sort(reverse=true)", "|reverse|list", "[1:]", "[:-1]", "[::-1]",
                                                          "|sort(case_sensitive=true)", "|select('string')|list", "|reject('equalto', '')|list",
                                                          "|map('replace', 'a', 'o')|list", "|map('default', 'x', true)|list", "|list", "|batch(2)|map('join')|list",
                                                          "|slice(2)|map('join', '.')|list", "|map('string')|list", "|select('ne', 'a')|list", "[-2:]", "[0:3:2]"])
        if kind == 7:
            return f"({self.texts(depth - 1)} + {self.texts(depth - 1)})"
        return f"({self.texts(depth - 1)} if {self.truth(depth - 1)} else [])"

    def any(self, depth=2):
        kind = self.r.randrange(12)
        if depth <= 0 or kind < 3:
            return self.text(depth)
        if kind < 6:
            return self.pick([self.number, self.truth, self.texts])(depth - 1)
        if kind == 6:
            return "{" + f"'{self.pick(NAMES)}': {self.any(depth - 1)}, {self.text(0)}: {self.any(depth - 1)}" + "}"
        if kind == 7:
            return f"[{self.any(depth - 1)}, {self.any(depth - 1)}]"
        if kind == 8:
            return self.pick(["none", "d", "tools", "nums", "nested", "1e-7", "2.0", "true", "d.missing", "()", "(1, 'a')", "{}"])
        if kind == 9:
            return self.pick(["d.items()|list", "d|dictsort", "d|dictsort(by='key', reverse=true)", "nested|first", "nested|last", "nums|list",
                              "range(4)|list", "dict(d, extra=1)", "dict(a=1)", "d.get('name')", "d['name']", "d.items|string|length > 0", "d.values()|list",
                              "nums|select('odd')|list", "nums|batch(2, 0)|list", "nums|slice(2)|list", "nums|sort(reverse=true)", "nums|map('string')|list"])
        return self.variable(self.pick([held for _, held in self.scope if held not in ("message", "mapping")]))

    # Statements.
    def tag(self, inside):
        return self.pick(["{%", "{%-", "{%-", "{%"]) + f" {inside} " + self.pick(["%}", "%}", "-%}"])

    def out(self, expression):
        return self.pick(["{{", "{{-"]) + f" {expression} " + self.pick(["}}", "-}}"])

    def filler(self):
        return self.pick(["", "\n", "\n    ", " ", "<|im_start|>", "text\n", "\n\n", "  \n", "\t{# note #}\n", "{#- note -#}", "# ", "é"])

    def body(self, depth):
        kept = list(self.scope)
        parts = [self.filler()]
        for _ in range(self.r.randrange(1, 4)):
            parts += [self.statement(depth), self.filler()]
        self.scope = kept
        return "".join(parts)

    def statement(self, depth):
        kind = self.r.randrange(100)
        if depth <= 0 or kind < 28:
            return self.out(self.text(3) if self.chance(0.7) else self.any(3))
        if kind < 44:
            return self.branches(depth)
        if kind < 62:
            return self.loop(depth)
        if kind < 76:
            return self.assignment()
        if kind < 81:
            name = self.pick(["t1", "t2", "ns.text"])
            change = self.pick(["", "", " | trim", " | upper", " | replace('a', 'b') | trim", " | indent(2)"])
            text = self.tag(f"set {name}{change}") + self.body(depth - 1) + self.tag("endset")
            if name != "ns.text":
                self.scope.append((name, "text"))
            return text
        if kind < 84:
            return self.tag("filter " + self.pick(["trim", "upper", "indent(2)", "replace('a', 'e')", "trim | lower", "e"])) + \
                self.body(depth - 1) + self.tag("endfilter")
        if kind < 87:
            self.used.add("wrap")
            return self.tag(f"call wrap({self.text(0)})") + self.inner_body(depth) + self.tag("endcall")
        if kind < 90:
            self.scope, kept = self.scope + [("w", "text"), ("k", "number")], self.scope
            text = self.tag(f"with w = {self.text(1)}, k = {self.number(1)}") + self.body(depth - 1) + self.tag("endwith")
            self.scope = kept
            return text
        if kind < 94:
            return self.tag("generation") + self.inner_body(depth) + self.tag("endgeneration")
        if kind < 96:
            return "{% raw %}{{ raw }} {% if %}{% endraw %}"
        if kind < 98 and self.loops:
            return self.tag(f"if {self.truth(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
        return self.tag(f"if not {self.truth(2)} and flag and n > 2") + self.out("raise_exception('No: ' ~ s)") + self.tag("endif")

    # What is a function of its own in jinja2 does not see the loop around it.
    def inner_body(self, depth):
        loops, self.loops = self.loops, 0
        text = self.body(depth - 1)
        self.loops = loops
        return text

    def branches(self, depth):
        text = self.tag("if " + self.truth(2)) + self.body(depth - 1)
        for _ in range(self.r.randrange(0, 3)):
            text += self.tag("elif " + self.truth(2)) + self.body(depth - 1)
        if self.chance(0.6):
            text += self.tag("else") + self.body(depth - 1)
        return text + self.tag("endif")

    def assignment(self):
        kind = self.r.randrange(8)
        if kind < 2:
            name = self.pick(["t1", "t2"])
            text = self.tag(f"set {name} = {self.text(3)}")
            self.scope.append((name, "text"))
        elif kind == 2:
            text = self.tag(f"set ns.text = {self.pick(['ns.text ~ ', ''])}{self.text(2)}")
        elif kind == 3:
            text = self.tag(f"set ns.n = {self.pick(['ns.n + 1', self.number(2)])}")
        elif kind == 4:
            text = self.tag(f"set ns.seen = {self.truth(2)}")
        elif kind == 5:
            text = self.tag(f"set l1 = {self.texts(2)}")
            self.scope.append(("l1", "texts"))
        elif kind == 6:
            text = self.tag(f"set k1, t1 = {self.number(1)}, {self.text(1)}")
            self.scope += [("k1", "number"), ("t1", "text")]
        else:
            text = self.tag(f"set messages = messages[{self.pick(['1:', ':-1', '::-1', ':', '-2:'])}]") if self.chance(0.4) else \
                self.tag(f"set k1 = {self.number(2)}")
            if "k1" in text:
                self.scope.append(("k1", "number"))
        return text

    def loop(self, depth):
        kind = self.r.randrange(9)
        target, items, bound = {
            0: ("message", "messages", [("message", "message")]), 1: ("message", self.pick(["messages[::-1]", "messages[1:]", "messages|reverse"]), [("message", "message")]),
            2: ("word", self.texts(2), [("word", "text")]), 3: ("i", self.pick(["range(3)", "nums", "range(2, 8, 2)", "range(n)"]), [("i", "number")]),
            4: ("key, value", self.pick(["d.items()", "d|items", "d|dictsort"]), [("key", "text")]),
            5: ("tool", "tools or []", [("tool.function.name", "text"), ("tool", "mapping")]),
            6: ("call", f"({self.message()}).tool_calls or []", [("call.function.name", "text"), ("(call.function.arguments|string)", "text")]),
            7: ("group, held", "messages|groupby('role')", [("group", "text"), ("held", "messages")]),
            8: ("character", f"({self.text(1)})[:5]", [("character", "text")])}[kind]
        test = f" if {bound[0][0]} is {self.pick(['defined', 'not none', 'string', 'not mapping'])}" if self.chance(0.15) else ""
        if kind < 2 and self.chance(0.2):
            test = f" if {self.pick(['message.role != ' + repr('system'), 'message.content', 'not ns.seen'])}"
        recursive = self.chance(0.08)
        self.scope, kept = self.scope + bound, self.scope
        self.loops += 1
        body = self.body(depth - 1)
        if self.chance(0.5):
            body += self.pick(["{{ ', ' if not loop.last }}", "{{ loop.index }}", "{{ loop.cycle('a', 'b', 'c') }}", "{{ loop.changed(loop.index // 2) }}",
                               "{% if loop.first %}F{% endif %}", "{{ loop.previtem|string|length }}", "{{ loop.nextitem is defined }}",
                               "{{ loop.length - loop.index0 }}", "{% if loop.index0 == 1 %}{% continue %}{% endif %}-"])
        if recursive:
            body += "{% if loop.depth < 3 %}{{ loop(" + items + ") }}{% endif %}"
        self.loops -= 1
        self.scope = kept
        otherwise = self.tag("else") + self.body(depth - 1) if self.chance(0.2) else ""
        return self.tag(f"for {target} in {items}{test}{' recursive' if recursive else ''}") + body + otherwise + self.tag("endfor")

    def template(self):
        depth = self.r.randrange(1, 5)
        body = "".join(self.body(depth) for _ in range(self.r.randrange(1, 3)))
        start = "{%- set ns = namespace(text='', n=0, seen=false) %}" + self.pick(["", "\n"])
        return start + "".join(MACROS[name] for name in sorted(self.used)) + body + \
            self.pick(["", "\n", "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n"])

    # Variables.
    def plain(self, depth=2):
        kind = self.r.randrange(8)
        if kind < 3 or depth <= 0:
            return self.pick(WORDS)
        if kind < 5:
            return self.pick([0, 1, -7, 3.5, 1e-7, 1e22, 2**53 + 1, True, False, None])
        if kind < 6:
            return [self.plain(depth - 1) for _ in range(self.r.randrange(0, 3))]
        return {self.pick(NAMES): self.plain(depth - 1) for _ in range(self.r.randrange(0, 4))}

    def random_message(self):
        role = self.pick(["user", "assistant", "system", "tool", "user", "assistant"])
        message = {"role": role, "content": self.pick(WORDS)}
        if self.chance(0.15):
            message["content"] = self.pick([None, "", [{"type": "text", "text": self.pick(WORDS)}, {"type": "image"}],
                                            [{"type": "text", "text": self.pick(WORDS)}], {"a": self.plain(1)}])
        if role == "assistant" and self.chance(0.4):
            message["tool_calls"] = [{"id": f"call{i}", "type": "function", "function": {
                "name": self.pick(NAMES), "arguments": self.pick([{self.pick(NAMES): self.plain(2)}, {}, "{\"a\": 1}"])}}
                for i in range(self.r.randrange(0, 3))]
        if role == "assistant" and self.chance(0.3):
            message["reasoning_content"] = self.pick(WORDS)
        if role == "tool" and self.chance(0.5):
            message["name"] = self.pick(NAMES)
        return message

    def tool(self):
        return {"type": "function", "function": {"name": self.pick(NAMES), "description": self.pick(WORDS), "parameters": {
            "type": "object", "properties": {self.pick(NAMES): {"type": self.pick(["string", "integer", ["string", "null"]])}
                                             for _ in range(self.r.randrange(0, 3))}, "required": [self.pick(NAMES)]}}}

    def variables(self):
        return {"messages": [self.random_message() for _ in range(self.r.randrange(0, 6))],
                "tools": self.pick([None, [], [self.tool()], [self.tool(), self.tool()]]),
                "s": self.pick(WORDS), "n": self.r.randrange(0, 5), "flag": self.chance(0.5),
                "words": [self.pick(WORDS) for _ in range(self.r.randrange(0, 5))],
                "nums": [self.r.randrange(-5, 50) for _ in range(self.r.randrange(1, 5))],
                "d": {name: self.plain(2) for name in self.r.sample(NAMES, self.r.randrange(0, 5))},
                "nested": [[1, [2, "a"]], {"a": {"b": [None, 1.5]}}], "bos_token": "<s>", "eos_token": "</s>",
                "add_generation_prompt": self.chance(0.5)}
