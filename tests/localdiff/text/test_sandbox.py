"""`BoundedEnvironment`: a hostile template ends in an error, and an honest one renders as transformers has it."""

from __future__ import annotations

import pytest
from jinja2.exceptions import SecurityError, TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

from localdiff.text.sandbox import MAX_SECONDS, BoundedEnvironment, BudgetError, RefusedError


def render(source: str, **variables: object) -> str:
    return BoundedEnvironment().from_string(source).render(**variables)


RUNS_WITHOUT_END = {
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "filtered": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "recursive macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for i in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
    "two calls each": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
}

GROWS_WITHOUT_END = {
    "output": "{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}",
    "times": "{{ 'x' * 10**12 }}",
    "times, list": "{{ ([0] * 10**12) | length }}",
    "times, reversed": "{{ 10**12 * 'x' }}",
    "plus": "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "plus, list": "{% set n = namespace(s=[0]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "tilde": "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "capture": "{% set n = namespace(s='x') %}{% for i in range(60) %}"
    "{% set c %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = c %}{% endfor %}",
    "macro": "{% macro f(s, n) %}{{ f(s ~ s, n - 1) if n else s }}{% endmacro %}{{ f('xx', 60) }}",
    "lists in lists": "{% set n = namespace(s=['x']) %}{% for i in range(60) %}"
    "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
    "lists as text": "{% set n = namespace(s=['x']) %}{% for i in range(60) %}"
    "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | string | length }}",
    "lists as json": "{% set n = namespace(s=['x']) %}{% for i in range(60) %}"
    "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | tojson | length }}",
    "json indent": "{{ [1, 2] | tojson(indent=10**9) }}",
    "json separators": "{% set s = 'x' * 999999 %}{{ ([0] * 999) | tojson(separators=(s, s)) | length }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "round": "{{ 1.5 | round(10**9, 'ceil') }}",
    "round to tens": "{{ 15 | round(-10**9) }}",
    "replace": "{% set s = 'x' * 99999 %}{{ s | replace('x', s) | length }}",
    "replace method": "{% set s = 'x' * 99999 %}{{ s.replace('x', s) | length }}",
    "replace nothing": "{% set s = 'x' * 99999 %}{{ s.replace('', s) | length }}",
    "join": "{% set s = 'x' * 99999 %}{{ ([s] * 999) | join(s) | length }}",
    "join method": "{% set s = 'x' * 99999 %}{{ s.join('y' * 999) | length }}",
    "power": "{{ 9 ** 9 ** 9999 }}",
    "squares": "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
}  # fmt: skip

REACHES_OUT = {
    "percent": "{{ '%999999999d' % 1 }}",
    "format": "{{ '{:999999999}'.format(1) }}",
    "format_map": "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "ljust": "{{ 'x'.ljust(10**9) }}",
    "zfill": "{{ 'x'.zfill(10**9) }}",
    "encode": "{{ 'x'.encode() * 10**9 }}",
    "to_bytes": "{{ (1).to_bytes(10**9, 'big') | length }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__.sys }}",
    "attr": "{{ (''|attr('__class__')).__mro__ }}",
    "namespace": "{{ namespace(__html__=1) }}",
    "namespace later": "{% set n = namespace() %}{% set n.__call__ = 1 %}",
    "change": "{{ items.append(1) }}",
}


@pytest.mark.parametrize("source", RUNS_WITHOUT_END.values(), ids=RUNS_WITHOUT_END.keys())
def test_a_template_that_does_not_end_is_stopped(source: str) -> None:
    environment = BoundedEnvironment()
    template = environment.from_string(source)
    environment._steps_left = 20_000  # the same limit, sooner
    with pytest.raises((BudgetError, OverflowError, RecursionError), match="steps|Range too big|recursion depth"):
        template.render()


@pytest.mark.parametrize("source", GROWS_WITHOUT_END.values(), ids=GROWS_WITHOUT_END.keys())
def test_a_template_that_grows_is_stopped_before_it_did(source: str) -> None:
    with pytest.raises(BudgetError, match="it (makes|computes|writes|does)"):
        render(source)


@pytest.mark.parametrize("source", REACHES_OUT.values(), ids=REACHES_OUT.keys())
def test_what_a_template_has_no_business_with_is_refused(source: str) -> None:
    with pytest.raises(SecurityError):
        render(source, items=[])


@pytest.mark.parametrize("name", ["center(9)", "format(1)", "wordwrap(9)", "urlize", "xmlattr", "pprint"])
def test_filters_that_cannot_be_measured_are_missing(name: str) -> None:
    with pytest.raises(TemplateError, match="No filter named"):
        render(f"{{{{ 'x' | {name} }}}}")


def test_there_is_nothing_to_include_and_no_lipsum() -> None:
    with pytest.raises(TypeError, match="no loader"):
        render("{% include '/etc/passwd' %}")
    with pytest.raises(TemplateError, match="lipsum"):
        render("{{ lipsum(n=10**9) }}")


def test_time_is_bounded_too() -> None:
    moments = iter([0.0, 0.0, MAX_SECONDS, MAX_SECONDS + 0.1])
    environment = BoundedEnvironment(clock=lambda: next(moments))
    template = environment.from_string("{% for i in range(9) %}{% endfor %}")
    environment.refill(0)
    with pytest.raises(BudgetError, match="does not end within 60 s"):
        template.render()


@pytest.mark.parametrize(
    "copy",
    [
        *("text.lower()", "text.split('x')", "text[1:]", "text[::-1]", "text | upper", "text | trim('x ')"),
        *("text | safe", "[text] | map('upper') | list", "items | list", "items[1:]", "items.copy()"),
    ],
)
def test_copies_that_pile_up_are_stopped(copy: str) -> None:
    once = f"{{% set n.all = [n.all, {copy}] %}}"
    source = f"{{% set n = namespace(all=[]) %}}{{% for i in range(2000) %}}{once}{{% endfor %}}"
    environment = BoundedEnvironment()
    template = environment.from_string(source)
    environment.refill(0)
    environment._steps_left = 100_000  # the same limit, sooner
    with pytest.raises(BudgetError, match="steps"):
        template.render(text="  " + "Xx" * 10_000, items=list(range(20_000)))


def test_what_is_given_back_unchanged_costs_nothing() -> None:
    environment = BoundedEnvironment()
    template = environment.from_string("{% for i in range(999) %}{% set x = (text | trim).strip() %}{% endfor %}")
    environment._steps_left = 1000
    assert template.render(text="x" * 1_000_000) == ""
    assert environment._steps_left == 1


def test_each_rendering_has_its_own_budget() -> None:
    environment = BoundedEnvironment()
    template = environment.from_string("{% for i in range(999) %}x{% endfor %}")
    environment._steps_left = 1500
    assert template.render() == "x" * 999
    with pytest.raises(BudgetError):
        template.render()
    environment.refill(0)
    assert template.render() == "x" * 999


def test_a_long_input_may_be_copied() -> None:
    environment = BoundedEnvironment()
    template = environment.from_string("{% for i in range(7) %}{{ text ~ '' }}{% endfor %}")
    with pytest.raises(BudgetError):
        template.render(text="x" * 1_000_000)
    environment.refill(1_000_000)
    assert len(template.render(text="x" * 1_000_000)) == 7_000_000


def test_raise_exception_is_told_from_a_failure() -> None:
    with pytest.raises(RefusedError, match="Roles must alternate"):
        render("{{ raise_exception('Roles must alternate') }}")


HONEST = {
    "arithmetic": "{{ 7 % 3 }} {{ 2 ** 10 }} {{ 'ab' * 3 }} {{ 1.5 * 2 }} {{ -1 * 4 }}",
    "plus": "{{ [1] + [2] }} {{ 'a' + 'b' }} {{ 1 + 2 }} {{ 1 + 0.5 }} {{ 'ab' * -1 }}",
    "tilde": "{{ 'a' ~ 1 ~ none ~ true ~ [1, 'x'] ~ missing }}",
    "join": "{{ [1, 'b', none] | join(', ') }} {{ ', '.join(['a', 'b']) }} {{ items | join('-', attribute='n') }}",
    "round": "{{ 42.55 | round }} {{ 42.55 | round(1, 'floor') }} {{ 42.45 | round(1) }} {{ 1234 | round(-2) }}",
    "replace": "{{ 'aXbXc' | replace('X', 'yy') }} {{ 'aXbX'.replace('X', '', 1) }} {{ 'XX' | replace('X', '', 1) }}",
    "string": "{{ [1, 2] | string | length }} {{ 5 | string }}",
    "indent": "{{ 'a\n\nb' | indent }}|{{ 'a\n\nb' | indent(2, true, true) }}|{{ 'a\nb' | indent('> ') }}",
    "json": "{{ {'b': [1, 'é<'], 'a': none} | tojson }} {{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}"
    "{{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}",
    "loops": "{% for i in range(6) if i % 2 %}{{ loop.index }}{{ loop.last }}{% if i == 3 %}{% break %}{% endif %}"
    "{% else %}none{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
    "recursive": "{% for i in tree recursive %}({{ i.n }}{{ loop(i.c) }}){% endfor %}",
    "macro": "{% macro f(a, b='x') %}[{{ a }}{{ b }}{{ caller() if caller }}]{% endmacro %}{{ f(1) }}"
    "{% call f(2, b=3) %}in{% endcall %}",
    "namespace": "{% set n = namespace(a=1) %}{% for i in range(3) %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
    "capture": "{% set c %} {{ 'x' }} {% endset %}{{ c | trim }}",
    "generation": "{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}",
    "blocks": "  {% if true %}\n  yes\n  {% endif %}\n  {#- gone -#}\n end",
    "methods": "{{ ' a '.strip() }}{{ 'a,b'.split(',') }}{{ 'x'.startswith('x') }}{{ {'k': 1}.items() | list }}",
    "slices": "{{ items[1:] }} {{ 'abc'[::-1] }} {{ 'abc'[:2] | upper }} {{ [3, 1] | sort | first }} {{ 'a' | safe }}",
    "filters": "{{ ' a b ' | trim | title }} {{ items | groupby('n') | length }} {{ 'a<' | e }} {{ (1, 2) | list }}"
    "{% filter upper %}x{% endfilter %} {{ ['a', 'b'] | map('upper') | list }} {{ 'abc' | reverse }}"
    "{{ 'long text' | truncate(6) }} {{ {'a': 1}.copy() }}",
    "tests": "{{ missing is defined }} {{ none is none }} {{ {} is mapping }} {{ 'x' is string }} {{ [] is sequence }}",
    "dictsort": "{% for k, v in {'b': 1, 'A': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST.keys())
def test_an_honest_template_renders_as_in_transformers(source: str) -> None:
    variables = {
        "items": [{"n": 1}, {"n": 2}],
        "tree": [{"n": 1, "c": [{"n": 2, "c": []}]}, {"n": 3, "c": []}],
    }
    assert render(source, **variables) == _compile_jinja_template(source).render(**variables)


def test_a_mark_survives_json_in_ascii() -> None:
    assert render("{{ text | tojson(ensure_ascii=true) }}", text="é\ufdd0") == '"\\u00e9\ufdd0"'
