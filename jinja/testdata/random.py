"""Makes random.jsonl.gz: random templates and what Jinja2 makes of them.

    python3 random.py SEED COUNT

The environment is that of transformers' chat_template_utils.py. The expressions draw on every operator, filter, test
and method of the package; about half of them are errors, as half of all random programs are. Left out
is what prints an address, what takes long, and what differs between versions (see README.md).
"""

import copy
import datetime
import gzip
import json
import random
import signal
import sys

import jinja2.ext
import jinja2.sandbox

VARS = {
    "s": "Hello Wörld", "t": "a,b,,c", "e": "", "m": " x y\n z ", "n": 3, "f": 2.5, "z": 0, "neg": -7,
    "b": True, "nb": False, "no": None, "l": [1, 2, 3], "ls": ["b", "A", "c"],
    "lm": [1, "a", None, 2.0, [3]], "d": {"a": 1, "b": "x", "items": [1], "k c": None}, "dd": {"x": {"y": [1, {"z": "q"}]}},
    "us": [{"name": "Ann", "age": 30, "tag": {"a": 1}}, {"name": "bob", "age": 25, "tag": {}}, {"name": "Cy", "age": 30}],
    "h": "<a href='x'>&\"", "u": "ß\u0130Σ ΑΣ ﬁ\u00a0\u2028é😀",
    "tool": {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "p": {"type": "string", "description": "it's \"q\""}, "n": {"type": ["integer", "null"], "default": 1.0}}}}},
}
NAMES = list(VARS) * 2 + ["undef", "loop"]
STRINGS = ["''", "'a'", "'abc'", "' x '", "','", "','", "'%s'", "'{}'", "'b'", "'\\n'", "'A b'", "'1'", "'3.7'", "'é😀'",
           "'<b>'", "'name'", "'x-y_z'"]
NUMBERS = ["0", "1", "2", "-1", "3", "10", "2.5", "0.1", "1e20", "100", "7", "-3", "true", "none", "false"]
LITTLE = ["1", "2", "3"]
FILTERS = {  # name: ways to give arguments; X is an expression, S a string
    "abs": [""], "capitalize": [""], "count": [""], "d": ["(X)"], "default": ["(X)", "(X, true)", "(X, boolean=true)", ""],
    "dictsort": ["", "(true)", "(by='value')", "(reverse=true)"], "e": [""], "escape": [""], "first": [""],
    "float": ["", "(1.5)"], "int": ["", "(7)", "(base=16)", "(0, 2)"], "items": ["", " | list"],
    "join": ["", "(', ')", "(X)", "('|', attribute='name')"], "last": [""], "length": [""], "list": [""], "lower": [""],
    "max": ["", "(attribute='age')", "(case_sensitive=true)"], "min": ["", "(attribute='age')"], "safe": [""],
    "reverse": ["", " | list"], "round": ["", "(1)", "(2)", "(1, 'ceil')", "(0, 'floor')"], "string": [""],
    "sort": ["", "(reverse=true)", "(case_sensitive=true)", "(attribute='name')", "(attribute='age,name')"],
    "sum": ["", "(attribute='age')", "(start=[])", "(start=1.5)"], "title": [""], "upper": [""],
    "tojson": ["", "", "(indent=2)", "(sort_keys=true)", "(true)", "(separators=(',', ':'))", "(indent=1, ensure_ascii=true)"],
    "trim": ["", "('x')", "(' x')"], "unique": [" | list", "(attribute='age') | list"], 
    
    "indent": ["", "(2)", "(2, true)", "('> ', blank=true)"], 
    "replace": ["(S, S)", "(S, X)"],
    "map": [f"({a}) | list" for a in ("'upper'", "attribute='name'", "attribute='age', default=0", "'string'", "'int'",
                                      "'tojson'", "'replace', 'a', 'b'", "attribute='tag.a'")],
    "select": [" | list", "('odd') | list", "('gt', 1) | list", "('eq', X) | list"],
    "reject": [" | list", "('string') | list", "('in', [1, 2]) | list", "('defined') | list"],
    "selectattr": ["('age', 'gt', 26) | list", "('tag') | list"],
}
METHODS = {  # name: ways to give arguments; S is a string, N a number
    "()": "capitalize isalnum isalpha isdigit islower isspace isupper lower lstrip rstrip split rsplit splitlines strip title"
          " upper items keys values copy",
    "(S)": "count endswith startswith find index rfind rindex partition rpartition removeprefix removesuffix split rsplit"
           " strip lstrip rstrip get format",
    "(X)": "join format get count index startswith",
    "(S, S)": "replace get format",
    "(S, N)": "split rsplit find count startswith endswith",
    "(N)": "splitlines",
}
SPECS = ["{}", "{0}", "{}{}", "{0}{0}", "a{}b", "{{}}{}", "{a}", "{1}"]
PERCENTS = ["%s", "%d", "%%", "%s%s", "a%sb", "%d|%s"]
TESTS = ("boolean callable defined even odd false float integer iterable lower mapping none number sequence string true"
         " undefined upper escaped filter test").split()
