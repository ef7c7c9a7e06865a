"""The Hub in every state: what it answers on loopback, and what the doctor makes of that."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import logging as client_logging

from localdiff.doctor.hub import finding_of
from localdiff.hub.endpoint import PUBLIC_ENDPOINT, prepare_client
from localdiff.hub.endpoint import shown as shown_endpoint
from localdiff.hub.reach import Reach
from tests.fakes.hub import TOKEN, Hub, Repository, hub, nobody
from tests.screens.processes import ROOT, environment, process

ASK = """
import dataclasses, json, sys
from localdiff.hub import reach
reach.TIMEOUT = float(sys.argv[2])
print(json.dumps(dataclasses.asdict(reach.reach(sys.argv[1]))))
"""

OPENSSL = shutil.which("openssl")


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    files = {"config.json": b"{}"}
    with hub(
        model=Repository(files=files),
        gated=Repository(files=files, gated=True),
        broken=Repository(files=files, status=500),
        busy=Repository(files=files, status=429),
        forbidden=Repository(files=files, status=403),
        barred=Repository(files=files, status=401),
        page=Repository(files=files, listing=b"<html>Please sign in</html>"),
    ) as running:
        yield running


def ask(
    url: str, tmp_path: Path, model: str = "owner/model", *, timeout: float = 10, **variables: str
) -> dict[str, Any]:
    """Ask in a separate process, because the Hub's client reads its settings only once."""
    env = environment(HF_ENDPOINT=url, HF_HOME=str(tmp_path), NO_PROXY="127.0.0.1", **variables)
    done = subprocess.run(
        [sys.executable, "-c", ASK, model, str(timeout)], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("model", ["owner/model", "owner/gated", "owner/unknown"])
def test_a_hub_that_answers(server: Hub, tmp_path: Path, model: str) -> None:
    answer = ask(server.url, tmp_path, model)
    assert (answer["state"], answer["problem"], answer["has_token"]) == ("reachable", None, False)
    assert answer["endpoint"] == server.url
    assert answer["seconds"] > 0


def test_a_token_that_is_good(server: Hub, tmp_path: Path) -> None:
    answer = ask(server.url, tmp_path, HF_TOKEN=TOKEN)
    assert (answer["state"], answer["has_token"]) == ("reachable", True)
    assert TOKEN not in json.dumps(answer)


def test_a_token_that_is_not(server: Hub, tmp_path: Path) -> None:
    answer = ask(server.url, tmp_path, HF_TOKEN="hf_expired")
    assert (answer["state"], answer["problem"]) == (
        "refused",
        f"the mirror {server.url} answered 401 for `owner/model`",
    )
    assert "a token of its own in `HF_TOKEN`" in answer["advice"]
    assert "hf_expired" not in json.dumps(answer)


def test_a_token_is_refused_only_where_there_is_one(server: Hub, tmp_path: Path) -> None:
    assert ask(server.url, tmp_path, "owner/forbidden", HF_TOKEN=TOKEN)["state"] == "refused"
    assert ask(server.url, tmp_path, "owner/forbidden")["state"] == "broken"


def test_a_mirror_that_wants_an_account_does_not_answer_well(server: Hub, tmp_path: Path) -> None:
    """The client reports that there is no such model."""
    answer = ask(server.url, tmp_path, "owner/barred")
    assert (answer["state"], answer["problem"]) == (
        "broken",
        f"the mirror {server.url} answered 401 for `owner/barred`",
    )


@pytest.mark.parametrize("model", ["owner/broken", "owner/busy"])
def test_a_hub_that_is_ill(server: Hub, tmp_path: Path, model: str) -> None:
    assert ask(server.url, tmp_path, model)["state"] == "broken"


def test_a_page_in_the_place_of_the_hub(server: Hub, tmp_path: Path) -> None:
    answer = ask(server.url, tmp_path, "owner/page")
    assert (answer["state"], answer["problem"]) == ("broken", f"what answers at {server.url} is not the Hub")


def test_the_password_of_a_mirror_is_in_no_answer(server: Hub, tmp_path: Path) -> None:
    with_password, hidden = (server.url.replace("://", f"://{user}@") for user in ("me:pass:w@rd", "****"))
    answer = ask(with_password, tmp_path)
    assert (answer["state"], answer["endpoint"]) == ("reachable", hidden)
    answer = ask(with_password, tmp_path, "owner/page")
    assert answer["problem"] == f"what answers at {hidden} is not the Hub"
    for endpoint, shown in ("http://me:a/b@hub.test", "http://****@hub.test"), ("me:word@hub.test", "****@hub.test"):
        assert shown_endpoint(endpoint) == shown
    answer = ask("me:word@hub.test", tmp_path)
    assert (answer["state"], answer["endpoint"]) == ("misnamed", "****@hub.test")


def test_a_traceback_has_no_password_of_a_mirror(server: Hub, tmp_path: Path) -> None:
    env = environment(
        HF_ENDPOINT=server.url.replace("://", "://me:word@"),
        HF_HOME=str(tmp_path),
        NO_PROXY="127.0.0.1",
        LOCALDIFF_DEBUG="1",
    )
    run = process("run", "-m", "owner/gated", "hi", env=env)
    assert run.code == 3 and "Traceback" in run.stderr and server.url.replace("://", "://****@") in run.stderr
    assert "word@" not in run.stderr


def test_what_the_client_logs_has_no_password_of_a_mirror(server: Hub, tmp_path: Path) -> None:
    """With `HF_DEBUG` it logs the address of every request."""
    env = environment(
        HF_ENDPOINT=server.url.replace("://", "://me:word@"),
        HF_HOME=str(tmp_path),
        NO_PROXY="127.0.0.1",
        HF_DEBUG="1",
        LOCALDIFF_DEBUG="1",
    )
    run = process("quantize", "owner/model", "--yes", env=env)
    assert server.url.replace("://", "://****@") + "/api/models/owner/model" in run.stderr
    assert "word@" not in run.stderr


def test_a_traceback_that_the_client_logs_has_no_password_of_a_mirror() -> None:
    """For example of the client's question whether an agent runs it, which few mirrors know."""
    prepare_client()
    handler = client_logging.get_logger().handlers[0]
    try:
        raise OSError("404 for url 'http://me:word@mirror/api'")
    except OSError as error:
        cause = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.DEBUG, "x", 1, "asked %s", ("http://me:word@mirror",), cause)
    assert handler.filter(record)
    shown = handler.format(record)
    assert shown.startswith("asked http://****@mirror\nTraceback ") and shown.endswith("'http://****@mirror/api'")
    assert "word@" not in shown


