"""The static parts of a page: question, answer, cards, committed text, provenance.

Knows wording; all text from a trace is made safe and escaped here.
"""

from __future__ import annotations

from html import escape
from statistics import median

from localdiff.events import RunStats
from localdiff.sizes import rounded
from localdiff.trace.header import Header
from localdiff.trace.trace import Trace
from localdiff.view.sanitize import safe_text


def safe(text: str) -> str:
    """Text from a trace as HTML: nothing in it acts, reorders or hides, and nothing is markup."""
    return escape(safe_text(text), quote=True)


def prose(text: str) -> str:
    """Text with its own line breaks."""
    return f'<p class="prose">{safe(text.strip())}</p>' if text.strip() else '<p class="quiet">nothing</p>'


def badge(header: Header) -> str:
    """The badge that says what readers must not miss about the model."""
    if not header.is_demo:
        return ""
    return '<span class="badge">demo model: a few million parameters, not DiffusionGemma 26B</span>'


def notice(trace: Trace, name: str = "This trace") -> str:
    """A notice that the trace ends early; the page calls the trace `name`."""
    if trace.complete:
        return ""
    return f'<p class="notice">{name} ends early: the run was killed, or still went on when the page was made.</p>'


def question(header: Header) -> str:
    """The conversation, with the last question first, and a reply that the answer continues last."""
    begun, parts = header.begun, [prose(header.question)]
    for message in header.messages[: -1 if begun is None else -2]:
        parts.append(f'<p class="role">{safe(message.role)}, before it</p>{prose(message.content)}')
    if begun is not None:
        parts.append(f'<p class="role">{safe(begun.role)}, which the answer continues</p>{prose(begun.content)}')
    return "".join(parts)


def gold(trace: Trace) -> str:
    """The expected answer, and whether the answer contains it."""
    expected = trace.header.gold
    if expected is None:
        return ""
    plain, target = (" ".join(text.split()) for text in (trace.text(), expected))
    is_right = bool(target) and target in plain
    verdict = (
        '<span class="yes">✓ the answer contains it</span>'
        if is_right
        else '<span class="no">the answer lacks it</span>'
    )
    return f'<p class="gold"><span class="quiet">Expected</span> <b>{safe(expected)}</b> {verdict}</p>'


def texts(trace: Trace) -> str:
    """All committed text, with thoughts folded."""
    thought, answer = trace.text("thought"), prose(trace.text())
    folded = f'<details class="thought"><summary>thought first</summary>{prose(thought)}</details>' if thought else ""
    return f'<div class="text">{folded}{answer}</div>'


def cards(trace: Trace) -> str:
    """The figures of the run."""
    header, stats = trace.header, trace.finished.stats if trace.finished else None
    steps = [len(block.steps) for block in trace.blocks] or [0]
    figures = [_card("blocks", f"{len(trace.blocks):,}", _ending(trace))]
    if stats is None:
        figures.append(_card("denoise steps", f"{sum(steps):,}", "until the trace ends"))
    else:
        figures += _passes(stats)
    spread = f"{min(steps)} to {max(steps)}" if min(steps) < max(steps) else f"{steps[0]}"
    most = trace.started.max_steps if trace.started else 0
    figures.append(_card("steps per block", spread, f"median {median(steps):g}; the limit is {most}"))
    if stats is not None:
        time = f"{stats.tokens:,} tokens in {stats.seconds:.2f} s"
        figures.append(_card("speed", f"{rounded(stats.tok_per_s)} tok/s", time))
    figures.append(_card("recipe", safe(header.model.recipe), f"computed in {safe(header.model.types)}"))
    return "".join(figures)


def _passes(stats: RunStats) -> list[str]:
    """Steps, and tokens for each; passes that only commit a block are told of beside both."""
    commits, both = stats.commit_passes, stats.denoise_passes + stats.commit_passes
    passes, tokens = "a pass of the model each", "1 where tokens are written one by one"
    if commits:
        passes += f"; {commits:,} more {'pass' if commits == 1 else 'passes'} to commit blocks"
        tokens += f"; {stats.tokens / both:,.1f} for each of all {both:,} passes"
    return [
        _card("denoise steps", f"{stats.denoise_passes:,}", passes),
        _card("tokens per step", f"{stats.tokens_per_step:,.1f}", tokens),
    ]


def _card(name: str, figure: str, note: str) -> str:
    return f"<div><dt>{name}</dt><dd>{figure}<small>{note}</small></dd></div>"


def _ending(trace: Trace) -> str:
    words = {
        "end_of_turn": "the answer ended by itself",
        "length": "the answer was cut at --max-tokens",
        "context_full": "the answer was cut at a full context",
        "cancelled": "stopped by hand",
    }
    positions = f"{trace.started.canvas_length} positions each; " if trace.started else ""
    return positions + (words[trace.finished.reason] if trace.finished else "cut short")


def provenance(trace: Trace) -> str:
    """What ran where, with which settings, and its hashes."""
    header, sampler = trace.header, trace.header.sampler
    revision = f", revision {header.model.revision}" if header.model.revision else ""
    temperatures = "greedy" if sampler.greedy else f"temperature {sampler.t_max:g} to {sampler.t_min:g}"
    settings = (
        f"schedule of {sampler.schedule_steps} steps{'' if sampler.cap is None else f', capped at {sampler.cap}'}, "
        f"entropy bound {sampler.entropy_bound:g}, {temperatures}, stability {sampler.stability}, "
        f"confidence {sampler.confidence:g}, {sampler.noise} noise"
    )
    adapter = f" with the adapter {header.model.adapter.name}" if header.model.adapter else ""
    rows = [
        ("model", safe(f"{header.model.name}{revision}{adapter}")),
        ("recorded", safe(header.created)),
        ("device", safe(f"{header.machine.device}: {header.machine.hardware}")),
        ("sampler", safe(settings)),
        ("seed", f"{header.seed}"),
        ("limits", f"{header.max_tokens:,} tokens, context of {header.context_size:,}"),
        (
            "versions",
            safe(f"localdiff {header.machine.localdiff}, torch {header.machine.torch}, Python {header.machine.python}"),
        ),
        ("weights, SHA-256", _hash(header.model.weights)),
        ("tokenizer, SHA-256", _hash(header.model.tokenizer)),
        ("this trace, SHA-256", _hash(trace.sha256)),
    ]
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)


def _hash(digest: str | None) -> str:
    return "not recorded" if digest is None else f"<code>{safe(digest)}</code>"
