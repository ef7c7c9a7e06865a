"""Training: what is noised, that a batch equals the cached forward, and that a run continues where it stopped."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from localdiff.demo.training.architecture import CANVAS_LENGTH, config_json
from localdiff.demo.training.batches import Batches
from localdiff.demo.training.team import Team
from localdiff.demo.training.trainer import (
    Trainer,
    TrainingOptions,
    corrupt,
    initialise,
    next_canvases,
    position_weights,
)
from localdiff.diffusion.sampler import accept
from localdiff.errors import UsageError
from localdiff.model.batched import batched_logits, batched_soft_embedding
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig

VOCAB, END = 32, 6


def tiny_config() -> ModelConfig:
    config = config_json(VOCAB, END)
    config["canvas_length"] = 8
    config["text_config"] |= {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "hidden_size": 64,
        "sliding_window": 6,
    }
    return ModelConfig.from_dict(config)


def copy_task(rng: random.Random) -> tuple[list[int], list[int]]:
    """Repeat the prompt; sometimes long enough for a second canvas."""
    ids = [rng.randrange(8, VOCAB) for _ in range(rng.choice((3, 5, 11)))]
    return [2, *ids], [*ids, END]


def make_batches(seed: int = 0, batch_size: int = 4, batch_rows: int = 1000) -> Batches:
    return Batches(copy_task, seed=seed, batch_size=batch_size, batch_rows=batch_rows, canvas_length=8, pad_id=0)


def make_trainer(updates: int = 4, seed: int = 0) -> Trainer:
    options = TrainingOptions(seed=seed, updates=updates, decay=2, warmup=2, save_every=2)
    return Trainer(initialise(tiny_config(), seed), make_batches(seed), options)


def test_a_batch_gives_the_logits_of_the_cached_forward() -> None:
    config = tiny_config()
    model = initialise(config, seed=1)
    with torch.no_grad():
        for layer in model.layers:  # different scalars show which rows take which
            layer.layer_scalar.fill_(0.7)
            layer.encoder_layer_scalar.fill_(1.2)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 14, 9])  # window 6: shorter and longer
    encoder = torch.randint(VOCAB, (3, 14), generator=generator)
    canvas = torch.randint(VOCAB, (3, 8), generator=generator)
    with torch.no_grad():
        first = batched_logits(model, encoder, lengths, canvas, None)
        soft = batched_soft_embedding(model, first / 0.6)
        second = batched_logits(model, encoder, lengths, canvas, soft)
        for row, length in enumerate(lengths.tolist()):
            cache = KVCache(config, 32, torch.float32, torch.device("cpu"))
            model.encode(encoder[row, :length], cache)
            alone = _cap(model.denoise(canvas[row], cache), config)
            torch.testing.assert_close(first[row], alone, atol=1e-5, rtol=1e-5)
            scaled = alone / 0.6
            carried = model.soft_embedding(scaled, scaled.logsumexp(dim=-1))
            torch.testing.assert_close(soft[row], carried, atol=1e-5, rtol=1e-5)
            conditioned = _cap(model.denoise(canvas[row], cache, carried), config)
            torch.testing.assert_close(second[row], conditioned, atol=1e-4, rtol=1e-4)


def _cap(logits: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    assert config.softcap is not None
    return torch.tanh(logits / config.softcap) * config.softcap


def test_noise_is_any_id_alike() -> None:
    clean = torch.full((4000, 50), 7)
    noised = corrupt(clean, VOCAB, torch.Generator().manual_seed(0))
    values, counts = noised[noised != clean].unique(return_counts=True)
    assert len(values) == VOCAB - 1
    assert counts.max() < 1.1 * counts.min()


def test_the_density_of_levels_rises_and_a_quarter_of_the_canvases_is_noise_alone() -> None:
    clean = torch.full((4000, 200), 7)
    noised = corrupt(clean, 10_000, torch.Generator().manual_seed(0))
    changed = (noised != clean).float().mean(dim=1)
    for level in (0.25, 0.5, 0.75):
        assert (changed < level).float().mean().item() == pytest.approx((level / 1.15) ** 2, abs=0.03)
    assert (changed == 1.0).float().mean().item() == pytest.approx(1 - 1.15**-2, abs=0.03)


def test_batches_are_a_function_of_seed_and_number() -> None:
    one, other = make_batches(), make_batches()
    later = other.at(40).encoder_ids
    for number in (0, 17, 3):
        assert torch.equal(one.at(number).canvas_ids, other.at(number).canvas_ids)
    assert torch.equal(one.at(40).encoder_ids, later)
    assert not torch.equal(make_batches(1).at(0).canvas_ids, one.at(0).canvas_ids)


def test_a_batch_holds_one_block_of_each_answer_after_what_precedes_it() -> None:
    batches = make_batches(batch_size=16)
    seen_second_block = False
    for number in range(16):
        batch = batches.at(number)
        for encoder, rows, canvas, is_answer in zip(
            batch.encoder_ids, batch.encoder_rows, batch.canvas_ids, batch.is_answer, strict=True
        ):
            sequence = encoder[:rows].tolist() + canvas[is_answer].tolist()
            size = next(size for size in (3, 5, 11) if len(sequence) <= 1 + 2 * size + 1)
            prompt = sequence[1 : 1 + size]
            assert sequence[1 + size :] == [*prompt, END][: len(sequence) - 1 - size]
            assert (canvas[~is_answer] == 0).all()
            assert (encoder[rows:] == 0).all()
            seen_second_block |= int(rows) > 1 + size
    assert seen_second_block


def test_long_sequences_make_smaller_batches() -> None:
    batches, most = make_batches(batch_rows=60), dict[int, int]()
    for batch in map(batches.at, range(16)):
        length = batch.encoder_ids.shape[1] + batch.canvas_ids.shape[1]
        most[length] = max(most.get(length, 0), len(batch.encoder_ids))
    assert most == {length: 60 // length for length in (12, 14, 20, 28)}


def test_batches_have_about_as_many_rows_each() -> None:
    batches = make_batches(batch_size=32)
    sizes = [batch.encoder_ids.numel() + batch.canvas_ids.numel() for batch in map(batches.at, range(16))]
    assert max(sizes) < 2 * min(sizes)


def test_a_long_answer_counts_less_for_each_of_its_positions() -> None:
    batch = make_batches(batch_size=16).at(0)
    weights = position_weights(batch, padding=0.1)
    lengths = batch.is_answer.sum(dim=1)
    of_answers = torch.where(batch.is_answer, weights, 0).sum(dim=1)
    torch.testing.assert_close(of_answers, lengths.sqrt())
    torch.testing.assert_close(weights[:, :1] * 0.1, lengths[:, None].rsqrt() * 0.1)
    padding = weights[~batch.is_answer]
    assert (padding < weights.max()).all()


def test_the_next_canvases_are_the_samplers() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 8, VOCAB, generator=generator) * 8
    uniforms, noise = torch.rand(5, 8, generator=generator), torch.full((5, 8), VOCAB - 1)
    canvases = next_canvases(logits, uniforms, noise, 0.5)
    probs = logits.softmax(dim=-1)
    entropy = torch.distributions.Categorical(probs=probs).entropy()
    for row in range(5):
        accepted = accept(entropy[row], 0.5)
        assert 0 < accepted.sum() < 8
        drawn = (probs[row].cumsum(dim=-1) <= uniforms[row, :, None]).sum(dim=-1)
        assert torch.equal(canvases[row], torch.where(accepted, drawn, noise[row]))


class Half(Team):
    """One of two processes; keeps what it would exchange."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, 2)
        self.sent: list[list[torch.Tensor]] = []

    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        self.sent.append([tensor.clone() for tensor in tensors])


