"""A small server that speaks as much of the Hub as a download needs, on loopback.

It serves repositories from memory: metadata, the list of files, and the files with the headers by which the client
names what it stores. A repository may be gated, private, or broken in a chosen way.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

COMMIT = "a" * 40
TOKEN = "hf_good"


@dataclass
class Repository:
    """One model on the server.

    Attributes:
        files: name → content.
        gated: its files need a token that has been let in.
        private: without the token it does not exist.
        status: answer every request with this status instead.
        truncated: hand out files that are cut short.
    """

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    status: int | None = None
    truncated: bool = False


@dataclass
class Hub:
    """What is on the server, and what it was asked for."""

    url: str
    repositories: dict[str, Repository]
    requests: list[str] = field(default_factory=list)


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
        self.hub.requests.append(f"{self.command} {path}")
        api = path.startswith("api/models/")
        owner, name, *rest = path.removeprefix("api/models/").split("/")
        repository = self.hub.repositories.get(f"{owner}/{name}")
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token != TOKEN:
            return self._refuse(401, message="Invalid credentials in Authorization header")
        if repository is None or (repository.private and not token):
            return self._refuse(404 if token else 401, code="RepoNotFound")
        if repository.status is not None:
            return self._refuse(repository.status)
        wanted = rest[1] if len(rest) > 1 else "main"
        if wanted not in ("main", "v1", COMMIT):
            return self._refuse(404, code="RevisionNotFound")
        if not api:
            if repository.gated and not token:
                return self._refuse(401, code="GatedRepo")
            return self._file(repository, rest[2], body)
        if rest and rest[0] == "tree":
            return self._json([self._entry(name, data) for name, data in repository.files.items()])
        return self._json({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": [], "tags": []})

    @staticmethod
    def _entry(name: str, data: bytes) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

    def _file(self, repository: Repository, name: str, body: bool) -> None:
        if name not in repository.files:
            return self._refuse(404, code="EntryNotFound")
        data = repository.files[name]
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[: len(data) // 2] if repository.truncated else data)
        if repository.truncated:
            self.close_connection = True
        return None

    def _json(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
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


@contextmanager
def hub(**repositories: Repository) -> Iterator[Hub]:
    """Serve repositories as `owner/NAME` until the end of the block."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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
