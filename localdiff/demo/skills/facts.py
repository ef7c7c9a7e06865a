"""Every fact that the about skill knows. Truthful by intent: change an answer here when localdiff changes."""

from __future__ import annotations

from localdiff.demo.skills.fact import Fact
from localdiff.demo.skills.facts_asking import ASKING_FACTS
from localdiff.demo.skills.facts_diffusion import DIFFUSION_FACTS
from localdiff.demo.skills.facts_self import SELF_FACTS
from localdiff.demo.skills.facts_usage import USAGE_FACTS

FACTS: tuple[Fact, ...] = SELF_FACTS + ASKING_FACTS + DIFFUSION_FACTS + USAGE_FACTS