def test_what_two_processes_send_adds_up_to_what_one_computes() -> None:
    options = TrainingOptions(updates=20, warmup=1, balance_weight=0.0)
    model = initialise(tiny_config(), 0)
    batches = make_batches(batch_size=8)
    one, halves = Half(0), (Half(0), Half(1))
    one.size, one.rows = 1, slice(None)  # a team of one that keeps what it would send
    for team in (one, *halves):
        for update in range(6):  # plain, conditioned, and on the sampler's canvas
            trainer = Trainer(copy.deepcopy(model), batches, options, team)
            trainer.update = update
            trainer.step(batches.at(update))
    # An update exchanges twice: sums and gradients, then Muon's directions, which depend on the sum of the gradients.
    for whole, first, second in zip(*(team.sent[::2] for team in (one, *halves)), strict=True):
        for expected, a, b in zip(whole, first, second, strict=True):
            torch.testing.assert_close(a + b, expected, atol=1e-5, rtol=1e-4)


def test_a_resumed_run_equals_an_unbroken_one(tmp_path: Path) -> None:
    whole = make_trainer(updates=4)
    whole.run(tmp_path / "whole.pt", lambda *_: None)
    first = make_trainer(updates=4)
    for _ in range(2):
        first.step(first.batches.at(first.update))
        first.update += 1
    first.save(tmp_path / "half.pt")
    second = make_trainer(updates=4)
    second.resume(tmp_path / "half.pt")
    assert second.update == 2
    second.run(tmp_path / "half.pt", lambda *_: None)
    for name, parameter in whole.model.state_dict().items():
        assert torch.equal(parameter, second.model.state_dict()[name]), name


def test_the_state_of_another_training_is_refused(tmp_path: Path) -> None:
    make_trainer().save(tmp_path / "state.pt")
    trainer = make_trainer()
    trainer.model.norm.weight.requires_grad_(False)
    fewer = Trainer(trainer.model, trainer.batches, trainer.options)
    with pytest.raises(UsageError, match=r"state\.pt` is of another training"):
        fewer.resume(tmp_path / "state.pt")


def test_the_learning_rate_warms_up_stays_and_falls() -> None:
    options = TrainingOptions(updates=100, decay=20, warmup=10)
    rates = [options.rate_at(update) for update in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:80] == [1.0] * 71
    assert rates[90] == pytest.approx(0.5)
    assert 0 < rates[99] <= 0.05


def test_training_lowers_the_loss() -> None:
    options = TrainingOptions(updates=60, decay=10, warmup=5, learning_rate=5e-3)
    trainer = Trainer(initialise(tiny_config(), 0), make_batches(batch_size=16), options)
    losses = []
    for _ in range(60):
        losses.append(trainer.step(trainer.batches.at(trainer.update))[0])
        trainer.update += 1
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_the_shipped_shape_has_widths_that_every_format_divides() -> None:
    config = ModelConfig.from_dict(config_json(1024, END))
    assert config.canvas_length == CANVAS_LENGTH
    model = initialise(config, seed=0)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            assert parameter.shape[-1] % 64 == 0, name
    assert sum(parameter.numel() for parameter in model.parameters()) * 2 < 12e6
