"""The actions of slash commands.

Knows the state that commands act on and what they print; knows nothing about keys. A command that sends something to
the model returns what to send, so that only the loop ever waits for a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from localdiff import paths
from localdiff.chat import session_text, settings
from localdiff.chat.clipboard import last_code, osc52, write_copy
from localdiff.chat.files import matched, read_attachment, split_paths
from localdiff.chat.help import help_page
from localdiff.chat.reply_runner import next_seed
from localdiff.chat.session import Attachment, Session, Turn, stamp
from localdiff.chat.slash import BY_WORD
from localdiff.chat.state import ChatState, PendingMessage, turn_of
from localdiff.errors import ResourceError, UsageError
from localdiff.options import MAX_SEED
from localdiff.quoting import printable
from localdiff.sizes import counted
from localdiff.ui.output import DIM
from localdiff.view.columns import aligned
from localdiff.view.sanitize import safe_text


class LeaveChat(Exception):
    """The user leaves the chat."""


def help_(state: ChatState, argument: str) -> None:
    """Show one screen of keys and commands."""
    state.show(help_page(state.output.stderr, state.palette, multiline=state.settings.display.multiline))


def exit_(state: ChatState, argument: str) -> None:
    """Leave."""
    raise LeaveChat


def retry(state: ChatState, argument: str) -> PendingMessage:
    """Send the last message again, with the next seed or the given one."""
    last = _last(state)
    tried = state.session.turns[-1] if state.unanswered is None else state.runner.latest
    seed = None if tried is None else next_seed(tried.seed)
    if argument:
        seed = _whole("retry", argument, minimum=0, maximum=MAX_SEED)
    if seed is not None:
        state.say(f"seed {seed}")
    return replace(last, seed=seed, continues=None)


def continue_(state: ChatState, argument: str) -> PendingMessage:
    """Let the model go on with the last reply, unless the model ended it."""
    message, latest = _last(state), state.runner.latest
    begun = message.continues  # if it was to be continued, and that run did not begin
    if state.unanswered is not None and latest is not None and latest.ids and not latest.is_empty:
        begun = turn_of(message, latest)  # such as a thought that took all tokens
    elif begun is None and message.replaces:
        begun = state.session.turns[-1]
        message = _message_of(begun)  # not what it was changed to since, without an answer
    if begun is None:
        raise UsageError("the last message has no answer to go on with", "`/retry` sends it again")
    if begun.reason == "end_of_turn":
        raise UsageError("the last answer is complete", "`/retry` gives another one")
    return replace(message, continues=begun)


def edit(state: ChatState, argument: str) -> PendingMessage | None:
    """Open the last message in the editor, and send the result."""
    last = _last(state)
    text = state.edited(last.text).strip()
    if not text or text == last.text.strip():
        state.say("Nothing was changed.")
        return None
    state.say(f"sent: {session_text.excerpt(text, 70)}", DIM)
    return replace(last, text=text, seed=None, continues=None)


def undo(state: ChatState, argument: str) -> None:
    """Undo turns, starting with a message without an answer, unless that message waits for room."""
    count = _whole("undo", argument, minimum=1) if argument else 1
    has_unanswered = state.unanswered is not None and not state.unanswered.replaces and not state.refused
    there = len(state.session.turns) + has_unanswered
    if not there:
        raise UsageError("there is nothing to undo", "`/load` opens an earlier session")
    if count > there:
        are = "is" if there == 1 else "are"
        raise UsageError(
            f"there {are} {counted(there, 'turn')} to take back, not {argument:.60}", f"`/undo {there}` takes back all"
        )
    if has_unanswered:
        if state.runner.latest is not None:  # otherwise its run did not begin, and the last one is a turn's
            state.last_run = None
        state.forget_unanswered()
        state.say("Took back the message that has no answer.")
        if count == 1:
            return
        count -= 1
    if not state.refused:  # otherwise the undone turns made room for it
        state.unanswered = None
    state.last_run = None
    del state.session.turns[-count:]
    state.save()
    left = f"{counted(len(state.session.turns), 'turn')} left" if state.session.turns else "none is left"
    state.say(f"Took back {counted(count, 'turn')}; {left}.")


def clear(state: ChatState, argument: str) -> None:
    """Begin a new session."""
    old = state.session
    state.open(Session(created=stamp(), system=old.system, think=old.think), "/clear")
    state.say("Started a new session; settings are kept.")


def system(state: ChatState, argument: str) -> None:
    """Show or change the system prompt."""
    if not argument:
        state.show(safe_text(state.session.system or "There is no system prompt."))
        return
    prompt = None if argument.lower() == "off" else argument
    if prompt == state.session.system:
        state.say("That is already the system prompt." if prompt else "There is no system prompt.")
        return
    replace(state.options, system=prompt)  # raises if it is not text
    state.session.system = prompt
    state.save()
    done = "The system prompt is removed" if prompt is None else "The system prompt is set"
    state.say(f"{done}; {_from_next_turn(state)}.")


def set_(state: ChatState, argument: str) -> None:
    """Show or change settings."""
    name, *values = argument.split(None, 1) or [""]
    if not name:
        rows = [(row.name, row.value, row.origin) for row in state.settings.rows()]
        state.show("\n".join(aligned(rows, "<<<", width=state.output.stderr.room)))
        return
    command = BY_WORD.get(name.lower())
    if command is not None and name.lower() not in settings.names():
        raise UsageError(f"there is no setting `{name}`", f"`/{command.name}` is a command of its own: {command.help}")
    if not values:
        state.say(state.settings.line(name))
        return
    thought = state.settings.options.think
    state.say(state.settings.set(name, values[0].strip()))
    if name.lower() == "context" and state.context < (state.options.context_size or 0):
        state.say(f"{state.context:,} is the maximum for this model.")
    if state.settings.options.think != thought:
        state.session.think = state.settings.options.think
        state.save()
        done = "The model is asked to think" if state.session.think else "The model is no longer asked to think"
        state.say(f"{done}; {_from_next_turn(state)}.")


def file(state: ChatState, argument: str) -> None:
    """Attach text files to the next message."""
    if argument.lower() == "off":
        state.attachments.clear()
        state.say("No files are attached to the next message.")
        return
    if not argument:
        names = [printable(file.name) for file in state.attachments.values()]
        attached = f"Attached to the next message: {', '.join(names)}."
        state.say(attached if names else "No files are attached to the next message.")
        return
    attachments: dict[Path, Attachment] = {}
    for path in chain.from_iterable(map(matched, split_paths(argument))):
        attachment = read_attachment(path)  # first: it refuses a path that cannot be resolved
        attachments[path.resolve()] = attachment
    sizes = [state.model.count(attachment.quoted(), max_tokens=state.context) for attachment in attachments.values()]
    others = {path: attachment for path, attachment in state.attachments.items() if path not in attachments}
    _require_room(state, attachments.values(), sum(sizes), others.values())
    before, state.attachments = state.attachments, others | attachments
    dot = state.output.stderr.dot()
    for (path, attachment), size in zip(attachments.items(), sizes, strict=True):
        again = f" {dot} replaces the one attached before" if path in before else ""
        state.say(f"{printable(attachment.name)} {dot} {counted(size, 'token')}{again}")


def copy(state: ChatState, argument: str) -> None:
    """Copy the last answer, or its last code block, to the clipboard and to a file.

    In a chat that is not saved, no file is written if the terminal's clipboard is used. The clipboard comes first, so
    that a file that cannot be written costs nothing else.
    """
    if argument.lower() not in ("", "code"):
        raise UsageError(
            f"unknown argument in `/copy {argument:.60}`", "`/copy` copies the answer, `/copy code` its code"
        )
    if not state.session.turns:
        raise UsageError("there is no answer to copy")
    text = state.session.turns[-1].answer
    if argument:
        code = last_code(text)
        if code is None:
            raise UsageError("the last answer has no code block", "`/copy` copies all of it")
        text = code
    stream = state.output.stderr
    sequence = osc52(text) if stream.moving else None
    if sequence is None:
        why = "Too long for the terminal's clipboard; copied" if stream.moving else "Copied"
        state.say(f"{why} to {_copy_file(text)}")
        return
    stream.write(sequence)
    copied = "Copied, if this terminal allows it"
    if not state.saves:
        state.say(f"{copied}; to no file, since this chat is not saved")
        return
    try:
        state.say(f"{copied}; also to {_copy_file(text)}")
    except ResourceError as error:
        state.say(copied)
        state.output.warning(error.message)


def show(state: ChatState, argument: str) -> None:
    """Show the turns again, or the last of them."""
    count = _whole("show", argument, minimum=1) if argument else len(state.session.turns)
    if not state.session.turns:
        raise UsageError("there is no turn to show", "`/load` opens an earlier session")
    markdown = state.settings.display.markdown
    state.show(session_text.earlier_turns(state.session.turns[-count:], state.output.stderr, markdown=markdown))


def save(state: ChatState, argument: str) -> None:
    """Give the session a name."""
    if not argument:
        so_far = "turns are saved automatically" if state.saves else "this chat is not saved before that"
        raise UsageError("`/save` needs a name", f"`/save NAME`; {so_far}")
    if not state.session.turns:
        state.store.reserve(state.session, argument)
        state.saves = True
        state.say(f"The session is saved as `{argument}` from its first turn on.")
        return
    left = state.store.rename(state.session, argument)
    state.saves, state.save_failed = True, False
    name = state.session.name
    state.say(f"Saved as `{name}`; `localdiff chat --session {name}` continues it.")
    if left is not None:
        state.say(f"`{left}` stays as it was.")


def load(state: ChatState, argument: str) -> None:
    """Continue another session."""
    if not argument:
        raise UsageError("`/load` needs a name", "`/sessions` lists the saved sessions")
    opened = state.store.open(argument)
    state.open(opened.session, f"/load {argument}")
    if state.settings.options.think != opened.session.think:
        state.settings.set("think", "show" if opened.session.think else "off", settings.SESSION)
    if opened.damage is not None:
        state.output.warning(session_text.damage_line(argument, opened))
    state.say(session_text.opened_line(opened.session))


def delete(state: ChatState, argument: str) -> None:
    """Delete a saved session, after asking."""
    if not argument:
        raise UsageError("`/delete` needs a name", "`/sessions` lists the saved sessions")
    if argument == state.session.name:
        raise UsageError(
            f"session `{argument}` is this one", f"`/clear` starts another; then `/delete {argument}` deletes it"
        )
    question = session_text.delete_question(state.store, argument)
    if state.ask is None:
        path = state.store.path(argument)
        raise UsageError("cannot ask for confirmation: there is no keyboard", f"the session is the file `{path}`")
    try:
        agreed = state.ask(question)
    except KeyboardInterrupt:
        agreed = False
    if agreed:
        state.store.delete(argument)
        state.say(f"Deleted session `{argument}`.")
    else:
        state.say("Nothing was deleted.")


def sessions(state: ChatState, argument: str) -> None:
    """List saved sessions."""
    if argument.lower() not in ("", "all"):
        raise UsageError(
            f"unknown argument in `/sessions {argument:.60}`",
            "`/sessions` lists the latest, `/sessions all` all of them",
        )
    max_rows = None if argument else session_text.SHOWN_SESSIONS
    width = state.output.stderr.room
    state.show(session_text.sessions_table(state.store, current=state.session.name, max_rows=max_rows, width=width))


def trace(state: ChatState, argument: str) -> None:
    """Write the recording of the last run."""
    run = state.last_run
    if run is None and state.session.turns:
        raise UsageError(
            "there is no recording of the last answer",
            "only the newest reply since the session was opened has one; `/retry` answers again",
        )
    if run is None:
        raise UsageError("there is no answer to record", "a recording is kept for the last answer of this chat")
    name = ""
    if argument:
        files = split_paths(argument)
        if len(files) != 1:
            raise UsageError("`/trace` takes one file", '`/trace "my file.jsonl"`')
        name = str(files[0])
    state.say(state.save_trace(run, name))


ACTIONS: Mapping[str, Callable[[ChatState, str], PendingMessage | None]] = {
    "help": help_,
    "exit": exit_,
    "retry": retry,
    "continue": continue_,
    "edit": edit,
    "undo": undo,
    "clear": clear,
    "system": system,
    "set": set_,
    "file": file,
    "copy": copy,
    "show": show,
    "save": save,
    "load": load,
    "delete": delete,
    "sessions": sessions,
    "trace": trace,
}


def _last(state: ChatState) -> PendingMessage:
    """The last message: the unanswered one, or the last turn's."""
    if state.unanswered is not None:
        return state.unanswered
    if not state.session.turns:
        raise UsageError("there is no message yet")
    return _message_of(state.session.turns[-1])