RELATIONS = "divisibleby eq equalto ne lt le gt ge in sameas".split()
UNSTABLE = (" at 0x", " AT 0X", "<built", "<func", "<class", "<bound", "<method", "<slot", "iterator")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(source):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    return env.from_string(source).render(**copy.deepcopy(VARS))


def pick(*choices):
    return random.choice(choices)


def fill(pattern, depth):
    """Puts expressions into a pattern of arguments."""
    out = ""
    for c in pattern:
        out += {"X": lambda: expression(depth), "S": lambda: pick(*STRINGS), "N": lambda: pick("0", "1", "2", "5", "-1", "12")}.get(
            c, lambda: c)()
    return out


def expression(depth):
    if depth <= 0:
        return pick(pick(*NAMES), pick(*NAMES), pick(*STRINGS), pick(*NUMBERS))
    depth -= pick(1, 2)

    def x():
        return expression(depth)

    def bound():
        return pick("", "1", "-1", "2", "0", "-2", "n", "none")

    match random.randrange(20):
        case 0: return f"({x()} {pick('+', '-', '*', '/', '//', '%', '**', '~', '~', '+', '+')} {x()})"
        case 1: return f"{x()} {pick('+', '-', '*', '~', '%', '~')} {x()}"
        case 2: return f"({x()} {pick('==', '!=', '<', '>', '<=', '>=', 'in', 'not in')} {x()})"
        case 3: return f"({x()} {pick('and', 'or')} {x()})"
        case 4: return pick(f"(not {x()})", f"({x()} if {x()})")
        case 5: return f"({x()} if {x()} else {x()})"
        case 6 | 7 | 8:
            name = pick(*FILTERS)
            return f"{x()} | {name}{fill(pick(*FILTERS[name]), depth)}"
        case 9 | 10 | 11:
            arguments = pick(*METHODS)
            owner = pick(x(), pick("s", "t", "e", "m", "h", "u", "d", "dd"), pick(*STRINGS))
            return f"{owner}.{pick(*METHODS[arguments].split())}{fill(arguments, depth)}"
        case 12: return f"{x()}.{pick('a', 'b', 'x', 'name', 'function', 'items', '0', '1', 'y', 'upper', '_x')}"
        case 13: return f"{x()}[{x()}]"
        case 14: return f"{pick(*NAMES, *STRINGS)}[{bound()}:{bound()}{pick('', ':', ':-1', ':2')}]"
        case 15: return "[" + ", ".join(x() for _ in range(random.randrange(4))) + "]"
        case 16: return "{" + ", ".join(f"{x()}: {x()}" for _ in range(random.randrange(3))) + "}"
        case 17: return f"({x()} is {pick('', 'not ')}{pick(pick(*TESTS), f'{pick(*RELATIONS)}({x()})')})"
        case 18: return pick(f"'{pick(*SPECS)}'.format({x()})", f"'{pick(*PERCENTS)}' % {x()}", f"h % ({x()},)")
    return f"range({pick('3', 'n', '1, 4', '5, 0, -2', x())}) | list"


def loop_tail():
    return pick("", "{{ loop.index }}", "{{ loop.last }}{{ loop.length }}", "{{ loop.previtem }}|{{ loop.nextitem }}",
                "{{ loop.cycle('p', 'q') }}", "{{ loop.changed(i) }}", "{% if " + expression(1) + " %}{% break %}{% endif %}",
                "{% if loop.first %}{% continue %}{% endif %}", "{{ loop.revindex0 }}")


