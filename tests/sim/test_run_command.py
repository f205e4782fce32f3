"""``stallscope run --sim``: what it writes is marked as simulated, and what is wrong ends with exit code 2."""

from __future__ import annotations

import json

import pytest

from factories import command_line
from factories.command_line import Done
from stallprobes.patterns import patterns


def stallscope(*arguments: str) -> Done:
    return command_line.run(*arguments, env={"COLUMNS": "200"})


def test_a_run_says_simulated_in_its_table() -> None:
    done = stallscope("run", "secondary-context-d2d", "--variant", "kernel-other-context", "--sim", "--sim-seed", "5")
    assert done.returncode == 0, done.stderr
    assert "SIMULATED GPU, profile h200, seed 5" in done.stdout
    assert "secondary-context-d2d · SIMULATED h200" in done.stdout
    assert "STALLED" in done.stdout
    assert "Remedies as code: `stallscope explain secondary-context-d2d`" in done.stdout


def test_a_run_says_simulated_in_its_json_and_what_was_set() -> None:
    done = stallscope("run", "launch", "--sim", "v100", "--sim-set", "timeslice_us=4000", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["backend"] == "simulated"
    assert document["profile"] == "v100 with timeslice_us=4000"
    assert document["seed"] == 1
    assert "SIMULATED" in document["fingerprint"]["gpu"]


def test_the_option_before_a_name_means_the_default_profile() -> None:
    done = stallscope("run", "--sim", "launch", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"] == "h200"


def test_the_same_seed_gives_the_same_figures_in_another_process() -> None:
    def figures(seed: str) -> object:
        done = stallscope("run", "d2d", "spin", "--sim", "--sim-seed", seed, "--seconds", "0.5", "--json")
        return json.loads(done.stdout)["variants"]

    assert figures("3") == figures("3")
    assert figures("3") != figures("4")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--sim", "h300"), "there is no profile 'h300', did you mean h200?"),
        (("--sim", "--sim-set", "timeslice_us=0"), "it must be above 0"),
        (("--sim-seed", "3"), "add --sim"),
        (("run", "all", "--sim", "h300"), "there is no profile 'h300', did you mean h200?"),
        (("run", "all", "--sim", "--sim-set", "timeslice_us=0"), "it must be above 0"),
        (("run", "all", "--sim", "--sim-set", "nothing=0"), "the profile has no setting 'nothing'"),
        (("run", "all", "--sim-seed", "3"), "--sim-seed applies to the simulated GPU only; add --sim"),
        (("run", "all", "--sim-set", "a=3"), "--sim-set applies to the simulated GPU only; add --sim"),
        (("run", "all", "--sim", "--gpu", "0"), "use only one of them"),
        (("run", "--sim"), "NAME... is missing"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], sentence: str) -> None:
    done = stallscope(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_list_names_the_profiles() -> None:
    done = stallscope("list")
    for name in ("h200", "v100", "rtx3090x2"):
        assert f"\n{name} " in done.stdout


def test_the_list_shows_every_figure_that_can_be_set() -> None:
    done = stallscope("list", "--sim", "v100")
    assert done.returncode == 0, done.stderr
    assert "SIMULATED Tesla V100-PCIE-32GB, profile v100" in done.stdout
    assert "engine.timeslice_us" in done.stdout
    assert stallscope("list", "--sim").stdout.startswith("SIMULATED 2 × NVIDIA H200, profile h200")
    assert stallscope("list", "--sim", "h300").returncode == 2


def test_all_runs_every_pattern_that_has_the_variant() -> None:
    """That each variant of each pattern runs is in test_agreement."""
    variant = "kernel-other-context"
    done = stallscope("run", "all", "--variant", variant, "--sim", "--seconds", "0.5", "--json")
    results = json.loads(done.stdout)["variants"]
    assert done.returncode == 0, done.stderr
    assert {result["status"] for result in results} == {"ok"}
    assert [result["pattern"] for result in results] == [
        name for name, pattern in patterns().items() if variant in {one.name for one in pattern.variants}
    ]
