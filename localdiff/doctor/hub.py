"""The Hub, as a finding.

Knows what each answer of the Hub means for a user; asks nothing itself.
"""

from __future__ import annotations

from localdiff.doctor.finding import Finding
from localdiff.hub.endpoint import ADDRESS
from localdiff.hub.reach import PUBLIC_ENDPOINT, Reach, reach
from localdiff.model_store import MODEL

_SLOWER = "hf_xet is missing, so downloads are slower and files over 50 GB are refused"
_STILL = (
    "models that are here still run; check the connection and `HF_ENDPOINT`, `HTTPS_PROXY`, or set `HF_HUB_OFFLINE=1`"
)


def check_hub() -> list[Finding]:
    """Ask the Hub, and report the result."""
    return [finding_of(reach(MODEL))]


def finding_of(found: Reach) -> Finding:
    """The finding for an answer of the Hub."""
    known = found.endpoint == PUBLIC_ENDPOINT
    where = found.endpoint if known else "the endpoint of `HF_ENDPOINT`"
    token = "token found" if found.has_token else "no token, and none is needed for the released weights"
    facts = {
        "state": found.state,
        "seconds": found.seconds,
        "has_token": found.has_token,
        "has_xet": found.has_xet,
        "custom_endpoint": not known,
    }
    if found.state == "offline":
        return Finding(subject="hub", status="ok", text="not asked: `HF_HUB_OFFLINE` is set", facts=facts)
    if found.state == "reachable":
        text = f"{found.endpoint} answers, {token}"
        public = f"{where} answers, {token}"
        if found.has_xet:
            return Finding(
                subject="hub",
                status="ok",
                text=f"{text}, hf_xet present",
                public=f"{public}, hf_xet present",
                facts=facts,
            )
        return Finding(
            subject="hub",
            status="warn",
            text=f"{text}; {_SLOWER}",
            public=f"{public}; {_SLOWER}",
            advice="`pip install hf-xet`",
            facts=facts,
        )
    if found.state == "unreachable":
        return Finding(
            subject="hub",
            status="warn",
            text=f"{found.endpoint} does not answer",
            public=f"{where} does not answer",
            advice=_STILL,
            facts=facts,
        )
    if found.state == "misnamed":
        return Finding(
            subject="hub",
            status="warn",
            text=f"not asked: `HF_ENDPOINT={found.endpoint}` is no address",
            public="not asked: `HF_ENDPOINT` is no address",
            advice=ADDRESS,
            facts=facts,
        )
    words = {"refused": "refuses the token", "broken": "answers with an error"}
    return Finding(
        subject="hub",
        status="warn",
        text=f"{found.endpoint} {words[found.state]}: {found.problem}",
        public=f"{where} {words[found.state]}",
        advice=found.advice or _STILL,
        facts=facts,
    )
