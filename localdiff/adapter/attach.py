"""Attaches low-rank terms to a model, and finds those that are attached.

Knows which module stands for which target; knows no files. The model's own modules stay inside the new ones, and none
of its weights is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from localdiff.adapter.lowrank import LowRank, Terms
from localdiff.adapter.modules import AdaptedExperts, AdaptedLinear, RowKinds
from localdiff.adapter.targets import EXPERT_PARAMETERS, SIDES, Side, Target, targets
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.modules import RoutedExperts


def attach(network: DiffusionGemma, terms: Mapping[tuple[Side, str], LowRank]) -> None:
    """Adds terms to the projections that their keys name: either all terms or none.

    Args:
        network: with its weights, and with the modules that will compute.
        terms: by side and path of a target. One object under both sides is computed once, and trained as one.

    Raises:
        ValueError: a key is not a target, or a module has an adapter already or cannot take one.
    """
    by_path = targets(network.config)
    by_module: dict[str, list[Target]] = {}
    for side, path in terms:
        if path not in by_path or side not in by_path[path].sides:
            raise ValueError(f"{path=} is not a target for {side=}")
        of_module = by_module.setdefault(by_path[path].module, [])
        if by_path[path] not in of_module:
            of_module.append(by_path[path])
    kinds = RowKinds()
    adapted = {module: _adapted(network, module, of_module, terms, kinds) for module, of_module in by_module.items()}
    for path, module in adapted.items():
        network.set_submodule(path, module)
    # Layers with a module that must know the kinds of its rows.
    parts = ((path, part) for path, module in adapted.items() for part in module.modules())
    differ = (path for path, part in parts if isinstance(part, Terms) and part.differ_by_kind)
    for layer in {".".join(path.split(".")[:2]) for path in differ}:
        kinds.watch(network.get_submodule(layer))


def terms_of(network: DiffusionGemma) -> Iterator[tuple[Side, str, LowRank]]:
    """(side, path, term) of all low-rank terms of a model; a shared term comes once for each side."""
    by_path = targets(network.config)
    for path, module in network.named_modules():
        if isinstance(module, AdaptedLinear):
            yield from _sides(path, by_path[path].sides, module.terms)
        elif isinstance(module, AdaptedExperts):
            for name, terms in zip(EXPERT_PARAMETERS, (module.gate_up, module.down), strict=True):
                if terms is not None:
                    yield from _sides(f"{path}.{name}", SIDES, terms)


def _adapted(
    network: DiffusionGemma,
    module: str,
    of_module: list[Target],
    terms: Mapping[tuple[Side, str], LowRank],
    kinds: RowKinds,
) -> AdaptedLinear | AdaptedExperts:
    base = network.get_submodule(module)
    if isinstance(base, AdaptedLinear | AdaptedExperts):
        raise ValueError(f"{module=} has an adapter already")
    if of_module[0].experts is None:
        return AdaptedLinear(base, _terms(of_module[0], terms), kinds)
    if not isinstance(base, RoutedExperts) or not base.takes_hook:
        raise ValueError(f"{module=} ({type(base).__name__}) takes no adapter hook")
    by_parameter = {target.path.rpartition(".")[2]: _terms(target, terms) for target in of_module}
    gate_up, down = (by_parameter.get(name) for name in EXPERT_PARAMETERS)
    return AdaptedExperts(base, gate_up, down, kinds)


def _terms(target: Target, terms: Mapping[tuple[Side, str], LowRank]) -> Terms:
    encoder, decoder = (terms.get((side, target.path)) for side in SIDES)
    if target.sides == ("decoder",):
        encoder = decoder  # its module is given canvas rows only, so there are no kinds to tell apart
    return Terms(encoder, decoder)


def _sides(path: str, sides: tuple[Side, ...], terms: Terms) -> Iterator[tuple[Side, str, LowRank]]:
    for side in sides:
        term = terms.shared or (terms.encoder if side == "encoder" else terms.decoder)
        if term is not None:
            yield side, path, term