def test_nobody_there(tmp_path: Path) -> None:
    assert ask(nobody(), tmp_path)["state"] == "unreachable"


def test_somebody_who_never_answers(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        answer = ask(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, timeout=0.5)
    assert answer["state"] == "unreachable"


@pytest.mark.parametrize("endpoint", ["garbage", "localhost:8000", "ftp://hub.test", "http:"])
def test_an_endpoint_that_is_no_address(endpoint: str, tmp_path: Path) -> None:
    answer = ask(endpoint, tmp_path)
    assert (answer["state"], answer["endpoint"]) == ("misnamed", endpoint)


@pytest.mark.parametrize(("content", "reason"), [(None, "Is a directory"), (b"hf_\xff", "it is not text")])
def test_a_token_that_cannot_be_read(server: Hub, tmp_path: Path, content: bytes | None, reason: str) -> None:
    token = tmp_path / "token"
    token.mkdir() if content is None else token.write_bytes(content)
    answer = ask(server.url, tmp_path)
    assert (answer["state"], answer["problem"]) == ("unread", f"the token in `{token}` cannot be read: {reason}")
    assert "`HF_TOKEN` takes its place" in answer["advice"]
    assert ask(server.url, tmp_path, HF_TOKEN=TOKEN)["state"] == "reachable"


def test_a_run_says_what_is_wrong_with_a_token(server: Hub, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.mkdir()
    run = process("run", "-m", "owner/model", "hi", env=environment(HF_ENDPOINT=server.url, HF_HOME=str(tmp_path)))
    assert (run.code, run.stdout) == (3, "")
    assert run.stderr.startswith(
        f"error: the token in `{token}` cannot be read: Is a directory\nhint: make it readable"
    )


@pytest.mark.parametrize(
    ("variable", "value", "problem", "advice"),
    [
        ("ALL_PROXY", "socks://127.0.0.1:9", "`ALL_PROXY` does not name a usable proxy", "`socks5://HOST:PORT`"),
        ("HTTPS_PROXY", "http://proxy:port", "`HTTPS_PROXY` does not name a usable proxy", "`http://HOST:PORT`"),
        pytest.param(
            *("all_proxy", "SOCKS5://user:secret@127.0.0.1:9"),
            "`ALL_PROXY` names a SOCKS proxy, and the package for these is not installed",
            "`pip install socksio`",
            marks=pytest.mark.skipif(find_spec("socksio") is not None, reason="such a proxy can be used here"),
        ),
        ("SSL_CERT_FILE", "missing.pem", "`SSL_CERT_FILE=missing.pem` cannot be used: No such file", "of the system"),
        ("SSL_CERT_FILE", "README.md", "`SSL_CERT_FILE=README.md` cannot be used: it holds no certificate", "system"),
    ],
)
def test_a_setting_with_which_nobody_can_be_asked(
    server: Hub, tmp_path: Path, variable: str, value: str, problem: str, advice: str
) -> None:
    answer = ask(server.url, tmp_path, **{variable: value})
    assert answer["state"] == "barred"
    assert answer["problem"].startswith(problem)
    assert advice in answer["advice"]


@pytest.fixture
def self_signed(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    assert OPENSSL is not None
    file = tmp_path / "self_signed.pem"
    options = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([OPENSSL, *options.split(), "-keyout", file, "-out", file], check=True, capture_output=True)
    return file


@pytest.mark.skipif(OPENSSL is None, reason="openssl, which makes a certificate, is not installed")
def test_a_certificate_that_is_not_trusted(tmp_path: Path, self_signed: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}"
        answer = ask(url, tmp_path)
        trusting = ask(url, tmp_path, SSL_CERT_FILE=str(self_signed))
        run = process("run", "-m", "owner/model", "hi", env=environment(HF_ENDPOINT=url, HF_HOME=str(tmp_path)))
        server.shutdown()
    assert (answer["state"], answer["problem"]) == (
        "barred",
        f"the certificate of {url} is not trusted: self-signed certificate",
    )
    assert "`SSL_CERT_FILE` names a file" in answer["advice"]
    assert (run.code, run.stdout) == (3, "")
    assert run.stderr == f"error: {answer['problem']}\nhint: {answer['advice']}\n"
    assert trusting["state"] == "broken"  # the server is asked, but its answer is not the Hub's


def test_a_token_that_cannot_be_sent(server: Hub, tmp_path: Path) -> None:
    answer = ask(server.url, tmp_path, HF_TOKEN="“hf_good”")
    assert (answer["state"], answer["problem"]) == ("unread", "the token in `HF_TOKEN` cannot be sent: it is not ASCII")
    (tmp_path / "token").write_text("hf_é", encoding="utf-8")
    answer = ask(server.url, tmp_path)
    assert answer["problem"] == f"the token in `{tmp_path / 'token'}` cannot be sent: it is not ASCII"
    assert "copy it again" in answer["advice"]


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """`HOST:PORT` of a server that answers every request with these bytes, and hangs up."""

    def answer(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            asked = b""
            while not asked.endswith(b"\r\n\r\n") and (more := connection.recv(1000)):
                asked += more
            connection.sendall(content)
            connection.close()

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        threading.Thread(target=answer, args=(listening,), daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_a_proxy_that_refuses(tmp_path: Path) -> None:
    with answering(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as proxy:
        answer = ask("https://hub.test", tmp_path, HTTPS_PROXY=f"http://{proxy}")
    refusal = "the proxy refuses the connection to https://hub.test: 407 Proxy Authentication Required"
    assert (answer["state"], answer["problem"]) == ("barred", refusal)
    assert "`http://USER:PASSWORD@HOST:PORT`" in answer["advice"]


def test_an_answer_that_is_no_answer(tmp_path: Path) -> None:
    with answering(b"garbage\r\n\r\n") as server:
        answer = ask(f"http://{server}", tmp_path)
    assert (answer["state"], answer["advice"]) == ("broken", None)


def test_a_hub_that_may_not_be_asked(server: Hub, tmp_path: Path) -> None:
    before = len(server.requests)
    assert ask(server.url, tmp_path, HF_HUB_OFFLINE="1")["state"] == "offline"
    assert len(server.requests) == before


def test_a_hub_whose_faster_protocol_is_switched_off(server: Hub, tmp_path: Path) -> None:
    remedy = ask(server.url, tmp_path, HF_HUB_DISABLE_XET="1")["xet_remedy"]
    assert remedy.endswith("unset `HF_HUB_DISABLE_XET`")
    assert finding_of(Reach(endpoint=PUBLIC_ENDPOINT, state="reachable", xet_remedy=remedy)).advice == remedy


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        ({"state": "reachable"}, "ok", "https://huggingface.co answers, no token, and none is needed"),
        ({"state": "reachable", "has_token": True}, "ok", "answers, token found, hf_xet present"),
        ({"state": "reachable", "xet_remedy": "`pip`"}, "warn", "hf_xet is not used, so downloads are slower"),
        ({"state": "offline"}, "ok", "not asked: `HF_HUB_OFFLINE` is set"),
        ({"state": "unreachable", "problem": "no answer"}, "warn", "https://huggingface.co does not answer"),
        ({"state": "refused", "problem": "no", "advice": "log in"}, "warn", "refuses the token: no"),
        ({"state": "unread", "problem": "a token is bad", "advice": "mend it"}, "warn", "not asked: a token is bad"),
        ({"state": "barred", "problem": "a proxy is bad", "advice": "mend it"}, "warn", "not asked: a proxy is bad"),
        ({"state": "misnamed", "endpoint": "garbage"}, "warn", "not asked: `HF_ENDPOINT=garbage` is not an address"),
        ({"state": "broken", "problem": "500"}, "warn", "answers with an error: 500"),
    ],
)
def test_what_it_means(found: dict[str, Any], status: str, words: str) -> None:
    finding = finding_of(Reach(**({"endpoint": PUBLIC_ENDPOINT} | found)))
    assert finding.status == status
    assert words in finding.text


def test_a_mirror_is_not_named_in_public() -> None:
    for state in ("reachable", "unreachable", "refused", "broken", "misnamed"):
        finding = finding_of(Reach(endpoint="https://mirror.janes-company.example", state=state, problem="p"))  # type: ignore[arg-type]
        assert "janes-company" in finding.text
        assert "janes-company" not in (finding.public or "janes-company")
        assert "janes-company" not in json.dumps(dict(finding.facts))
