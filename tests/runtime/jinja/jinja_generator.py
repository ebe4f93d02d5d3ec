"""Random templates and conversations, most of them valid and all of them small."""

import random

TEXT_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "string", "safe", "e", "escape",
                "forceescape", "wordcount", "urlencode", "length", "count", "list", "first", "last",
                "reverse", "int", "float", "trim('ab ')", "center(7)", "indent", "indent(2)",
                "indent(2, true)", "indent('> ', first=true, blank=true)", "replace('a', 'XY')",
                "replace('', '-')", "replace('a', 'b', 1)", "truncate(5)", "truncate(5, true)",
                "truncate(4, false, '', 0)", "default('D')", "default('D', true)", "d", "tojson",
                "tojson(ensure_ascii=true)", "int(7)", "int('q', 16)", "int(base=0)", "unique|list",
                "batch(2)|list", "slice(3)|list", "sort", "join('+')", "min", "max", "map('upper')|list",
                "select('in', 'abc')|join", "attr('upper')", "abs", "round", "sum"]
LIST_FILTERS = ["length", "first", "last", "list", "join", "join(', ')", "join('-', attribute='role')",
                "reverse|list", "sort", "sort(reverse=true)", "sort(attribute='n')",
                "sort(attribute='role,n')", "sort(case_sensitive=true)", "unique|list",
                "unique(attribute='role')|list", "map('upper')|list", "map(attribute='role')|list",
                "map(attribute='n', default=0)|list", "map('default', 'x')|list",
                "map('length')|list", "map('tojson')|join", "select|list", "reject|list",
                "select('string')|list", "reject('none')|list", "select('odd')|list",
                "select('equalto', 1)|list", "select('gt', 1)|list", "selectattr('role')|list",
                "selectattr('role', 'equalto', 'user')|list", "rejectattr('n')|list",
                "selectattr('n', 'defined')|list", "rejectattr('content', 'none')|list", "min", "max",
                "min(attribute='n')", "max(attribute='n')", "sum", "sum(start=2)",
                "sum(attribute='n')", "tojson", "tojson(indent=2)", "tojson(separators=(',', ':'))",
                "tojson(sort_keys=true)", "tojson(indent=1, ensure_ascii=true)", "string",
                "batch(2)|list", "batch(3, 'f')|list", "slice(2)|list", "slice(3, 'f')|list",
                "default([])", "groupby('role')", "groupby('n', default=0)", "items|list",
                "dictsort", "first|string", "map('int')|list", "map('first')|list"]
DICT_FILTERS = ["items|list", "dictsort", "dictsort(reverse=true)", "dictsort(by='value')",
                "dictsort(true)", "length", "list", "tojson", "tojson(indent=3)",
                "tojson(sort_keys=true)", "first", "join(',')", "string", "default({})", "sort",
                "map('upper')|list", "items|map('first')|list", "items|length", "last", "max"]
NUMBER_FILTERS = ["abs", "int", "float", "round", "round(1)", "round(2, 'floor')", "round(0, 'ceil')",
                  "string", "tojson", "default(3)", "filesizeformat", "filesizeformat(true)",
                  "length", "upper", "list", "round(method='floor')"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean",
         "true", "false", "number", "integer", "float", "odd", "even", "callable", "lower", "upper",
         "escaped", "divisibleby 2", "divisibleby(3)", "equalto 1", "equalto('a')", "eq(2)", "ne 1",
         "gt 1", "lt(2)", "ge 0", "le 3", "in [1, 'a']", "in('abc')", "sameas none", "sameas(true)",
         "filter", "test"]
TEXT_METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "strip('a ')",
                "rstrip('\\n')", "split()", "split(',')", "split(' ', 1)", "split('a')",
                "rsplit(None, 1)", "rsplit(',', 1)", "splitlines()", "splitlines(true)", "title()",
                "capitalize()", "swapcase()", "startswith('a')", "startswith(('a', 'b'))",
                "endswith('b')", "endswith(('c',), 1)", "replace('a', 'bb')",
                "replace('a', 'b', 1)", "find('a')", "rfind('b', 1)", "index('a')", "count('a')",
                "count('')", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()",
                "islower()", "istitle()", "isnumeric()", "isdecimal()", "isascii()", "zfill(6)",
                "center(7, '*')", "center(6)", "ljust(5)", "rjust(6, '.')", "partition(',')",
                "rpartition('a')", "removeprefix('a')", "removesuffix('b')", "join(['1', '2'])",
                "join('xyz')", "format(1, 'a')", "encode", "items()", "get('a')"]