def _message_of(turn: Turn) -> PendingMessage:
    """The message of the last turn, whose answer the new one replaces."""
    return PendingMessage(text=turn.text, files=turn.files, replaces=1)


def _whole(command: str, text: str, *, minimum: int, maximum: int | None = None) -> int:
    number = int(text[:20]) if text.isdecimal() else -1  # no number in range has 20 digits
    if number < minimum or (maximum is not None and number > maximum):
        limit = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UsageError(f"`/{command} {text:.60}` needs a whole number {limit}")
    return number


def _copy_file(text: str) -> str:
    """Writes a text to the file of copies, and returns the file's path for a line of ours."""
    return printable(paths.shown(write_copy(paths.state_dir(), text)))


def _from_next_turn(state: ChatState) -> str:
    """When a change to the beginning of the context applies, and what it costs if there is a context already."""
    reading = ", for which the whole context is read again" if state.session.turns else ""
    return f"this applies from the next turn{reading}"


def _require_room(
    state: ChatState, attachments: Collection[Attachment], total: int, others: Collection[Attachment]
) -> None:
    """Refuse files of `total` tokens that cannot fit, whatever the message is, and state the numbers."""
    other_tokens = sum(state.model.count(attachment.quoted()) for attachment in others)
    before = sum(state.model.count(message["content"]) for message in state.session.messages())
    room = state.context - other_tokens - before
    if total < room:
        return
    names = ", ".join(f"`{attachment.name}`" for attachment in attachments)
    size = f"{names} {'has' if len(attachments) == 1 else 'have'} {total:,} tokens"
    if total < state.context:
        raise UsageError(f"{size}, and {max(room, 0):,} of {state.context:,} are free", state.room_hint)
    most = state.max_context
    if total < most:
        raise UsageError(f"{size}, and the whole context {state.context:,}", f"`/set context N` takes up to {most:,}")
    raise UsageError(f"{size}, and the largest context of this model {most:,}", "send the part that matters")
