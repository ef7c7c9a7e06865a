"""What determines an output: a job, a finished output and a request are the same if their identities are.

Knows how jobs, `job.json` and manifests state an identity, and how to say in words what differs; reads no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from quant.files.manifest import ENCODING, Manifest
from quant.jobs.job import HashSources, Job


class SourceState(NamedTuple):
    """What is known of a weight file: its size, and its SHA-256 in hex."""

    nbytes: int
    sha256: str | None = None

    def may_be(self, other: SourceState) -> bool:
        """Whether both may be the same file, by what is known of both."""
        return self.nbytes == other.nbytes and (None in (self.sha256, other.sha256) or self.sha256 == other.sha256)


class Difference(NamedTuple):
    """What differs, and how, in words that follow `made` or `begun`."""

    aspect: Literal["recipe", "model", "revision", "weights", "encoding"]
    words: str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What determines an output.

    The device is not part of it: weights are encoded on a GPU only while it has room, and a GPU that has become busy
    is no reason to start over. A few nf4 scales may then differ in the last bit from those of the other device. The
    program's version is not part of it either, as long as it encodes in the same way.

    Attributes:
        tool: name and version of the program; only named, never compared.
        encoding: see `quant.files.manifest.ENCODING`.
        recipe: the recipe's name.
        rules: pattern and scheme of each rule, with the layer numbers filled in.
        model, revision: where the weights came from.
        sources: the weight files that are read, by name.
    """

    tool: str
    encoding: int
    recipe: str
    rules: tuple[tuple[str, str], ...]
    model: str | None
    revision: str | None
    sources: Mapping[str, SourceState]

    @classmethod
    def of_job(cls, job: Job) -> Self:
        """The identity of what a job will write."""
        files = [shard.source for shard in job.plan.shards]
        return cls(
            tool=job.tool,
            encoding=ENCODING,
            recipe=job.plan.recipe.name,
            rules=tuple((rule.pattern, rule.scheme) for rule in job.plan.recipe.rules),
            model=job.model,
            revision=job.revision,
            sources={file.name: SourceState(file.nbytes, file.sha256) for file in files},
        )

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> Self:
        """The identity of a finished output."""
        return cls(
            tool=manifest.tool,
            encoding=manifest.encoding,
            recipe=manifest.recipe.name,
            rules=tuple((rule.pattern, rule.scheme) for rule in manifest.recipe.rules),
            model=manifest.model,
            revision=manifest.revision,
            sources={name: SourceState(entry.nbytes, entry.sha256) for name, entry in manifest.sources.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """The identity in JSON values, for `job.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The inverse of `to_json`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: `to_json` did not write this.
        """
        return cls(
            tool=str(value["tool"]),
            encoding=int(value["encoding"]),
            recipe=str(value["recipe"]),
            rules=tuple((str(pattern), str(scheme)) for pattern, scheme in value["rules"]),
            model=value["model"],
            revision=value["revision"],
            sources={name: SourceState(*state) for name, state in value["sources"].items()},
        )

    def with_hashes(self, hashes: Mapping[str, str]) -> Identity:
        """The same with the SHA-256 of weight files, by name."""
        sources = self.sources.items()
        return replace(
            self, sources={name: state._replace(sha256=hashes.get(name, state.sha256)) for name, state in sources}
        )

    def difference(
        self,
        wanted: Identity,
        shown: Callable[[str], str] = lambda name: name,
        hash_sources: HashSources = lambda names: {},
    ) -> Difference | None:
        """How what was made or begun differs from what is wanted; None if it does not.

        Args:
            shown: what a weight file of this name is called in messages.
            hash_sources: hashes the wanted weight files; called last, for files that only a hash can tell apart.
        """
        if (other := self._known_difference(wanted, shown)) is not None:
            return other
        untold = [name for name, state in self.sources.items() if state.sha256 and not wanted.sources[name].sha256]
        return self._known_difference(wanted.with_hashes(hash_sources(untold)), shown) if untold else None

    def _known_difference(self, wanted: Identity, shown: Callable[[str], str]) -> Difference | None:
        if self.recipe != wanted.recipe:
            return Difference("recipe", f"as `{self.recipe}`, not as `{wanted.recipe}`")
        if self.model != wanted.model:
            return Difference("model", f"from `{self.model}`, not from `{wanted.model}`")
        if self.revision != wanted.revision:
            return Difference("revision", f"from revision {self.revision}")
        changed = [
            name
            for name in sorted(self.sources.keys() | wanted.sources.keys())
            if not (name in self.sources and name in wanted.sources)
            or not self.sources[name].may_be(wanted.sources[name])
        ]
        if changed:
            return Difference("weights", f"before `{shown(changed[0])}` changed")
        if self.rules != wanted.rules:
            return Difference("recipe", f"by {self.tool}, with other rules than those of `{wanted.recipe}` here")
        if self.encoding != wanted.encoding:
            return Difference("encoding", f"by {self.tool}, which encodes otherwise")
        return None
