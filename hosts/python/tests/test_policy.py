"""Policies, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import precast
import pytest

DATA = Path(__file__).parent / "data"


def test_torch_is_not_imported() -> None:
    code = "import precast, sys; precast.Policy('O2', 'bfloat16'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_without_torch_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import precast; precast.Policy('O2', 'bfloat16').plan(0)"
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "ImportError: a plan reads the modules of torch, which is not installed" in ran.stderr


def test_a_policy_is_that_of_a_file() -> None:
    rules = [
        {"path": "0", "run": "float32", "because": "raw inputs"},
        {"path": "**.linear2", "run": "inherit"},
        {"path": "1.layers.1", "run": "float32"},
        {"kind": "Dense", "run": "low", "because": "products"},
        {"kind": "LayerNorm", "run": "float32-inside"},
    ]
    made = precast.Policy("O2", "bfloat16", rules=rules)
    loaded = precast.load(DATA / "rules.yaml")
    assert (made.level, made.dtype, made.pack) == ("O2", "bfloat16", "precast-1")
    assert made.to_yaml() == loaded.to_yaml()
    assert precast.Policy.parse(made.to_yaml()).to_yaml() == made.to_yaml()
    assert precast.Policy.named("o2-bf16") != made
    assert str(made) == "level O2, bfloat16, lists of precast-1"


@pytest.mark.parametrize(
    ("keys", "words", "place"),
    [
        ({"level": "O7"}, "unknown level `O7`", (2, 8)),
        ({"dtype": "fp16"}, "unknown low dtype `fp16` (did you mean `f16`?)", (3, 8)),
        ({"rules": [{"path": "head", "rum": "float32"}]}, "unknown key `rum` (did you mean `run`?)", (5, 22)),
        ({"levle": "O1"}, "unknown key `levle`", (4, 1)),
        ({"rules": [{"path": "a", "run": "float16"}]}, "did you mean `low`", (5, 26)),
    ],
)
def test_a_mistake_has_its_place(keys: dict[str, object], words: str, place: tuple[int, int]) -> None:
    with pytest.raises(precast.Error) as caught:
        precast.Policy(**{"level": "O2", "dtype": "bfloat16", **keys})
    assert words in str(caught.value)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("Policy(..)", *place)
    assert isinstance(caught.value, ValueError)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(precast.Error) as caught:
        precast.load("nowhere.yaml")
    assert caught.value.kind == "Io"
    assert "nowhere.yaml" in str(caught.value)


def test_values_are_plain() -> None:
    with pytest.raises(TypeError, match="got set"):
        precast.Policy("O2", "bfloat16", rules=[{"path": {"a"}}])


def test_names_in_any_script_are_kept() -> None:
    for name in ["é", "\U0001f642", 'a"b', "a\\b", "a: b"]:
        policy = precast.Policy("O2", "bfloat16", name=name)
        assert precast.Policy.parse(policy.to_yaml()).to_yaml() == policy.to_yaml()
        assert json.dumps(name, ensure_ascii=False)[1:-1] in policy.to_yaml() or name in policy.to_yaml()


def test_rules_end() -> None:
    policy = precast.Policy("O2", "bfloat16", rules=[{"path": "a", "run": "float32", "until": {"step": 500}}])
    assert policy.ends == [500]
    assert policy.after_steps(499).ends == [500]
    assert policy.after_steps(500) == precast.Policy("O2", "bfloat16", loss_scale={"kind": "none"})