def block(depth):
    def x():
        return expression(pick(1, 2))

    def body():
        return "".join(statement(depth - 1) for _ in range(pick(1, 2, 3)))

    match random.randrange(15):
        case 0 | 1:
            rest = pick("", "{% elif " + x() + " %}" + body(), "{% else %}" + body())
            return f"{{%{pick('', '-', '+')} if {x()} %}}{body()}{rest}{{%{pick('', '-')} endif {pick('', '-', '+')}%}}"
        case 2 | 3 | 4:
            items = pick("l", "ls", "us", "d", "d.items()", "range(3)", "[[1, 2], (3, 4)]", "s", "lm", x(), "l | reverse")
            head = f"{pick('i', 'x', 's', 'a, b')} in {items}{pick('', '', ' if ' + x(), ' if i is odd')}{pick('', '', ' recursive')}"
            down = pick("", "{% if loop.depth < 3 %}{{ loop([1, 2]) }}{% endif %}") if head.endswith("recursive") else ""
            return "{% for " + head + " %}" + body() + loop_tail() + down + pick("", "{% else %}" + body()) + "{% endfor %}"
        case 5 | 6 | 7:
            return f"{{% set {pick('x', 'y', 's', 'n', 'l', 'ns.a', 'ns.b')} = {x()} {pick('', '-')}%}}"
        case 8: return f"{{% set {pick('x', 'y', 's', 'i')}{pick('', ' | upper', ' | trim | length')} %}}{body()}{{% endset %}}"
        case 9 | 10:
            tail = pick("", "{{ a }}{{ b }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller(1) }}")
            use = pick("{{ mm(1) }}", "{{ nn(" + x() + ", b=3) }}", "{% call mm(1) %}" + body() + "{% endcall %}", "{{ mm() }}",
                       "{% call(q) nn() %}{{ q }}{% endcall %}")
            return f"{{% macro {pick('mm', 'nn')}({pick('', 'a', 'a, b=2', 'a, x=s', 'a, b=a', 's')}) %}}{body()}{tail}{{% endmacro %}}{use}"
        case 11: return "{% with x = " + x() + ", q = s %}" + body() + "{{ q }}{% endwith %}"
        case 12: return "{% filter " + pick("upper", "trim", "replace('a', 'b')", "indent(2)") + " %}" + body() + "{% endfilter %}"
        case 13: return "{% generation %}" + body() + "{% endgeneration %}"
    return pick("{# c #}", "{#- c -#}", "{% raw %}{{ x }}{% endraw %}", "  {# c #}\n")


def statement(depth):
    if depth > 0 and random.random() < 0.45:
        return block(depth)
    if random.random() < 0.4:
        return pick("\n", "  ", "a ", "\n  ", "text", "\n\n", " \n")
    return pick("{{ " + expression(random.randrange(4)) + " }}", "{{- " + pick("x", "y", "s", "n", "l", "i", "ns.a", "q", "a") + " }}",
                "{{ " + pick("x", "y", "s", "i") + " -}}")


def template():
    if random.random() < 0.5:
        return "{{ " + expression(random.randrange(1, 5)) + " }}"
    return "{% set ns = namespace(a=1, b='z') %}" + "".join(statement(3) for _ in range(random.randrange(1, 6)))


class Slow(Exception):
    pass


def alarm(*_):
    raise Slow


def main():
    random.seed(int(sys.argv[1]))
    signal.signal(signal.SIGALRM, alarm)
    rows = [{"vars": VARS}]
    while len(rows) <= int(sys.argv[2]):
        row = {"template": template()}
        if len(row["template"]) > 600:
            continue
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            row["render"] = render(row["template"])
        except Slow:
            continue
        except Exception as e:
            row["error"] = type(e).__name__
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if not any(u in row.get("render", "") for u in UNSTABLE) and len(row.get("render", "")) < 1000:
            rows.append(row)
    data = "".join(json.dumps(r) + "\n" for r in rows)
    with open("random.jsonl.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as z:
        z.write(data.encode())


main()
