"""The Hub, as a finding.

Knows what each answer of the Hub means for a user; asks nothing itself.
"""

from __future__ import annotations

from functools import partial

from localdiff.doctor.finding import Finding, Status
from localdiff.hub.endpoint import ADDRESS, PUBLIC_ENDPOINT
from localdiff.hub.reach import Reach, reach
from quant.released import MODEL

_SLOWER = "hf_xet is not used, so downloads are slower and files over 50 GB are refused"
_STILL = "local models still run; check the connection and `HF_ENDPOINT`, `HTTPS_PROXY`, or set `HF_HUB_OFFLINE=1`"


def check_hub() -> list[Finding]:
    """Ask the Hub, and report the result."""
    return [finding_of(reach(MODEL))]


def finding_of(answer: Reach) -> Finding:
    """The finding for an answer of the Hub."""
    is_public = answer.endpoint == PUBLIC_ENDPOINT
    where = answer.endpoint if is_public else "the endpoint of `HF_ENDPOINT`"
    token = "token found" if answer.has_token else "no token, and none is needed for the released weights"
    facts = {
        "state": answer.state,
        "seconds": answer.seconds,
        "has_token": answer.has_token,
        "has_xet": answer.xet_remedy is None,
        "custom_endpoint": not is_public,
    }

    finding = partial(Finding, subject="hub", facts=facts)

    def asked(status: Status, words: str, *, private: str = "", advice: str | None = None) -> Finding:
        text, public = f"{answer.endpoint} {words}{private}", f"{where} {words}"
        return finding(status=status, text=text, public=public, advice=advice)

    match answer.state:
        case "offline":
            return finding(status="ok", text="not asked: `HF_HUB_OFFLINE` is set")
        case "misnamed":
            text = f"not asked: `HF_ENDPOINT={answer.endpoint}` is not an address"
            return finding(
                status="warn", text=text, public="not asked: `HF_ENDPOINT` is not an address", advice=ADDRESS
            )
        case "unread" | "barred":
            reason = "the token cannot be used" if answer.state == "unread" else "a proxy or a certificate bars it"
            public = f"not asked: {reason}"
            return finding(status="warn", text=f"not asked: {answer.problem}", public=public, advice=answer.advice)
        case "reachable" if answer.xet_remedy is None:
            return asked("ok", f"answers, {token}, hf_xet present")
        case "reachable":
            return asked("warn", f"answers, {token}; {_SLOWER}", advice=answer.xet_remedy)
        case "unreachable":
            return asked("warn", "does not answer", advice=_STILL)
        case "refused":
            words = "refuses the token"
        case "broken":
            words = "answers with an error"
    return asked("warn", words, private=f": {answer.problem}", advice=answer.advice or _STILL)
