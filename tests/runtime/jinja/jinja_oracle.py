"""jinja2 set up as transformers sets it up for chat templates: the other program of the tests."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %}: its body, as a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("show")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def show(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment(clock=0, mutable=False):
    """`clock`: what strftime_now tells, in seconds, as UTC, without a zone. `mutable`: lists may be changed."""
    kind = (jinja2.sandbox.SandboxedEnvironment if mutable
            else jinja2.sandbox.ImmutableSandboxedEnvironment)
    env = kind(trim_blocks=True, lstrip_blocks=True,
               extensions=[Generation, jinja2.ext.loopcontrols])
    now = datetime.datetime.fromtimestamp(clock, datetime.timezone.utc).replace(tzinfo=None)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def render(env, template, variables):
    """(text, None) or (None, what went wrong)."""
    try:
        text = env.from_string(template).render(**variables)
        text.encode("utf-8")
        return text, None
    except RecursionError:
        return None, "recursion"
    except Exception as error:  # whatever a template brings jinja2 or Python to raise
        return None, f"{type(error).__name__}: {error}"
