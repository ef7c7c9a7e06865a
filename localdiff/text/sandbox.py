"""A jinja2 sandbox for untrusted templates, with bounded run time and output.

Knows jinja2 and one budget; knows nothing about chats. Jinja's immutable sandbox keeps a template from
Python's insides and from changing what it was given, but not from ten nested loops or from a text that
doubles sixty times. Here every iteration of a loop and every call of a macro is charged, and so is every text or
list that an operator, a capture, a filter or a method makes: before it is made, or right after where it is a copy
that cannot be much longer. The few filters and methods whose result may be, and cannot be measured beforehand, are
missing. A clock, read at every charge, bounds the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_round, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

# The released templates loop over all messages for each message: 2,000 messages take 2 million steps.
MAX_STEPS = 5_000_000
MAX_SECONDS = 60.0
CHARACTERS_PER_STEP = 64
MIN_CHARACTERS = 1_000_000
MAX_ITEMS = 100_000
MAX_INTEGER_BITS = 4096

_FILTERS_WITHOUT_MEASURE = (
    "batch", "center", "format", "pprint", "slice", "sum", "urlize", "wordwrap", "xmlattr",
)  # fmt: skip
_FILTERS_THAT_COPY = (
    "capitalize", "dictsort", "e", "escape", "forceescape", "groupby", "list", "lower", "reverse", "safe", "sort",
    "striptags", "title", "trim", "truncate", "upper", "urlencode",
)  # fmt: skip
_METHODS_WITHOUT_MEASURE = frozenset(
    # Bytes, which `encode` and `to_bytes` make, are measured nowhere.
    ("center", "encode", "expandtabs", "format", "format_map", "ljust", "rjust", "to_bytes", "translate", "zfill")
)


class BudgetError(Exception):
    """A template took more steps, or made a longer text, than any chat needs."""


class RefusedError(Exception):
    """A template called `raise_exception`: it does not accept the conversation."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and renders chat templates; one rendering at a time, `refill` before each.

    Provides what chat templates expect: trimmed blocks, loop controls, `raise_exception`, `tojson` without
    HTML escapes, and `{% generation %}` blocks, which only mark text for training.

    Args:
        clock: seconds, monotonic.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self._finalize,
            extensions=[GenerationTag, loopcontrols],
        )
        self._clock = clock
        self.refill(0)
        # Compiled templates use this attribute to join what a macro or a capture wrote.
        self.concat = self.join  # type: ignore[method-assign]
        for name in _FILTERS_WITHOUT_MEASURE:
            del self.filters[name]
        for name in _FILTERS_THAT_COPY:
            self.filters[name] = self._charged(self.filters[name])
        del self.globals["lipsum"]
        self.filters["indent"] = self._indent
        self.filters["join"] = self._join
        self.filters["replace"] = self._replace
        self.filters["round"] = self._round
        self.filters["string"] = self._string
        self.filters["tojson"] = self._to_json
        self.globals["namespace"] = PublicNamespace
        self.globals["raise_exception"] = _refuse

    def refill(self, input_characters: int) -> None:
        """Grants the next rendering its steps and seconds, and texts 8 times as long as its input.

        Args:
            input_characters: length of all messages. A long input may be copied 64 times beyond `MAX_STEPS`.
        """
        self.max_characters = max(8 * input_characters, MIN_CHARACTERS)
        self._steps_left = MAX_STEPS + input_characters
        self._deadline = self._clock() + MAX_SECONDS

    @property
    def tick(self) -> bool:
        """Charges one iteration of a loop or one call of a macro. Always true.

        A property, because compiled templates read it in every iteration and a sandboxed call takes ten times as
        long.
        """
        self._pay(1)
        return True

    def join(self, parts: Iterable[Any]) -> str:
        """Joins texts; compiled templates call it, for `~` too."""
        texts, size = [], 0
        for part in parts:
            texts.append(self._string(part))
            size += len(texts[-1])
            if size > self.max_characters:
                break  # `charge` raises; no more must pile up before it does
        self.charge(size)
        return "".join(texts)

    def charge(self, size: int) -> None:
        """Charges a text or list of `size` characters or items.

        Raises:
            BudgetError: it is longer than allowed, or the steps are used up.
        """
        if size > self.max_characters:
            raise BudgetError(f"it makes a text of {size:,} characters (at most {self.max_characters:,})")
        self._pay(max(size, 0) // CHARACTERS_PER_STEP)

    def copied(self, value: Any) -> Any:
        """Charges what a filter, a method or a slice made, which is not much longer than what it was made from."""
        self.charge(_length(value))
        return value

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            raise SecurityError("formatting with % is not available in a chat template")
        if isinstance(left, int) and isinstance(right, int):
            self._check_integers(operator, left, right)
        elif operator == "+":
            self.charge(_length(left) + _length(right))
        elif operator == "*":
            times = next((side for side in (left, right) if isinstance(side, int)), 1)
            self.charge(times * (_length(left) + _length(right)))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: B902
        subject = getattr(__obj, "__self__", None)
        if isinstance(subject, str):
            if __obj.__name__ == "replace":
                return __self._replace(subject, *args, **kwargs)
            if __obj.__name__ == "join" and len(args) == 1:
                return __self._join(args[0], subject)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(subject, str) or getattr(__obj, "__name__", None) == "copy":
            return result if result is subject else __self.copied(result)
        return result

    def wrap_str_format(self, value: Any) -> None:
        """Nothing to wrap: `is_safe_attribute` rejects the formatting methods."""
        return

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        without_measure = isinstance(obj, str | int) and attr in _METHODS_WITHOUT_MEASURE
        return not without_measure and super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        return cast(nodes.Template, _Meter(self).visit(tree))

    def _pay(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise BudgetError(f"it does not end within {MAX_STEPS:,} steps")
        if self._clock() > self._deadline:
            raise BudgetError(f"it does not end within {MAX_SECONDS:.0f} s")

    def _check_integers(self, operator: str, left: int, right: int) -> None:
        size, other = left.bit_length(), right.bit_length()
        self._check_bits(size * max(right, 1) if operator == "**" else size + other)

    def _check_bits(self, bits: int) -> None:
        if bits > MAX_INTEGER_BITS:
            raise BudgetError(f"it computes a number of {bits:,} bits (at most {MAX_INTEGER_BITS:,})")

    def _charged(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def charged(*args: Any, **kwargs: Any) -> Any:
            made = make(*args, **kwargs)
            return made if any(made is given for given in args) else self.copied(made)

        return charged

    def _finalize(self, value: Any) -> Any:
        if isinstance(value, list | tuple | dict):
            self.charge(_measure(value))
        return value

    def _string(self, value: Any) -> str:
        return value if isinstance(value, str) else str(self._finalize(value))

    def _join(self, value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
        items = value if attribute is None else map(make_attrgetter(self, attribute), value)
        texts = [self._string(item) for item in items]
        self.charge(sum(map(len, texts)) + len(texts) * len(self._string(d)))
        return self._string(d).join(texts)

    def _replace(self, value: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, before, after = self._string(value), self._string(old), self._string(new)
        self.charge(len(text) + text.count(before) * len(after))
        return text.replace(before, after, -1 if count is None else count)

    def _round(self, value: Any, precision: int = 0, method: Any = "common") -> Any:
        self._check_bits(4 * abs(precision))  # a power of ten
        return do_round(value, precision, method)

    def _indent(self, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        text, margin_length = self._string(value), width if isinstance(width, int) else len(width)
        self.charge(len(text) + (text.count("\n") + 1) * margin_length)
        margin = " " * width if isinstance(width, int) else width
        lines = text.split("\n")
        filled = [margin + line if blank or line else line for line in lines[1:]]
        return "\n".join([margin + lines[0] if first else lines[0], *filled])

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if isinstance(value, Undefined):
            raise UndefinedError("tojson is given a value that is not defined")
        margin = max(indent, 0) if isinstance(indent, int) else _length(indent)
        margin += sum(max(_length(separator) - 1, 0) for separator in separators or ())
        self.charge(_measure(value) * (1 + margin))
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
        if not ensure_ascii:
            return text
        # Noncharacters stay: `shield.py` marks typed text with one and looks for it afterwards.
        return "".join(c if c.isascii() or "\ufdd0" <= c <= "\ufdef" else json.dumps(c)[1:-1] for c in text)


class PublicNamespace(Namespace):
    """`namespace()` without underscored attributes, some of which Python calls implicitly."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: B902
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: renders its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Meter(NodeTransformer):
    """Puts a `tick` into the body of every loop and macro, and sends `~` through `join`, slices through `copied`."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_tick(node), lineno=node.lineno))
        if node.test is not None:  # items that `for ... if` skips never reach the body
            node.test = nodes.And(_tick(node), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_tick(node), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._call("join", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return self._call("copied", node) if isinstance(node.arg, nodes.Slice) else node

    def _call(self, method: str, value: nodes.Expr) -> nodes.Node:
        function = nodes.EnvironmentAttribute(method, lineno=value.lineno)
        call = nodes.Call(function, [value], [], None, None, lineno=value.lineno)
        return call.set_environment(self._environment)


def _tick(at: nodes.Node) -> nodes.Expr:
    return nodes.EnvironmentAttribute("tick", lineno=at.lineno)


def _refuse(message: Any) -> None:
    raise RefusedError(str(message))


def _check_name(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _measure(value: Any) -> int:
    """Approximate length of `value` as text: sixty nested lists can stand for an endless text."""
    size, seen, waiting = 0, 0, [value]
    while waiting:
        item = waiting.pop()
        seen += 1
        size += 4 + (len(item) if isinstance(item, str) else 0)
        if isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
        if seen + len(waiting) > MAX_ITEMS:
            raise BudgetError(f"it writes out a list of more than {MAX_ITEMS:,} items")
    return size
