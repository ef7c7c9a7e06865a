"""The sandbox: a template can reach nothing but what it was given, and renders as in transformers."""

from __future__ import annotations

import pytest
from jinja2.exceptions import SecurityError, UndefinedError
from transformers.utils.chat_template_utils import _compile_jinja_template

from localdiff.text import sandbox
from localdiff.text.sandbox import environment


def render(source: str, **variables: object) -> str:
    return sandbox.render(environment().from_string(source), 1_000_000, **variables)


REACHES_OUT = {
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__.sys }}",
    "attr": "{{ (''|attr('__class__')).__mro__ }}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format_map": "{{ '{a.__class__.__mro__}'.format_map({'a': ''}) }}",
    "change": "{{ items.append(1) }}",
}


@pytest.mark.parametrize("source", REACHES_OUT.values(), ids=REACHES_OUT.keys())
def test_what_a_template_has_no_business_with_is_refused(source: str) -> None:
    with pytest.raises(SecurityError):
        render(source, items=[])


@pytest.mark.parametrize("method", ["update(given, a=2)", "pop(given, 'a')", "clear(given)"])
def test_nothing_given_is_changed_by_way_of_its_type(method: str) -> None:
    given = {"a": 1}
    with pytest.raises(UndefinedError):
        render(f"{{{{ dict.{method} }}}}", given=given)
    assert given == {"a": 1}


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
    "more filters": "{{ [1, 2] | sum }} {{ '%s-%s' | format(1, 'b') }} {{ [1, 2, 3] | batch(2) | list }}"
    "{{ [1, 2, 3] | slice(2) | list }} {{ 'a b' | wordwrap(1) }} {{ 'a' | center(5) }} {{ '%02d' % 7 }}"
    "{{ 'a'.ljust(3) }}{{ '{:>3}'.format(1) }}",
    "tests": "{{ missing is defined }} {{ none is none }} {{ {} is mapping }} {{ 'x' is string }} {{ [] is sequence }}",
    "dict": "{{ dict(a=1, b=2) }} {{ dict([('a', 1)], b=2) }} {{ dict({'a': 1}).a }} {{ dict.fromkeys([1]) }}",
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