DICT_METHODS = ["items()", "keys()", "values()", "get('role')", "get('zz')", "get('zz', 1)", "copy()",
                "items()|list", "keys()|list", "values()|list", "role", "content", "n", "zz",
                "zz.zz", "items", "get", "upper()"]
LIST_METHODS = ["index(1)", "count('a')", "copy()", "0", "1", "9", "zz", "upper()", "items()"]
STRINGS = ["''", "'a'", "'ab c'", "\"x\"", "'a,b,c'", "'Hello, World'", "'  pad \\n'", "'ü€😀ß'",
           "'a\\tb\\\\c'", "'\\u00e9\\x41'", "'%s-%s'", "'{}{}'", "'{0!r:>6}'", "'%05.1f|%d'",
           "'<b>&'", "'line1\\nline2\\r\\nline3'", "'1_0'", "'0x1f'", "' 42 '", "'3.7'", "'-1e3'",
           "'inf'", "'q' 'r'", "'don\\'t'", "'\\q\\0'", "'aAbB'", "'ﬁΣς'", "'<|im_end|>'"]
NUMBERS = ["0", "1", "2", "-1", "3", "7", "10", "1.5", "0.1", "-2.5", "1e20", "1e-7", "2.0", "100",
           "1_000", "0x1F", "0b101", "0o17", "1.0e3", "123456789012345678", "1e16", "9007199254740993"]
NAMES = ["x", "y", "z", "s", "n", "f", "flag", "lst", "d", "messages", "tools", "nothing", "undef",
         "ns", "m1", "nested", "message", "x", "y", "s", "n"]
SAFE_LIST_FILTERS = [name for name in LIST_FILTERS if not any(
    word in name for word in ("role", "sum", "odd", "gt", "upper", "items", "dictsort", "'n'", "sort",
                              "min", "max", "map('length", "map('first"))] * 4 + LIST_FILTERS
SPECS = ["", "", "", "", "!r", "!s", "", ":>8", ":<6", ":^7", ":*^9", ":05", ":.2f", ":e", ":g", ":+d", ":x", ":#x", ":,", ":%",
         ":s", ":.2", ":b", ":08.3f", "!r", "!s", "!r:>8", ": d", ":_", ":o", ":E", ":<05"]
