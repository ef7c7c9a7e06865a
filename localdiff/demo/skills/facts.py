"""Every fact that the about skill knows. Truthful by intent: change an answer here when localdiff changes."""

from __future__ import annotations

from .fact import Fact
from .facts_asking import ASKING_FACTS
from .facts_diffusion import DIFFUSION_FACTS
from .facts_self import SELF_FACTS
from .facts_usage import USAGE_FACTS

FACTS: tuple[Fact, ...] = SELF_FACTS + ASKING_FACTS + DIFFUSION_FACTS + USAGE_FACTS
