"""A small server on loopback that speaks as much of the Hub's protocol as a download needs.

It serves repositories from memory: metadata, the list of files, and the files with the headers from which the client
names what it stores. Large files (weights, the tokenizer) are behind a redirect to another path, as on the Hub, with
ranges and SHA-256. A repository may be gated, private, slow, or broken in a chosen way.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

COMMIT = "a" * 40
TOKEN = "hf_good"
_CHUNK = 1 << 14


@dataclass
class Repository:
    """One model on the server.

    Attributes:
        files: name → content.
        license: word in its card.
        gated: its files need a token that has access.
        private: without the token it seems not to exist.
        status: answer every request with this status instead.
        statuses: kind of request (`api`, `resolve`, `cdn`) → statuses to answer first, once each.
        truncated: hand out files that are cut short.
        cuts: name → after how many bytes to cut the connection, once each.
        resets: the same, but the connection is reset, not closed.
        stalls: the same, but nothing more comes until the client gives up.
        wrong: names of files that are handed out with one bit flipped.
        gone: names of large files that are listed, but not handed out whole.
        ranges: whether ranges are understood.
        pace: seconds between two pieces of a large file.
        slow: the same for single files.
        stalled: names of large files of which no range is ever answered: nothing comes until the client gives up.
        sizes: name → size that a file is listed with, if not that of its content.
        hashes: name of a large file → the hash that its headers claim, which may be anything.
        has_sizes: whether files are listed with sizes and hashes.
        newer: the commit that `main` has moved on to; `COMMIT` is still served.
        changed: files that differ in `newer`.
        says: kind of request (`api`, `resolve`) → the commit that answers claim, whichever was asked for.
        xet: where `hf_xet` is sent for large files: `URL/xet` of this server, or an address where nobody listens.
        listing: the answer of something that is not the Hub, in place of the list of files.
        page: the same in place of large files.
    """

    files: dict[str, bytes]
    license: str | None = None
    gated: bool = False
    private: bool = False
    status: int | None = None
    statuses: dict[str, list[int]] = field(default_factory=dict)
    truncated: bool = False
    cuts: dict[str, list[int]] = field(default_factory=dict)
    resets: dict[str, list[int]] = field(default_factory=dict)
    stalls: dict[str, list[int]] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    ranges: bool = True
    pace: float = 0.0
    slow: dict[str, float] = field(default_factory=dict)
    stalled: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    has_sizes: bool = True
    newer: str | None = None
    changed: dict[str, bytes] = field(default_factory=dict)
    says: dict[str, str] = field(default_factory=dict)
    xet: str | None = None
    listing: bytes | None = None
    page: bytes | None = None

    def at(self, commit: str, name: str) -> bytes:
        """A file of a commit."""
        return self.files[name] if commit == COMMIT else self.changed.get(name, self.files[name])


@dataclass
class Hub:
    """The server: its repositories, the requests it got, and about how many bytes of files it has sent.

    Attributes:
        kept_waiting: names of the files for which clients have waited in vain.
        user_agents: user agents of the clients.
    """

    url: str
    repositories: dict[str, Repository]
    requests: list[str] = field(default_factory=list)
    sent: int = 0
    kept_waiting: list[str] = field(default_factory=list)
    user_agents: set[str] = field(default_factory=set)

    def fetched(self) -> list[str]:
        """Names of the large files that were requested whole, or from some byte to the end, in order."""
        return [request.split("/")[-1] for request in self.requests if request.startswith("GET cdn/")]


def is_large(name: str) -> bool:
    """Whether a file is stored outside git."""
    return name.endswith(".safetensors") or name == "tokenizer.json"


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep quiet."""

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].removeprefix("/")
        if path == "api/agent-harnesses":  # the client asks for it on machines that agents use
            return self._json({})
        if path.startswith("xet/"):
            _, version, kind, name = path.split("/")
            return self._xet(version, kind, name)
        self.hub.user_agents.add(self.headers["User-Agent"])
        start = self._range()
        if not (path.startswith("cdn/") and start is not None and self._last() is not None):
            self.hub.requests.append(f"{self.command} {path}")
        kind = path.split("/")[0] if path.startswith(("api/", "cdn/")) else "resolve"
        owner, name, *rest = path.removeprefix("api/models/").removeprefix("cdn/").split("/")
        repository = self.hub.repositories.get(f"{owner}/{name}")
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        token = token if scheme == "Bearer" else ""  # any other scheme is a password, which a mirror may want
        if token and token != TOKEN:
            return self._refuse(401, message="Invalid credentials in Authorization header")
        if kind == "cdn" and token:
            return self._refuse(400, message="a token came along")
        if repository is None or (repository.private and not token and kind != "cdn"):
            return self._refuse(404 if token else 401, code="RepoNotFound")
        if repository.status is not None:
            return self._refuse(repository.status)
        if repository.statuses.get(kind):
            return self._refuse(repository.statuses[kind].pop(0))
        if kind == "cdn" and repository.page is not None:
            return self._body(repository.page, "text/html")
        if kind == "cdn":
            return self._content(repository, rest[1], body, rest[0])
        wanted = rest[1] if len(rest) > 1 else "main"
        if wanted not in ("main", "v1", COMMIT, repository.newer):
            return self._refuse(404, code="RevisionNotFound")
        commit = repository.newer if repository.newer and wanted in ("main", repository.newer) else COMMIT
        commit = repository.says.get(kind, commit)
        if kind == "resolve":
            if repository.gated and not token:
                return self._refuse(401, code="GatedRepo")
            return self._file(repository, f"{owner}/{name}", rest[2], body, commit)
        if repository.xet is not None and rest and rest[0] == "xet-read-token":
            expires = int(time.time()) + 3600
            return self._json({"accessToken": TOKEN, "exp": expires, "casUrl": repository.xet})
        if repository.listing is not None:
            return self._body(repository.listing, "text/html")
        siblings = [_sibling(name, data, repository.sizes.get(name)) for name, data in repository.files.items()]
        if not repository.has_sizes:
            siblings = [{"rfilename": name} for name in repository.files]
        card = {} if repository.license is None else {"cardData": {"license": repository.license}}
        return self._json({"id": f"{owner}/{name}", "sha": commit, "siblings": siblings, "tags": []} | card)

    def _file(self, repository: Repository, id: str, name: str, body: bool, commit: str) -> None:
        if name not in repository.files:
            return self._refuse(404, code="EntryNotFound")
        if not is_large(name):
            return self._content(repository, name, body, commit)
        data = repository.at(commit, name)
        self.send_response(302)
        self.send_header("X-Linked-ETag", f'"{repository.hashes.get(name, hashlib.sha256(data).hexdigest())}"')
        self.send_header("X-Linked-Size", str(len(data)))
        self.send_header("X-Repo-Commit", commit)
        if repository.xet is not None:
            self.send_header("X-Xet-Hash", hashlib.sha256(data).hexdigest())
            self.send_header("X-Xet-Refresh-Route", f"{self.hub.url}/api/models/{id}/xet-read-token/{commit}")
        # Another host, as on the Hub: the client must not send its token there.
        self.send_header("Location", f"{self.hub.url.replace('127.0.0.1', 'localhost')}/cdn/{id}/{commit}/{name}")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _xet(self, version: str, kind: str, name: str) -> None:
        """The storage of large files: how a file is put together, or its bytes; here it is its chunks in order."""
        files = (data for repository in self.hub.repositories.values() for data in repository.files.values())
        data = next(data for data in files if hashlib.sha256(data).hexdigest() == name)
        start, last = self._range() or 0, self._last() or 0
        if kind == "bytes":
            stored = b"".join(_chunk(data[begin : begin + _CHUNK]) for begin in range(0, len(data), _CHUNK))
            return self._body(stored[start : last + 1], "application/octet-stream", status=206)
        if version != "v1":
            return self._refuse(404)
        first, end = start // _CHUNK, min(last, len(data) - 1) // _CHUNK + 1
        stored_end = end * 8 + min(end * _CHUNK, len(data))
        part = {"range": {"start": first, "end": end}}
        term = part | {"hash": name, "unpacked_length": min(end * _CHUNK, len(data)) - first * _CHUNK}
        fetched = part | {
            "url": f"{self.hub.url}/xet/v1/bytes/{name}",
            "url_range": {"start": first * (8 + _CHUNK), "end": stored_end - 1},
        }
        return self._json(
            {"offset_into_first_range": start - first * _CHUNK, "terms": [term], "fetch_info": {name: [fetched]}}
        )

    def _content(self, repository: Repository, name: str, body: bool, commit: str = COMMIT) -> None:
        if name in repository.gone and self._last() is None:
            return self._refuse(404)
        if name in repository.stalled and self._last() is not None:
            self.hub.kept_waiting.append(name)
            self.rfile.read(1)  # until the client closes the connection
            self.close_connection = True
            return None
        data = repository.at(commit, name)
        etag = hashlib.sha256(data).hexdigest() if is_large(name) else _blob(data)
        if name in repository.wrong:
            data = data[:-1] + bytes([data[-1] ^ 1])
        start, last = (self._range(), self._last()) if repository.ranges else (None, None)
        part = data[start or 0 : None if last is None else last + 1]
        self.send_response(200 if start is None else 206)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Content-Length", str(len(part)))
        if start is not None:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.end_headers()
        cut = len(part) // 2 if repository.truncated else None
        if body and last is None and repository.cuts.get(name):
            cut = repository.cuts[name].pop(0)
        reset = repository.resets[name].pop(0) if body and last is None and repository.resets.get(name) else None
        stall = repository.stalls[name].pop(0) if body and last is None and repository.stalls.get(name) else None
        cut = next((end for end in (reset, stall) if end is not None), cut)
        if cut is not None:
            self.close_connection = True
        if body:
            pace = repository.slow.get(name, repository.pace) if is_large(name) and last is None else 0.0
            self._send(part[:cut], pace)
        if stall is not None:
            self.rfile.read(1)
        if reset is not None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()
        return None

    def _send(self, content: bytes, pace: float) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(content), _CHUNK):
                self.wfile.write(content[start : start + _CHUNK])
                self.hub.sent += _CHUNK
                if pace:
                    time.sleep(pace)

    def _range(self) -> int | None:
        wanted = self.headers.get("Range")
        return None if wanted is None else int(wanted.removeprefix("bytes=").split("-")[0])

    def _last(self) -> int | None:
        last = (self.headers.get("Range") or "-").split("-")[1]
        return int(last) if last else None

    def _json(self, value: object) -> None:
        self._body(json.dumps(value).encode(), "application/json")

    def _body(self, data: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: int, *, code: str | None = None, message: str | None = None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        if message is not None:
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _chunk(content: bytes) -> bytes:
    """A chunk as stored: version, stored length, compression (none), and uncompressed length; then the content."""
    return (b"\0" + len(content).to_bytes(3, "little")) * 2 + content


def _blob(data: bytes) -> str:
    """Git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _lfs(data: bytes) -> dict[str, object]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}


def _sibling(name: str, data: bytes, size: int | None) -> dict[str, object]:
    sibling: dict[str, object] = {"rfilename": name, "size": size or len(data), "blobId": _blob(data)}
    return sibling | ({"lfs": _lfs(data)} if is_large(name) else {})


@contextmanager
def hub(**repositories: Repository) -> Iterator[Hub]:
    """Serve repositories as `owner/NAME` until the end of the block."""
    handler: type[_Handler] = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.hub = Hub(
        url=f"http://127.0.0.1:{server.server_address[1]}",
        repositories={f"owner/{name}": repository for name, repository in repositories.items()},
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield handler.hub
    finally:
        server.shutdown()
        server.server_close()


@cache
def nobody() -> str:
    """An address where no server listens, nor will: this process keeps the port until it ends."""
    silent = socket.socket()
    atexit.register(silent.close)
    silent.bind(("127.0.0.1", 0))
    return f"http://127.0.0.1:{silent.getsockname()[1]}"