EXPONENTS = ["0", "1", "2", "3", "-1", "0.5", "true", "2.0"]
PERCENTS = ["%s", "%s", "%s", "%s", "%r", "%s", "%5s", "%-4s", "%d", "%5s", "%-5s|", "%05d", "%.2f", "%r", "%x", "%X", "%o", "%e", "%g", "%+d",
            "% d", "%%", "%c", "%.3s", "%5.1f", "%-8.3e|", "%i", "%#x", "%*d", "%.3d"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, options):
        return self.r.choice(options)

    def chance(self, share):
        return self.r.random() < share

    # Expressions.
    def expression(self, depth=3):
        kind = self.r.randrange(100)
        if depth <= 0 or kind < 12:
            return self.atom()
        if kind < 27:
            return self.text(depth - 1)
        if kind < 37:
            return self.list(depth - 1)
        if kind < 45:
            return self.dict(depth - 1)
        if kind < 55:
            return self.number(depth - 1)
        if kind < 63:
            return self.condition(depth - 1)
        if kind < 68:
            other = f" else {self.expression(depth - 1)}" if self.chance(0.8) else ""
            return f"({self.expression(depth - 1)} if {self.condition(depth - 1)}{other})"
        if kind < 73:
            op = self.pick(["or", "and"])
            return f"({self.expression(depth - 1)} {op} {self.expression(depth - 1)})"
        if kind < 78:
            return f"({self.expression(depth - 1)} ~ {self.expression(depth - 1)})"
        if kind < 83:
            if self.chance(0.9):
                return self.number(depth)
            op = self.pick(["+", "-", "*", "/", "//", "%", "**", "+", "+"])
            other = self.pick(EXPONENTS) if op in ("**", "*") else self.atom()
            return f"({self.expression(depth - 1)} {op} {other})"
        if kind < 88:
            return self.filtered(depth)
        if kind < 92:
            return self.attribute(depth)
        if kind < 96:
            return f"{self.postfix(depth)}[{self.subscript(depth - 1)}]"
        return self.call(depth - 1)

    def filtered(self, depth):
        if self.chance(0.08):
            return f"{self.postfix(depth)}|{self.pick(TEXT_FILTERS + LIST_FILTERS + DICT_FILTERS)}"
        if self.chance(0.5):
            return f"({self.text(depth - 1)})|{self.pick(TEXT_FILTERS)}"
        if self.chance(0.5):
            return f"({self.list(depth - 1)})|{self.pick(SAFE_LIST_FILTERS)}"
        return f"({self.dict(depth - 1)})|{self.pick(DICT_FILTERS)}"

    def attribute(self, depth):
        if self.chance(0.08):
            return f"{self.postfix(depth)}.{self.pick(TEXT_METHODS + DICT_METHODS + LIST_METHODS)}"
        if self.chance(0.5):
            return f"({self.text(depth - 1)}).{self.pick(TEXT_METHODS)}"
        return f"({self.dict(depth - 1)}).{self.pick(DICT_METHODS)}"

    def atom(self):
        kind = self.r.randrange(10)
        if kind < 5:
            return self.pick(NAMES)
        if kind < 7:
            return self.pick(STRINGS)
        if kind < 9:
            return self.pick(NUMBERS)
        return self.pick(["true", "false", "none", "[]", "{}", "()", "True", "None", "(1,)"])

    def postfix(self, depth):
        return self.atom() if self.chance(0.6) else f"({self.expression(depth - 1)})"

    def text(self, depth):
        kind = self.r.randrange(9)
        if depth <= 0 or kind < 2:
            return self.pick(STRINGS + ["s", "s", "m1.role", "m1.content", "messages[0].content"])
        if kind == 2:
            return f"{self.text(depth - 1)} + {self.text(depth - 1)}"
        if kind == 3:
            return f"({self.text(depth - 1)}).{self.pick(TEXT_METHODS)}"
        if kind == 4:
            return f"({self.text(depth - 1)})|{self.pick(TEXT_FILTERS)}"
        if kind == 5:
            return f"({self.text(depth - 1)})[{self.subscript(depth - 1)}]"
        if kind == 6:
            return self.brace_format(depth - 1)
        if kind == 7:
            return self.percent_format(depth - 1)
        return f"({self.expression(depth - 1)})|string"

    def brace_format(self, depth):
        fields = "".join(self.pick(["", "-", "{{", "}}"]) + "{" + self.pick(
            ["", "", "", "0", "1", "k", "0.role", "0[role]", "0[0]"]) + self.pick(SPECS) + "}"
            for _ in range(self.r.randrange(1, 3)))
        arguments = [self.expression(depth) for _ in range(self.r.randrange(1, 3))]
        if self.chance(0.2):
            arguments.append(f"k={self.expression(depth)}")
        return f"'{fields}'.format({', '.join(arguments)})"

    def percent_format(self, depth):
        count = self.r.randrange(1, 3)
        form = "".join(self.pick(PERCENTS) + self.pick(["", " "]) for _ in range(count))
        values = ", ".join(self.pick([self.expression(depth), self.pick(NUMBERS), self.pick(STRINGS)])
                           for _ in range(count))
        if self.chance(0.4):
            return f"'{form}'|format({values})"
        return f"('{form}' % ({values},))"

    def number(self, depth):
        kind = self.r.randrange(8)
        if depth <= 0 or kind < 2:
            return self.pick(NUMBERS + ["n", "f", "lst|length"])
        if kind < 5:
            op = self.pick(["+", "-", "*", "/", "//", "%", "**"])
            other = self.pick(EXPONENTS) if op == "**" else self.number(depth - 1)
            return f"({self.number(depth - 1)} {op} {other})"
        if kind == 5:
            return f"{self.pick(['-', '+'])}{self.number(depth - 1)}"
        if kind == 6:
            return f"({self.number(depth - 1)})|{self.pick(NUMBER_FILTERS)}"
        return f"({self.list(depth - 1)})|length"

    def list(self, depth):
        kind = self.r.randrange(9)
        if depth <= 0 or kind < 2:
            return self.pick(["lst", "messages", "tools", "nested", "[1, 2, 3]", "['b', 'A', 'c']",
                              "[1, 'a', none]", "(3, 1, 2)", "[[1, 2], [3, 4]]", "range(4)",
                              "[true, 1, 1.0, 0]"])
        if kind < 4:
            inner = ", ".join(self.expression(depth - 1) for _ in range(self.r.randrange(0, 4)))
            return f"[{inner}]"
        if kind == 4:
            return f"({self.list(depth - 1)})[{self.subscript(depth - 1)}]"
        if kind == 5:
            return f"({self.list(depth - 1)} + {self.list(depth - 1)})"
        if kind == 6:
            return f"range({self.pick(['5', '1, 6', '6, 1, -2', 'n', '0, 10, 3', '-2', '1, 1, 0'])})"
        if kind == 7:
            return f"({self.list(depth - 1)})|{self.pick(LIST_FILTERS)}"
        return f"({self.list(depth - 1)} * {self.pick(['2', '0', '-1', 'n'])})"

    def dict(self, depth):
        kind = self.r.randrange(6)
        if depth <= 0 or kind < 2:
            return self.pick(["d", "m1", "messages[0]", "{'a': 1, 'b': none}", "{'items': 1, 'get': 2}",
                              "{1: 'x', true: 'y', 1.5: 'z', none: 0}", "tools[0]", "{}"])
        if kind == 2:
            inner = ", ".join(f"{self.pick(STRINGS + NUMBERS + ['none', 'true', 'x'])}: "
                              f"{self.expression(depth - 1)}" for _ in range(self.r.randrange(0, 3)))
            return "{" + inner + "}"
        if kind == 3:
            return f"({self.dict(depth - 1)}).{self.pick(DICT_METHODS)}"
        if kind == 4:
            return f"({self.dict(depth - 1)})|{self.pick(DICT_FILTERS)}"
        return f"dict({self.dict(depth - 1)}, k={self.expression(depth - 1)})"

    def condition(self, depth):
        kind = self.r.randrange(8)
        if depth <= 0 or kind == 0:
            return self.pick(["flag", "x", "true", "false", "n > 1", "s is defined", "x is string", "s"])
        if kind < 3:
            negated = "not " if self.chance(0.3) else ""
            return f"({self.postfix(depth)} is {negated}{self.pick(TESTS)})"
        if kind < 5:
            op = self.pick(["==", "!=", "<", "<=", ">", ">="])
            if op[0] in "<>" and self.chance(0.9):
                return f"({self.number(depth - 1)} {op} {self.number(depth - 1)})"
            more = f" {self.pick(['<', '==', '!='])} {self.number(0)}" if self.chance(0.15) else ""
            return f"({self.expression(depth - 1)} {op} {self.expression(depth - 1)}{more})"
        if kind < 7:
            op = self.pick(["in", "not in"])
            if self.chance(0.9):
                return f"({self.text(depth - 1)} {op} {self.pick([self.text, self.list])(depth - 1)})"
            return f"({self.expression(depth - 1)} {op} {self.expression(depth - 1)})"
        return f"not {self.expression(depth - 1)}"

    def subscript(self, depth):
        kind = self.r.randrange(8)
        if kind < 2:
            return self.pick(["0", "1", "-1", "5", "-7", "n", "true"])
        if kind < 5:
            bound = ["", "1", "-1", "2", "-2", "9", "n", "-9", "none", "0"]
            step = self.pick(["", ":-1", ":2", ":", ":-2"]) if self.chance(0.5) else ""
            return f"{self.pick(bound)}:{self.pick(bound)}{step}"
        if kind < 7:
            return self.pick(["'role'", "'a'", "'items'", "'content'", "'zz'"])
        return self.expression(depth)

    def call(self, depth):
        kind = self.r.randrange(6)
        if kind < 3:
            arguments = [self.expression(depth) for _ in range(self.r.randrange(0, 2))]
            if self.chance(0.3):
                arguments.append(f"{self.pick(['q'] * 8 + ['p', 'zz'])}={self.expression(depth)}")
            if self.chance(0.02):
                arguments.append("*lst")
            if self.chance(0.02):
                arguments.append("**d")
            return f"{self.pick(['mac'] * 20 + ['mac2', 'nomac'])}({', '.join(arguments)})"
        if self.chance(0.6):
            return self.pick(["namespace(a=1)", "joiner('|')()", "cycler(1, 2).next()", "dict(a=1)",
                              "strftime_now('%Y-%m-%d %H')", "range(3)", "dict([('a', 1)], b=2)"])
        return self.pick(["namespace(a=1)", "joiner('|')()", "cycler(1, 2).next()", "loop.cycle(1, 'b')",
                          "loop.changed(x)", "caller()", "strftime_now('%Y-%m-%d %H')", "dict(a=1)",
                          "raise_exception('no')" if self.chance(0.1) else "loop.previtem",
                          "loop.nextitem", "loop.length", "loop.revindex", "ns.a", "loop.depth"])

    # Statements.
    def tag(self, inside):
        left = self.pick(["{%", "{%", "{%-", "{%-", "{%+"])
        right = self.pick(["%}", "%}", "-%}", "-%}", "+%}"])
        return f"{left} {inside} {right}"

    def output(self, depth=3):
        return f"{self.pick(['{{', '{{-', '{{', '{{+'])} {self.expression(depth)} {self.pick(['}}', '-}}'])}"

    def filler(self):
        return self.pick(["", " ", "\n", "  \n", "\n  ", "txt", " a\n", "\n\n", "\t", "<|im_start|>",
                          "} ", "# ", "é\n  ", "x \n", "{ " if self.chance(0.5) else "-"])

    def body(self, depth, loops):
        parts = [self.filler()]
        for _ in range(self.r.randrange(1, 4)):
            parts.append(self.statement(depth, loops))
            parts.append(self.filler())
        return "".join(parts)

    def target(self):
        return self.pick(["x", "y", "z", "message", "s", "d", "lst", "x", "message", "x, y", "k, v"])

    def statement(self, depth, loops):
        kind = self.r.randrange(100)
        if depth <= 0 or kind < 32:
            return self.output()
        if kind < 46:
            text = self.tag("if " + self.condition(2)) + self.body(depth - 1, loops)
            for _ in range(self.r.randrange(0, 2)):
                text += self.tag("elif " + self.condition(2)) + self.body(depth - 1, loops)
            if self.chance(0.5):
                text += self.tag("else") + self.body(depth - 1, loops)
            return text + self.tag("endif")
        if kind < 62:
            return self.loop(depth, loops)
        if kind < 76:
            target = self.pick(["x", "y", "z", "s", "x, y", "n", "ns.a", "ns.b", "lst", "flag", "ns"])
            if target.startswith("ns.") and self.chance(0.7):
                target = "x"
            value = "namespace(a=1, b=x)" if target == "ns" else self.expression(3)
            if "," in target and self.chance(0.7):
                value = f"{self.expression(1)}, {self.expression(1)}"
            return self.tag(f"set {target} = {value}")
        if kind < 80:
            filters = self.pick(["", "", " | upper", " | trim", " | replace('a', 'b')", " | length"])
            return self.tag(f"set {self.pick(['x', 'y', 's', 'ns.a'])}{filters}") + \
                self.body(depth - 1, loops) + self.tag("endset")
        if kind < 85:
            name = self.pick(["mac", "mac2"])
            parameters = self.pick(["", "p", "p, q=2", "p='d', q=p", "x, y=x", "p, caller=none", "q=n"])
            return self.tag(f"macro {name}({parameters})") + self.body(depth - 1, False) + \
                self.pick(["{{ p }}{{ q }}", "{{ x }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}",
                           "", "{{ caller(1) if caller }}"]) + self.tag("endmacro")
        if kind < 88:
            signature = self.pick(["", "(u)", "(u, w=1)"])
            return self.tag(f"call{signature} mac({self.pick(['', 'x', 'p=1', '1, 2'])})") + \
                self.body(depth - 1, False) + self.tag("endcall")
        if kind < 91:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(2)", "length", "e",
                                                   "replace(s, 'b')|title", "tojson"])) + \
                self.body(depth - 1, loops) + self.tag("endfilter")
        if kind < 93:
            pairs = self.pick(["x=1", "x=n, y=x", "z=" + self.expression(2), ""])
            return self.tag(f"with {pairs}") + self.body(depth - 1, loops) + self.tag("endwith")
        if kind < 95:
            return self.tag("generation") + self.body(depth - 1, False) + self.tag("endgeneration")
        if kind < 97:
            begin = self.pick(["{% raw %}", "{%- raw -%}", "{%+ raw %}", "{%raw%}"])
            return begin + self.pick(["{{ x }}", "{% if %}", " {#", "\n  "]) + self.tag("endraw")
        if kind < 98:
            return self.pick(["{# c #}", "{#- c -#}", "{# {{ x }} #}", "{#+ c +#}"])
        if loops:
            return self.tag("if " + self.condition(2)) + self.tag(self.pick(["break", "continue"])) + \
                self.tag("endif")
        return self.tag("print " + self.expression(2))

    def loop(self, depth, loops):
        test = f" if {self.condition(2)}" if self.chance(0.3) else ""
        recursive = " recursive" if self.chance(0.06) else ""
        head = f"for {self.target()} in {self.pick([self.list(2), self.list(2), self.expression(2), 'd.items()', 'd|items', 'nested'])}"
        body = self.body(depth - 1, True)
        if self.chance(0.6):
            body += self.pick(["{{ loop.index }}", "{{ loop.index0 }}/{{ loop.length }}", "{{ loop.first }}",
                               "{{ ', ' if not loop.last }}", "{{ loop.previtem }}", "{{ loop.nextitem }}",
                               "{{ loop.revindex }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}",
                               "{% if loop.last %}L{% endif %}", "{{ loop }}", "{{ loop.revindex0 }}",
                               "{{ message.role }}", "{{ x }}{{ y }}"])
        if recursive and self.chance(0.5):
            body += "{{ loop(x) if x is iterable and x is not string and loop.depth < 4 }}"
        otherwise = self.tag("else") + self.body(depth - 1, loops) if self.chance(0.2) else ""
        return self.tag(head + test + recursive) + body + otherwise + self.tag("endfor")

    def template(self):
        text = self.body(self.r.randrange(1, 4), False)
        if self.chance(0.2) or "ns." in text and self.chance(0.95):
            text = "{% set ns = namespace(a=1, b='q') %}" + text
        if "mac(" in text and self.chance(0.9):
            text = "{% macro mac(p, q=2) %}<{{ p }}{{ q }}{{ caller() if caller }}>{% endmacro %}" + text
        if self.chance(0.08):
            text = self.damaged(text)
        return text

    # A template with a few characters missing, doubled or swapped.
    def damaged(self, text):
        for _ in range(self.r.randrange(1, 4)):
            if len(text) < 4:
                break
            at = self.r.randrange(len(text) - 2)
            size = self.r.randrange(1, 4)
            change = self.r.randrange(3)
            if change == 0:
                text = text[:at] + text[at + size:]
            elif change == 1:
                text = text[:at] + text[at:at + size] + text[at:]
            else:
                text = text[:at] + self.pick(["%}", "{{", "}}", "(", ")", "|", "'", "-", ".", " ", "{%", "#}",
                                              "\r\n", "\n", "é", "[", "]", ":", "1", "not ", "is "]) + text[at:]
        return text

    # Variables.
    def plain(self, depth=2):
        kind = self.r.randrange(9)
        if kind < 3 or depth <= 0:
            return self.pick(["", "a", "hello", "A b,c", "ünï €😀", " x \n y ", "<|im_end|>", "'q'", "\"",
                              "1", "user", "\\", "a<b>&c", "\x7f\x01", "ab\u2028c", "tab\t"])
        if kind == 3:
            return self.pick([0, 1, -1, 2, 3, 42, 2**53 + 1, -2**63, 2**64 - 1, 1000000])
        if kind == 4:
            return self.pick([0.5, 1.0, -2.25, 1e20, 1e-7, 3.14159, 0.1, 1e300, 123456.789, -0.0])
        if kind == 5:
            return self.pick([True, False, None])
        if kind < 8:
            return [self.plain(depth - 1) for _ in range(self.r.randrange(0, 4))]
        return {self.pick(["role", "content", "a", "b", "items", "n", "ключ", "x y"]): self.plain(depth - 1)
                for _ in range(self.r.randrange(0, 4))}

    def message(self):
        message = {"role": self.pick(["user", "assistant", "system", "tool"]),
                   "content": self.pick(["hi", "", None, "Hello\n", " a <think>b</think> c", self.plain(1)])}
        if self.chance(0.4):
            message["n"] = self.r.randrange(4)
        if self.chance(0.2):
            message["tool_calls"] = [{"function": {"name": "f", "arguments": self.plain(2)}}]
        return message

    def variables(self):
        values = {"messages": [self.message() for _ in range(self.r.randrange(0, 4))],
                  "tools": self.pick([None, [{"name": "f", "parameters": self.plain(2)}]]),
                  "x": self.plain(), "y": self.plain(), "s": self.plain(0), "n": self.r.randrange(-1, 5),
                  "f": self.pick([0.5, 2.0, 1e17]), "flag": self.chance(0.5),
                  "lst": [self.plain(1) for _ in range(self.r.randrange(0, 4))],
                  "d": {self.pick(["a", "b", "role", "items", "c"]): self.plain(1) for _ in range(2)},
                  "m1": self.message(), "nested": [[1, 2], ["a", ["b"]], [3, None]], "nothing": None}
        for name in list(values):
            if self.chance(0.02):
                del values[name]
        return values
