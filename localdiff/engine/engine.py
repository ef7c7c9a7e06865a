"""The main path: the phases of a run, in order.

The numbered comments from `Engine.generate` on have the numbers of `docs/how-it-works.md`.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import Any

import torch

from localdiff.denoising import Denoiser
from localdiff.diffusion.noise import Noise, ReferenceNoise, SeededNoise
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule
from localdiff.download_plan import ConfirmDownload, confirm_silently
from localdiff.engine.arguments import cancel_of, check_noise, check_prefix_cache, check_rule, options_of, positive
from localdiff.engine.draft import draft_block
from localdiff.engine.prefill import prefill
from localdiff.engine.prefix_cache import PrefixCache
from localdiff.engine.run import Run, adapter_may_be_at_fault, end_ids_of
from localdiff.engine.stats import StatsKeeper
from localdiff.errors import ContextError
from localdiff.events import BlockCommitted, Event, FinishReason, RunFinished, RunStarted, TextCommitted
from localdiff.failures import is_out_of_memory
from localdiff.identity import ModelIdentity
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.machine.hardware import hardware_name
from localdiff.memory_account import PREFILL_CHUNK
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import CONTEXT_SIZE, DRAWN_SEED_BITS, GenerateOptions
from localdiff.text.detok import ReplyDecoder
from localdiff.text.prompt import Prompt, prompt_ids
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer


class Engine:
    """A loaded model and everything it needs to generate.

    Attributes:
        model: the network.
        tokenizer, template: those of its checkpoint.
        identity: which model it is, and where and in which type it computes.
        settings: sampler settings of its `generation_config.json`, which options override.
        end_ids: ids that end a turn.
        layer_devices: one device for all layers, or one per layer.
        prefill_chunk: maximum number of ids of a prompt that one pass encodes.
        denoiser: denoises its blocks.
    """

    def __init__(
        self,
        model: DiffusionGemma,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        generation_config: Mapping[str, Any],
        identity: ModelIdentity,
        *,
        layer_devices: Sequence[torch.device] | None = None,
        denoiser: Denoiser | None = None,
        context_size: int = CONTEXT_SIZE,
    ) -> None:
        """Takes a loaded model.

        Args:
            layer_devices: device of each layer, if not all are on one.
            denoiser: how its blocks are denoised; by default in dynamic steps.
            context_size: maximum number of tokens of prompt and answer together, unless options set another.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.template = template
        self.identity = identity
        self.settings = SamplerSettings.from_config(generation_config)
        self.end_ids = end_ids_of(generation_config)
        self._device = model.norm.weight.device
        self._dtype = model.norm.weight.dtype
        self.layer_devices = layer_devices or self._device
        self.prefill_chunk = PREFILL_CHUNK
        self._context_size = context_size
        self.denoiser = denoiser or Denoiser(model)
        self._spare: deque[PrefixCache] = deque(maxlen=1)  # a deque, because its methods are thread-safe

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        device: str | torch.device = "auto",
        dtype: str = "auto",
        activations: str = "auto",
        revision: str | None = None,
        offline: bool = False,
        context_size: int = CONTEXT_SIZE,
        max_memory: int | None = None,
        adapter: str | os.PathLike[str] | None = None,
        confirm: ConfirmDownload = confirm_silently,
        progress: LoadProgress = tell_nobody,
    ) -> Engine:
        """Loads `demo`, a directory, a name that `localdiff models` lists, or a Hub id.

        A directory is in the released layout, what `localdiff quantize` wrote, or has bitsandbytes' 4-bit layers.

        Where the model does not fit the first CUDA device, `auto` takes the one with most free memory, else all of
        them, and leaves layers in host memory if that is still too little; a warning states the cost. A named device
        takes the whole model or none of it, unless `max_memory` is given. A small model on a CPU sets torch to one
        thread (`localdiff.load.limit_threads`).

        Args:
            device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
            dtype: `auto`, `bf16` or `fp32`; `localdiff.load.resolve_dtype` has the rule for `auto`.
            activations: `auto` or `int8`: how an NVIDIA GPU takes the inputs of quantized experts, attention
                projections, dense MLPs and head. `int8` rounds them, with one scale per row and 64 numbers, which
                changes answers.
            context_size: number of positions, of prompt and answer together, that must fit beside the weights; also the
                limit of runs whose options set no `context_size`.
            max_memory: maximum number of bytes to use on each device.
            adapter: name of one shipped with this package, or a directory that PEFT saved; its low-rank terms are
                added beside the weights, which stay unchanged.
            confirm: called before a download with what will be downloaded, and may raise an exception to prevent it. By
                then it is known that the model is of the right kind and fits the disk and the device.
            progress: called with the stage of loading and the share of it that is done.

        Raises:
            UsageError: an argument is of the wrong kind, or out of range.
            WeightsError: no usable model was found, or the adapter is for another model.
            ResourceError: the device is missing, or the memory or the disk too small.
        """
        from localdiff.engine.opening import open_model

        context_size = positive("context_size", context_size)
        with _cpu_by_default():
            opened = open_model(
                model,
                device=device,
                dtype=dtype,
                activations=activations,
                revision=revision,
                offline=offline,
                context_size=context_size,
                max_memory=max_memory,
                adapter=adapter,
                confirm=confirm,
                progress=progress,
            )
        loaded, texts = opened.loaded, opened.texts
        return cls(
            loaded.network,
            texts.tokenizer,
            texts.template,
            texts.generation_config,
            opened.identity,
            layer_devices=loaded.placement.layers,
            denoiser=opened.denoiser,
            context_size=context_size,
        )

    def generate(
        self,
        prompt: Prompt,
        options: GenerateOptions | None = None,
        *,
        cancel: threading.Event | None = None,
        noise: Noise | None = None,
        stop_rule: StopRule = "both",
        prefix_cache: PrefixCache | None = None,
    ) -> Generator[Event, None, None]:
        """Answers a prompt block by block, as events in the order that `localdiff.events` shows.

        Nothing is computed, and no argument checked, before the first event is asked for.

        Args:
            prompt: text, a list of messages `{"role": "user", "content": "…"}`, or token ids.
            options: settings of this answer; None stands for the defaults.
            cancel: ends the run between denoise steps, between blocks and between chunks of the prompt.
            noise: source of randomness; by default what `options.noise` and `options.seed` say.
            stop_rule: which rule ends a block; values other than `both` are for measurements.
            prefix_cache: from `new_prefix_cache`. It keeps what a run has encoded; if a later prompt begins the same,
                only the rest is encoded. Without a cache, the whole prompt is. A cache serves one run at a time.

        Raises:
            UsageError: an argument of the wrong kind or out of range, a prompt that is empty or does not fit the
                context, a prefix cache of another engine, or one that was cleared, or that another run started on,
                before this run was over.
            WeightsError: the capped logits are NaN or infinite.
        """
        options, cancel = options_of(options), cancel_of(cancel)
        check_rule(stop_rule)
        check_noise(noise)
        check_prefix_cache(prefix_cache, self.model)
        # 1. The prompt becomes tokens.
        with _cpu_by_default():
            run = self._start(prompt, options, noise, stop_rule, prefix_cache)
        try:
            with closing(self._answer(run, cancel)) as events:
                event: Event | None = None
                while not isinstance(event, RunFinished):
                    with run.prefix_cache.lock, _cpu_by_default():  # any thread may start another run on the cache
                        run.require_cache()
                        event = next(events)
                    yield event
        except Exception as error:
            if is_out_of_memory(error):
                from localdiff.load import release_cached_memory

                # Torch releases its cached memory before it raises this error; Triton, which asks the driver for memory
                # for a new kernel, cannot make torch do so. Without this call the next run would fail as well.
                with suppress(RuntimeError):  # of a graph that another thread is capturing
                    release_cached_memory()
            raise
        finally:
            if prefix_cache is None:
                self._spare.append(run.prefix_cache)  # for the next run; a run that began meanwhile has its own

    def new_prefix_cache(self) -> PrefixCache:
        """An empty prefix cache for `generate`; frees the one that is kept for runs without a cache of their own."""
        self._spare.clear()
        return PrefixCache(self.model, self.layer_devices)

    def _answer(self, run: Run, cancel: threading.Event) -> Generator[Event, None, None]:
        yield run.started
        # 2. The encoder writes them into the cache; the last ones may be left to the first denoise step.
        commit_ids = yield from prefill(run, cancel, chunk=self.prefill_chunk, max_left=self._max_left)
        finish: FinishReason | None = None
        block = 0
        while finish is None and not cancel.is_set():
            block += 1
            # 3. and 4. A canvas of noise is denoised, until its draft is stable and confident.
            with adapter_may_be_at_fault(self.identity.adapter):
                draft = yield from draft_block(run, self.denoiser, block, commit_ids, cancel)
            # 5. The draft becomes final, cut after its first end token and at the limit.
            final, finish = ((), "cancelled") if draft.reason == "cancelled" else run.cut(draft.ids)
            committed = BlockCommitted(
                block=block, token_ids=final, steps=draft.steps, seconds=draft.seconds, reason=draft.reason
            )
            run.stats.block_done(committed)
            yield committed
            for channel, text in run.commit(final):
                yield TextCommitted(block=block, channel=channel, text=text)
            # 6. Another causal pass writes the block into the cache, or the next block's first step does.
            if self.denoiser.path.fuses_commits:
                commit_ids = final
            elif finish is None and not cancel.is_set():
                run.prefix_cache.encode(final)
                run.stats.commit_done()
        for channel, text in run.reply.finish():
            yield TextCommitted(block=block, channel=channel, text=text)
        # 7. The figures.
        visible = sum(token != run.started.pad_id for token in run.token_ids)
        stats = run.stats.finish(visible)
        yield RunFinished(reason=finish or "cancelled", token_ids=tuple(run.token_ids), stats=stats)

    def prompt_ids(self, prompt: Prompt, options: GenerateOptions) -> list[int]:
        """The ids that the model is given for a prompt.

        Raises:
            UsageError: it is empty, of the wrong kind, or cannot be tokenized.
            ContextError: it is text many times longer than what the context holds.
            WeightsError: the tokenizer or the template belongs to another model.
        """
        return prompt_ids(
            prompt,
            options,
            template=self.template,
            tokenizer=self.tokenizer,
            vocab_size=self.model.config.vocab_size,
            max_tokens=self.context_size(options),
        )

    @property
    def hardware(self) -> str:
        """The device's name; for a CPU with its number of threads, on which the last bits of results depend."""
        return hardware_name(self._device)

    @property
    def threads(self) -> int | None:
        """Number of CPU threads: it decides the order of sums, so the last bits of results; None on other devices."""
        return torch.get_num_threads() if self._device.type == "cpu" else None

    def context_size(self, options: GenerateOptions) -> int:
        """Maximum number of tokens of prompt and answer together: the options' limit, or the model's if it is lower.

        Options without a limit take the one that the engine was loaded with.
        """
        size = self._context_size if options.context_size is None else options.context_size
        return min(size, self.model.config.max_positions or size)

    def _start(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        noise: Noise | None,
        stop_rule: StopRule,
        prefix_cache: PrefixCache | None,
    ) -> Run:
        config, size = self.model.config, self.context_size(options)
        ids = self.prompt_ids(prompt, options)
        self._require_room(len(ids), size)
        seed = secrets.randbits(DRAWN_SEED_BITS) if options.seed is None else options.seed
        room = size - len(ids)
        limit = min(options.max_tokens, room)
        settings = self.settings.override(options)
        started = RunStarted(
            prompt_tokens=len(ids),
            max_tokens=limit,
            canvas_length=config.canvas_length,
            vocab_size=config.vocab_size,
            max_steps=settings.max_steps,
            end_ids=self.end_ids,
            pad_id=config.pad_token_id,
            seed=seed,
        )
        noise = noise or self._noise(options, seed)
        # Room for a whole context, not just for this run: a longer prompt would need new buffers, which loses what the
        # old ones hold, and the graphs that were captured over their addresses.
        capacity = size if prefix_cache else max(len(ids) + limit, self.context_size(GenerateOptions()))
        # Not earlier, as a run may be refused until here: this cuts what the cache holds to the prompt.
        prefix_cache = prefix_cache or self._take_spare()
        with prefix_cache.lock:
            cached_tokens, rewinds = prefix_cache.start_run(ids, capacity), prefix_cache.rewinds
        return Run(
            started=started,
            prompt=ids,
            settings=settings,
            stop_rule=stop_rule,
            record_top_k=options.record_top_k,
            limit_reason="length" if limit == options.max_tokens else "context_full",
            noise=noise,
            prefix_cache=prefix_cache,
            cached_tokens=cached_tokens,
            rewinds=rewinds,
            stats=StatsKeeper(prompt_tokens=len(ids), device=self._device),
            reply=ReplyDecoder(self.tokenizer, tool_calls=options.tool_calls, prompt=ids),
        )

    def _require_room(self, tokens: int, size: int) -> None:
        """Refuse a prompt that leaves no room for an answer in a context of this size."""
        most = self.model.config.max_positions
        if tokens >= size:
            raise ContextError(
                f"the prompt has {tokens:,} tokens and the context holds {size:,}, the answer included",
                f"shorten the prompt: {most:,} is the most that this model takes"
                if most is not None and tokens >= most
                else "raise `--context`, or shorten the prompt",
            )

    def _noise(self, options: GenerateOptions, seed: int) -> Noise:
        if options.noise == "reference":
            return ReferenceNoise(seed, device=self._device, dtype=self._dtype)
        return SeededNoise(seed)

    def _take_spare(self) -> PrefixCache:
        """An empty prefix cache, in the buffers of an earlier run if there was one."""
        try:
            prefix_cache = self._spare.pop()
        except IndexError:
            prefix_cache = PrefixCache(self.model, self.layer_devices)
        prefix_cache.clear()
        return prefix_cache

    @property
    def _max_left(self) -> int:
        """Maximum number of prompt ids that the first step encodes: with the canvas at most a chunk or two canvases."""
        canvas, chunk = self.model.config.canvas_length, self.prefill_chunk
        return min(chunk, max(canvas, chunk - canvas)) if self.denoiser.path.fuses_commits else 0


def _cpu_by_default() -> AbstractContextManager[object]:
    """A context in which new tensors are on the CPU unless a device is named, whatever a program set as default."""
    return nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu")
