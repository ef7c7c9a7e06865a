"""The actions of slash commands.

Knows the desk that commands act on and what they print; knows nothing about keys. A command that sends something to
the model returns what is to be sent, so that only the loop ever waits for a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from localdiff import paths
from localdiff.chat import catalog
from localdiff.chat.clipboard import last_code, osc52, write_copy
from localdiff.chat.desk import Ask, Desk
from localdiff.chat.files import read_attachment, split_paths
from localdiff.chat.help import help_page
from localdiff.chat.reply import next_seed
from localdiff.chat.session import Attachment
from localdiff.errors import UsageError
from localdiff.options import MAX_SEED
from localdiff.sizes import counted
from localdiff.ui.output import DIM, printable
from localdiff.view.sanitize import safe_text


class Leave(Exception):
    """The user leaves the chat."""


Action: TypeAlias = Callable[[Desk, str], Ask | None]


def help_(desk: Desk, argument: str) -> None:
    """Show one screen of keys and commands."""
    desk.say(help_page(desk.output.stderr, multiline=desk.settings.looks.multiline))


def exit_(desk: Desk, argument: str) -> None:
    """Leave."""
    raise Leave


def retry(desk: Desk, argument: str) -> Ask:
    """Send the last message again, with the next seed or the given one."""
    last = _last(desk)
    seed = _whole("retry", argument, minimum=0, maximum=MAX_SEED) if argument else None
    if seed is None:
        if desk.talker.latest is not None and desk.unanswered is not None:
            seed = next_seed(desk.talker.latest.seed)
        elif desk.unanswered is None and desk.session.turns:
            seed = next_seed(desk.session.turns[-1].seed)
    if seed is not None:
        desk.say(f"seed {seed}")
    return replace(last, seed=seed)


def edit(desk: Desk, argument: str) -> Ask | None:
    """Open the last message in the editor, and send the result."""
    last = _last(desk)
    text = desk.edited(last.text).strip()
    if not text or text == last.text.strip():
        desk.say("Nothing was changed.")
        return None
    desk.say(desk.output.stderr.styled(catalog.echo(text), DIM))
    return replace(last, text=text, seed=None)


def undo(desk: Desk, argument: str) -> None:
    """Undo turns, the one without an answer first."""
    wanted = _whole("undo", argument, minimum=1) if argument else 1
    lost = desk.unanswered is not None and not desk.unanswered.replaces
    there = len(desk.session.turns) + lost
    if not there:
        raise UsageError("there is nothing to undo", "`/load` opens an earlier session")
    if wanted > there:
        are = "is" if there == 1 else "are"
        raise UsageError(
            f"there {are} {counted(there, 'turn')} to take back, not {argument:.60}", f"`/undo {there}` takes back all"
        )
    desk.asked = None  # a recording is of an answer that stands
    if lost:
        desk.unanswered, desk.line = None, ""
        desk.say("Took back the message that has no answer.")
        wanted -= 1
        if not wanted:
            return
    desk.unanswered = None
    del desk.session.turns[len(desk.session.turns) - wanted :]
    desk.keep()
    desk.say(f"Took back {counted(wanted, 'turn')}; {_left(desk)}.")


def clear(desk: Desk, argument: str) -> None:
    """Begin a new session."""
    desk.open(desk.new_session())
    desk.say("A new session; settings stay.")


def system(desk: Desk, argument: str) -> None:
    """Show or change the system prompt."""
    if not argument:
        desk.say(safe_text(desk.session.system or "There is no system prompt."))
        return
    wanted = None if argument.lower() == "off" else argument
    if wanted == desk.session.system:
        desk.say("The system prompt is that already." if wanted else "There is no system prompt.")
        return
    desk.session.system = wanted
    desk.keep()
    desk.say("It applies from the next turn; the context is read again.")


def set_(desk: Desk, argument: str) -> None:
    """Show or change settings."""
    name, _, value = argument.partition(" ")
    if not name:
        desk.say(catalog.settings_table(desk.settings))
        return
    if not value.strip():
        desk.say(desk.settings.line(name))
        return
    thought = desk.settings.options.think
    desk.say(desk.settings.set(name, value.strip()))
    if name == "context" and desk.context < desk.options.context:
        desk.say(f"{desk.context:,} is the maximum for this model.")
    if desk.settings.options.think != thought:
        desk.session.think = desk.settings.options.think
        desk.say("It applies from the next turn; the context is read again.")


def file(desk: Desk, argument: str) -> None:
    """Attach text files to the next message."""
    if argument.lower() == "off":
        desk.pending.clear()
        desk.say("No files are attached to the next message.")
        return
    if not argument:
        names = [printable(file.name) for file in desk.pending]
        attached = f"Attached to the next message: {', '.join(names)}."
        desk.say(attached if names else "No files are attached to the next message.")
        return
    found = [read_attachment(path) for path in split_paths(argument)]
    sizes = [desk.partner.count(attachment.quoted(), most=desk.context) for attachment in found]
    _require_room(desk, found, sizes)
    desk.pending += found
    for attachment, size in zip(found, sizes, strict=True):
        desk.say(f"{printable(attachment.name)} {desk.output.stderr.dot()} {counted(size, 'token')}")


def copy(desk: Desk, argument: str) -> None:
    """Copy the last answer, or its last code block, to the clipboard and to a file."""
    if argument.lower() not in ("", "code"):
        raise UsageError(
            f"unknown argument in `/copy {argument:.60}`", "`/copy` copies the answer, `/copy code` its code"
        )
    if not desk.session.turns:
        raise UsageError("there is no answer to copy")
    text = desk.session.turns[-1].answer
    if argument:
        code = last_code(text)
        if code is None:
            raise UsageError("the last answer has no code block", "`/copy` copies all of it")
        text = code
    path = write_copy(desk.state, text)
    sequence = osc52(text)
    shown = printable(paths.shown(path))
    if not desk.output.stderr.terminal:
        desk.say(f"Copied to {shown}")
    elif sequence is None:
        desk.say(f"Too long for the terminal's clipboard; copied to {shown}")
    else:
        desk.output.stderr.write(sequence)
        desk.say(f"Copied, if this terminal allows it; also to {shown}")


def save(desk: Desk, argument: str) -> None:
    """Give the session a name."""
    if not argument:
        raise UsageError("`/save` needs a name", "`/save NAME`; turns are saved automatically")
    if not desk.session.turns:
        raise UsageError("there is nothing to save yet")
    desk.store.rename(desk.session, argument)
    desk.saves = True
    desk.say(f"Saved as `{desk.session.name}`; `localdiff chat --session {desk.session.name}` continues it.")


def load(desk: Desk, argument: str) -> None:
    """Continue another session."""
    if not argument:
        raise UsageError("`/load` needs a name", "`/sessions` lists the saved sessions")
    opened = desk.store.open(argument)
    desk.open(opened.session)
    if desk.settings.options.think != opened.session.think:
        desk.settings.set("think", "show" if opened.session.think else "off")
    if opened.damage is not None:
        desk.output.warning(catalog.damage_line(argument, opened))
    desk.say(catalog.opened_line(opened.session))


def sessions(desk: Desk, argument: str) -> None:
    """List saved sessions."""
    if argument.lower() not in ("", "all"):
        raise UsageError(
            f"unknown argument in `/sessions {argument:.60}`",
            "`/sessions` lists the latest, `/sessions all` all of them",
        )
    max_rows = None if argument else catalog.SHOWN_SESSIONS
    stream = desk.output.stderr
    width = stream.columns if stream.terminal else None
    desk.say(catalog.sessions_table(desk.store, current=desk.session.name, max_rows=max_rows, width=width))


def trace(desk: Desk, argument: str) -> None:
    """Write the recording of the last run."""
    if desk.asked is None or desk.talker.latest is None:
        raise UsageError("there is no answer to record yet", "a recording is kept for the last answer of this chat")
    messages, options = desk.asked
    name = ""
    if argument:
        files = split_paths(argument)
        if len(files) != 1:
            raise UsageError("`/trace` takes one file", '`/trace "my file.jsonl"`')
        name = str(files[0])
    desk.say(desk.save_trace(desk.talker.events, messages, options, name))


ACTIONS: Mapping[str, Action] = {
    "help": help_,
    "exit": exit_,
    "retry": retry,
    "edit": edit,
    "undo": undo,
    "clear": clear,
    "system": system,
    "set": set_,
    "file": file,
    "copy": copy,
    "save": save,
    "load": load,
    "sessions": sessions,
    "trace": trace,
}


def _last(desk: Desk) -> Ask:
    """The last message: one without an answer, or that of the last turn, which the new answer replaces."""
    if desk.unanswered is not None:
        desk.line = ""
        return desk.unanswered
    if not desk.session.turns:
        raise UsageError("there is no message yet")
    turn = desk.session.turns[-1]
    return Ask(text=turn.text, files=turn.files, replaces=1)


def _whole(command: str, text: str, *, minimum: int, maximum: int | None = None) -> int:
    is_long = len(text) > len(str(MAX_SEED))
    number = -1 if not text.isdecimal() else MAX_SEED + 1 if is_long else int(text)
    if number < minimum or (maximum is not None and number > maximum):
        limit = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UsageError(f"`/{command} {text:.60}` needs a whole number {limit}")
    return number


def _left(desk: Desk) -> str:
    count = len(desk.session.turns)
    return f"{counted(count, 'turn')} left" if count else "none is left"


def _require_room(desk: Desk, found: list[Attachment], sizes: list[int]) -> None:
    """Refuse files that cannot fit whatever the message is, stating the numbers."""
    waiting = sum(desk.partner.count(attachment.quoted()) for attachment in desk.pending)
    before = sum(desk.partner.count(message["content"]) for message in desk.session.messages())
    wanted, room = sum(sizes), desk.context - waiting - before
    if wanted >= room:
        names = ", ".join(f"`{attachment.name}`" for attachment in found)
        have = "has" if len(found) == 1 else "have"
        raise UsageError(
            f"{names} {have} {wanted:,} tokens, and {max(room, 0):,} of {desk.context:,} are free",
            desk.room_hint,
        )
