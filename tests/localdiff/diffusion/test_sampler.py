"""Schedule, acceptance, renoising and stopping: the rules of the sampler, on canvases small enough to do by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localdiff.diffusion.sampler import accept, renoise, temperature_at
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule, StopTest
from localdiff.errors import UsageError, WeightsError
from localdiff.options import MAX_TEMPERATURE, MIN_TEMPERATURE, GenerateOptions

ENTROPIES = st.lists(st.floats(0, 13, width=32), min_size=1, max_size=40)


@given(ENTROPIES, st.floats(0.001, 20))
def test_accepted_positions_are_the_surest_that_stay_within_the_bound(entropies: list[float], bound: float) -> None:
    entropy = torch.tensor(entropies)
    accepted = accept(entropy, bound)
    inside, outside = entropy[accepted], entropy[~accepted]
    assert len(inside) >= 1
    assert (inside.sum() - inside.max()).item() <= bound + 1e-4
    if len(outside):
        assert outside.min() >= inside.max()
        assert inside.double().sum().item() > bound - 1e-4  # one more position would have exceeded it


def test_the_bound_counts_what_comes_before_a_position() -> None:
    entropy = torch.tensor([0.2, 0.0, 0.06, 0.05, 0.5])
    assert accept(entropy, 0.1).tolist() == [False, True, True, True, False]  # 0.11 before 0.2 is over
    assert accept(entropy, 0.11).tolist() == [True, True, True, True, False]
    assert accept(torch.zeros(6), 0.1).all()
    assert accept(torch.full((6,), 12.0), 0.1).sum() == 1


@pytest.mark.parametrize("length", [8, 256, 1000])
def test_of_equal_entropies_the_first_are_accepted(length: int) -> None:
    entropy = torch.full((2, length), 0.5)
    entropy[1, ::2] = 1.0
    first, second = accept(entropy, 0.5)
    assert first.nonzero().flatten().tolist() == [0, 1]
    assert second.nonzero().flatten().tolist() == [1, 3]


def test_renoising_keeps_drawn_ids_where_accepted() -> None:
    keep = torch.tensor([True, False, True])
    assert renoise(torch.tensor([1, 2, 3]), keep, torch.tensor([7, 8, 9])).tolist() == [1, 8, 3]


def test_the_temperature_falls_from_t_max_to_one_step_above_t_min() -> None:
    settings = SamplerSettings(schedule_steps=48, t_min=0.4, t_max=0.8)
    assert temperature_at(1, settings) == pytest.approx(0.8)
    assert temperature_at(48, settings) == pytest.approx(0.4 + 0.4 / 48)
    assert temperature_at(25, settings) == pytest.approx(0.6)


def test_temperatures_are_numbers_of_fp32_as_those_that_the_reference_divides_by() -> None:
    temperatures = [temperature_at(step, SamplerSettings()) for step in range(1, 49)]
    assert temperatures == torch.tensor(temperatures, dtype=torch.float32).tolist()


def test_fewer_steps_rescale_the_schedule_and_a_cap_only_cuts_it() -> None:
    base = SamplerSettings()
    assert temperature_at(8, base.override(GenerateOptions(steps=8))) == pytest.approx(0.4 + 0.4 / 8)
    capped = base.override(GenerateOptions(cap=8))
    assert capped.max_steps == 8
    assert temperature_at(8, capped) == temperature_at(8, base)
    assert base.override(GenerateOptions(cap=100)).max_steps == 48


def test_a_constant_temperature_replaces_both_ends_and_zero_turns_sampling_off() -> None:
    constant = SamplerSettings().override(GenerateOptions(temperature=0.5))
    assert (constant.t_min, constant.t_max, constant.greedy) == (0.5, 0.5, False)
    greedy = SamplerSettings().override(GenerateOptions(temperature=0.0))
    assert (greedy.t_min, greedy.t_max, greedy.greedy) == (0.4, 0.8, True)
    assert SamplerSettings().override(GenerateOptions()) == SamplerSettings()


def test_settings_come_from_the_file_and_absent_or_null_keys_from_the_reference() -> None:
    assert SamplerSettings.from_config({}) == SamplerSettings()
    assert SamplerSettings.from_config({"sampler_config": None}) == SamplerSettings()
    found = SamplerSettings.from_config(
        {
            "max_denoising_steps": 12,
            "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.3},
            "t_min": None,
            "t_max": 0.9,
            "stability_threshold": 0,
            "confidence_threshold": 0.01,
        }
    )
    assert found == SamplerSettings(schedule_steps=12, entropy_bound=0.3, t_max=0.9, stability=0, confidence=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedule_steps": 0}, "schedule_steps=0 must be >= 1"),
        ({"cap": 0}, "cap=0 must be >= 1"),
        ({"schedule_steps": 10**11}, "schedule_steps=100000000000 must be <= 1000000"),
        ({"stability": 10**19}, f"stability={10**19} must be <= 1000000"),
        ({"entropy_bound": 0.0}, "entropy_bound=0.0 must be > 0"),
        ({"t_min": -0.1}, "t_min=-0.1 must be >= 0"),
        ({"t_min": 0.0, "t_max": 0.0}, "t_max=0.0 must be >= 1e-06"),
        (
            {"t_min": 0.0, "t_max": 4.7e-5},
            "t_min=0.0 and t_max=4.7e-05 cool down to 9.79e-07 in 48 steps, and no step can be below 1e-06",
        ),
        ({"t_min": 0.9}, "t_min=0.9 must be <= t_max=0.8"),
        ({"t_max": 0.3}, "t_min=0.4 must be <= t_max=0.3"),
        ({"stability": -1}, "stability=-1 must be >= 0"),
        ({"confidence": 0.0}, "confidence=0.0 must be > 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SamplerSettings(**values)  # type: ignore[arg-type]
    assert caught.value.message == message


def test_an_option_that_contradicts_the_model_is_refused() -> None:
    with pytest.raises(UsageError, match="t_min=0.9 must be <= t_max=0.8"):
        SamplerSettings().override(GenerateOptions(t_min=0.9))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_denoising_steps": "48"}, "max_denoising_steps='48' must be a whole number"),
        ({"max_denoising_steps": 48.0}, "max_denoising_steps=48.0 must be a whole number"),
        ({"stability_threshold": True}, "stability_threshold=True must be a whole number"),
        ({"t_min": "0.4"}, "t_min='0.4' must be a finite number"),
        ({"t_max": True}, "t_max=True must be a finite number"),
        ({"t_max": float("inf")}, "t_max=inf must be a finite number"),
        ({"sampler_config": {"entropy_bound": float("nan")}}, "entropy_bound=nan must be a finite number"),
        (
            {"sampler_config": {"_cls_name": "OtherSamplerConfig", "entropy_bound": 0.1}},
            "sampler_config={'_cls_name': 'OtherSamplerConfig', 'entropy_bound': 0.1} describes another sampler",
        ),
        (
            {"sampler_config": {"bound": 0.1}},
            "sampler_config={'bound': 0.1} describes another sampler",
        ),
        ({"t_max": 1.1e6}, "t_max=1100000.0 must be <= 1000000"),
        ({"sampler_config": ["entropy_bound"]}, "sampler_config=['entropy_bound'] must be a mapping"),
        ({"t_min": 0.9}, "t_min=0.9 must be <= t_max=0.8"),
        ({"confidence_threshold": 0}, "confidence=0 must be > 0"),
    ],
)
def test_a_file_with_impossible_settings_is_a_fault_of_the_weights(config: dict[str, object], message: str) -> None:
    with pytest.raises(WeightsError) as caught:
        SamplerSettings.from_config(config)
    assert caught.value.message == f"generation_config.json: {message}"
    assert caught.value.hint


def test_a_whole_number_beyond_every_float_is_not_finite() -> None:
    with pytest.raises(WeightsError, match="t_max=10{400} must be a finite number"):
        SamplerSettings.from_config({"t_max": 10**400})


def test_temperatures_reach_the_ends_of_their_range() -> None:
    settings = SamplerSettings(t_min=MIN_TEMPERATURE, t_max=MAX_TEMPERATURE)
    assert temperature_at(1, settings) == pytest.approx(1e6)
    coldest = SamplerSettings().override(GenerateOptions(temperature=MIN_TEMPERATURE))
    assert temperature_at(48, coldest) == pytest.approx(1e-6)


def test_a_schedule_may_cool_towards_zero_if_its_last_step_is_warm_enough() -> None:
    settings = SamplerSettings.from_config({"t_min": 0.0})
    assert temperature_at(48, settings) == pytest.approx(0.8 / 48)
    assert temperature_at(48, SamplerSettings(t_min=0.0, t_max=4.81e-5)) >= MIN_TEMPERATURE
    assert temperature_at(47, SamplerSettings(t_min=0.0, t_max=4.7e-5, cap=47)) >= MIN_TEMPERATURE


SURE, UNSURE = torch.zeros(3), torch.ones(3)


def verdicts(drafts: list[list[int]], entropy: torch.Tensor = SURE, rule: StopRule = "both", stability: int = 1):  # type: ignore[no-untyped-def]
    test = StopTest(SamplerSettings(stability=stability), pad_id=0, rule=rule)
    return [test.judge(torch.tensor(draft), entropy) for draft in drafts]


@pytest.mark.parametrize(("stability", "first_stop"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_stable_means_as_many_equal_drafts_before_as_asked(stability: int, first_stop: int) -> None:
    stops = [verdict.stop for verdict in verdicts([[1, 2, 3]] * 5, stability=stability)]
    assert stops.index(True) == first_stop


def test_a_draft_that_changes_back_starts_over() -> None:
    a, b = [1, 2, 3], [1, 2, 4]
    assert [verdict.stable for verdict in verdicts([a, a, b, a, a])] == [False, True, False, False, True]
    assert [verdict.stable for verdict in verdicts([a, b, a, a, a], stability=2)] == [False] * 4 + [True]


def test_a_rule_asks_for_what_its_name_says() -> None:
    same, changing = [[1, 2, 3]] * 2, [[1, 2, 3], [3, 2, 1]]
    for rule, stable_only, confident_only, both in (
        ("both", False, False, True),
        ("stable", True, False, True),
        ("confident", False, True, True),
        ("never", False, False, False),
    ):
        assert verdicts(same, UNSURE, rule)[-1].stop is stable_only  # type: ignore[arg-type]
        assert verdicts(changing, SURE, rule)[-1].stop is confident_only  # type: ignore[arg-type]
        assert verdicts(same, SURE, rule)[-1].stop is both  # type: ignore[arg-type]


def test_confidence_is_a_strict_bound_on_the_mean() -> None:
    settings = SamplerSettings(stability=0, confidence=0.5)
    at_the_bound = StopTest(settings, pad_id=0).judge(torch.tensor([1]), torch.tensor([0.5]))
    assert (at_the_bound.confident, at_the_bound.mean_entropy) == (False, 0.5)
    below = StopTest(settings, pad_id=0).judge(torch.tensor([1, 1]), torch.tensor([0.75, 0.0]))
    assert (below.confident, below.mean_entropy) == (True, 0.375)


def test_a_canvas_of_padding_never_counts_as_converged() -> None:
    padding, almost = [[0, 0, 0]] * 3, [[0, 0, 1]] * 3
    assert not any(verdict.stop for verdict in verdicts(padding))
    assert verdicts(padding)[-1].stable
    assert verdicts(almost)[-1].stop
