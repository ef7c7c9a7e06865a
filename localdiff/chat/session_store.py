"""The folder of sessions: private files, each replaced atomically.

Knows names, files and whether another program wrote them last; knows nothing about what is in a session.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path

from localdiff.chat.session import Session
from localdiff.chat.session_file import Opened, encode, read
from localdiff.errors import ResourceError, UsageError
from localdiff.machine.private_file import make_private_folder, write_new, write_private

SUFFIX = ".jsonl"
MAX_NAME_BYTES = 200
_NAME = re.compile(r"\w[\w.-]*")
_GIVEN_BY_US = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(-\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A session in the folder: its name and when it was written, in seconds since 1970."""

    name: str
    written: float


class SessionStore:
    """The sessions in a folder.

    Args:
        directory: the folder; made when the first session is saved.
        now: local time, for names.
    """

    def __init__(self, directory: Path, now: Callable[[], datetime] = datetime.now) -> None:
        self._directory = directory
        self._now = now
        self._identities: dict[str, tuple[int, int, int]] = {}

    def path(self, name: str) -> Path:
        """The file of a session.

        Raises:
            UsageError: no session can have this name.
        """
        if not _is_name(name):
            raise UsageError(
                f"`{name:.60}` cannot name a session",
                f"use letters, digits, `_`, and (not first) `-` and `.`, at most {MAX_NAME_BYTES} bytes",
            )
        return self._directory / (name + SUFFIX)

    def exists(self, name: str) -> bool:
        """Whether there is a session of this name."""
        return self.path(name).exists()

    def entries(self) -> list[Entry]:
        """The sessions in the folder, the latest first.

        Raises:
            ResourceError: the folder cannot be read.
        """
        entries = []
        try:
            paths = list(self._directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ResourceError(
                f"`{self._directory}` cannot be read: {error.strerror}", "`localdiff config paths` says what moves it"
            ) from error
        for path in paths:
            name = path.name.removesuffix(SUFFIX)
            if path.name == name or not _is_name(name):
                continue
            with suppress(OSError):  # deleted since, or a dangling link
                entries.append(Entry(name=name, written=path.stat().st_mtime))
        return sorted(entries, key=lambda entry: (entry.written, entry.name), reverse=True)

    def look(self, name: str) -> Opened:
        """Reads a session without changing anything.

        Raises:
            UsageError: there is none, or it cannot be read.
        """
        return self._parsed(name, self._read(name)[0])

    def open(self, name: str) -> Opened:
        """Reads a session to continue; a damaged file is copied beside it.

        Raises:
            UsageError: as `look`.
            ResourceError: a damaged file cannot be copied.
        """
        data, status = self._read(name)
        opened = self._parsed(name, data)
        self._identities[name] = _identity(status)
        if opened.damage is None:
            return opened
        return replace(opened, backup=self._back_up(name, data))

    def _back_up(self, name: str, data: bytes) -> str:
        """Copies a damaged file, since the next save writes only what could be read, and returns the copy's name."""
        path = self.path(name)
        for number in count(1):
            backup = path.with_name(f"{path.name}.damaged{'' if number == 1 else f'-{number}'}")
            try:
                if not backup.exists():
                    write_private(backup, data)
                if backup.read_bytes() == data:
                    break
            except OSError as error:
                raise ResourceError(f"`{backup}` cannot be written: {error.strerror}") from error
        return backup.name

    def save(self, session: Session) -> str | None:
        """Writes a session, and gives it a name if it has none.

        A session without turns is written only under a name that the user gave; otherwise its file is deleted.

        Returns:
            The session's former name, if another program has written to its file meanwhile: then this session
            continues under a new name, and neither version is lost.

        Raises:
            ResourceError: the file cannot be written.
        """
        former_name = None
        try:
            if not session.turns and (session.name is None or _GIVEN_BY_US.fullmatch(session.name)):
                if session.name is not None:
                    self._delete_ours(session.name)
                    session.name = None
                return None
            make_private_folder(self._directory)
            if session.name is None:
                self._save_as_new(session, f"{self._now():%Y-%m-%d-%H%M%S}")
            elif self._is_somebody_elses(session.name):
                former_name = session.name
                self._save_as_new(session, session.name)
            else:
                written = write_private(self.path(session.name), encode(session))
                self._identities[session.name] = _identity(written)
        except OSError as error:
            raise ResourceError(
                f"the session cannot be saved: {error.strerror}",
                f"sessions are written to `{self._directory}`; `localdiff chat --no-history` writes none",
            ) from error
        return former_name

    def reserve(self, session: Session, name: str) -> None:
        """Names a session that is to be written later.

        Raises:
            UsageError: the name is taken or invalid.
        """
        self._require_free(session, name)
        session.name = name

    def rename(self, session: Session, name: str) -> str | None:
        """Saves a session under a new name. If the user gave it another name before, a copy stays under that one.

        Returns:
            The name of the copy that stays, if there is one.

        Raises:
            UsageError: the name is taken or invalid.
            ResourceError: as `save`.
        """
        if name == session.name:
            self.save(session)
            return None
        self._require_free(session, name)
        before, session.name = session.name, name
        try:
            self.save(session)
        except ResourceError:
            session.name = before
            raise
        if before is not None and _GIVEN_BY_US.fullmatch(before):
            self._delete_ours(before)
            return None
        return before if before is not None and self.exists(before) else None

    def delete(self, name: str) -> None:
        """Deletes a session; a copy that was made because it was damaged stays.

        Raises:
            UsageError: there is none.
            ResourceError: it cannot be deleted.
        """
        path = self.path(name)
        try:
            path.unlink()
        except FileNotFoundError:
            raise missing_session(name) from None
        except OSError as error:
            raise ResourceError(f"`{path}` cannot be deleted: {error.strerror}") from error

    def _require_free(self, session: Session, name: str) -> None:
        if name != session.name and self.exists(name):
            raise UsageError(f"session `{name}` already exists", f"choose another name, or `/load {name}`")

    def _delete_ours(self, name: str) -> None:
        """Deletes a file, unless another program has written to it since."""
        if not self._is_somebody_elses(name):
            with suppress(FileNotFoundError):
                self.path(name).unlink()

    def _read(self, name: str) -> tuple[bytes, os.stat_result]:
        path = self.path(name)
        try:
            status = path.stat()
            return path.read_bytes(), status
        except FileNotFoundError:
            raise missing_session(name) from None
        except OSError as error:
            raise UsageError(f"session `{name}` cannot be read: {error.strerror}", f"look at `{path}`") from error

    def _parsed(self, name: str, data: bytes) -> Opened:
        try:
            return read(data, name)
        except UsageError as error:
            error.hint = error.hint or f"look at `{self.path(name)}`"
            raise

    def _is_somebody_elses(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            return _identity(self.path(name).stat()) != self._identities.get(name)
        return False

    def _save_as_new(self, session: Session, name: str) -> None:
        """Writes a session that has no file yet, with a number after the name if the name is taken."""
        path, status = write_new(map(self.path, _numbered(name)), encode(session))
        session.name = path.name.removesuffix(SUFFIX)
        self._identities[session.name] = _identity(status)


def _numbered(name: str) -> Iterator[str]:
    """The name, then the name with each number from 2 on after it, cut to the maximum length."""
    yield name
    for number in count(2):
        end = f"-{number}"
        yield name.encode()[: MAX_NAME_BYTES - len(end)].decode(errors="ignore") + end


def missing_session(name: str) -> UsageError:
    """The error that there is no session of this name."""
    return UsageError(f"there is no session `{name}`", "`/sessions` lists the saved sessions")


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_name(name: str) -> bool:
    # Vowel signs and accents that are separate characters belong to the letter before them.
    letters = name[:1] + "".join(c for c in name[1:] if unicodedata.category(c) not in {"Mn", "Mc"})
    return _NAME.fullmatch(letters) is not None and len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES
