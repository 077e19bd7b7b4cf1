"""Plans of networks of torch."""

from __future__ import annotations

import json
from pathlib import Path

import networks
import precast
import pytest
import torch
from torch import nn

DATA = Path(__file__).parent / "data"
RECORDED = json.loads((DATA / "plans.json").read_text())
TORCH = {"Dense": "Linear", "RmsNorm": "RMSNorm"}


def _policy(name: str) -> precast.Policy:
    return precast.load(DATA / name) if name.endswith(".yaml") else precast.Policy.named(name)


@pytest.mark.parametrize(("network", "policy"), [(n, p) for n, policies in RECORDED.items() for p in policies])
def test_the_plan_is_that_of_the_rust_library(network: str, policy: str) -> None:
    with torch.device("meta"):
        model = getattr(networks, network)()
    plan = json.loads(_policy(policy).plan(model).to_json())
    ours = {}
    for decision in plan["decisions"]:
        adapter = decision["adapter"]
        if adapter and "ops" in adapter:
            adapter = "ops"
        # The folder of the file is not part of the reason.
        because = json.loads(json.dumps(decision["because"]).replace(f"{DATA}/", ""))
        ours[decision["path"]] = [decision["kind"], decision["run"], adapter, because]
    theirs = {path: [TORCH.get(kind, kind), *rest] for path, kind, *rest in RECORDED[network][policy]}
    # torch has one matrix for queries, keys and values, a list around layers, and a class of its own for one
    # projection.
    only_here, only_there = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    assert only_here <= {"1.layers"}
    assert all(path.endswith(("q_proj", "k_proj", "v_proj")) for path in only_there)
    for path in ours.keys() & theirs.keys():
        mine = ["Linear" if name == "NonDynamicallyQuantizableLinear" else name for name in ours[path][:1]]
        assert [*mine, *ours[path][1:]] == theirs[path], path
    assert len(ours.keys() & theirs.keys()) >= len(theirs) - 6


def test_a_plan_is_printed_explained_and_compared() -> None:
    model = networks.lenet5_bn()
    o2, o3 = (precast.Policy(level, "bfloat16").plan(model) for level in ("O2", "O3"))
    lines = str(o2).splitlines()
    assert lines[0] == "level O2, bfloat16, lists of precast-1"
    assert lines[3].split() == [
        "├─",
        "1",
        "BatchNorm2d",
        "*",
        "runs",
        "f32,",
        "returns",
        "bf16",
        "full",
        "list,",
        "precast-1",
    ]
    assert lines[-1] == "15 cells (13 bf16, 2 f32), 3 wrapped"
    assert "because  full list, precast-1" in o2.explain("1")
    with pytest.raises(precast.Error, match="did you mean") as caught:
        o2.explain("11x")
    assert caught.value.kind == "Path"
    diff = o2.diff(o3)
    assert len(diff) == 2
    assert diff.changes == [("1", "runs f32, returns bf16", "runs bf16"), ("5", "runs f32, returns bf16", "runs bf16")]
    assert "2 of 15 cells differ" in str(diff)
    assert len(o2.diff(o2)) == 0
    table = o2.table()
    assert [row["path"] for row in table] == [path for path, _ in model.named_modules()]
    assert table[1]["dtype"] == "bfloat16"
    page = o2._repr_html_()
    assert page.count("<details") == page.count("</details>") == 1
    assert page.count("full list, precast-1") == 2
    assert o2 == precast.Policy("O2", "bfloat16").plan(networks.lenet5_bn())
    assert o2 != o3


def test_rules_name_classes_bases_and_kinds_of_precast() -> None:
    class Mine(nn.Linear):
        pass

    model = nn.Sequential(Mine(4, 4), nn.Linear(4, 4), nn.ConvTranspose2d(1, 1, 2))

    def full(kind: str) -> list[str]:
        plan = precast.Policy("O2", "bfloat16", rules=[{"kind": kind, "run": "float32"}]).plan(model)
        return [decision.path for decision in plan.decisions if decision.dtype == "float32"]

    assert full("Mine") == ["0"]
    assert full("Linear") == full("Dense") == ["0", "1"]
    assert full("ConvTranspose2d") == full("Conv2dTranspose") == ["2"]
    with pytest.raises(
        precast.Error, match=r"Policy\(\.\.\):5:5: the rule for kind Linaer matches no cell \(did you mean `Linear`\?\)"
    ):
        full("Linaer")
    with pytest.raises(precast.Error, match="expects 1 cell and matches 2: 0, 1"):
        precast.Policy("O2", "bfloat16", rules=[{"kind": "Dense", "run": "float32", "expect": 1}]).plan(model)


def test_a_pattern_matches_whole_names() -> None:
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.gate_proj = nn.Linear(2, 2), nn.Linear(2, 2)

    model = nn.ModuleList([Mlp(), Mlp()])
    plan = precast.Policy("O3", "bfloat16", rules=[{"path": "*.gate", "run": "float32"}]).plan(model)
    assert [decision.path for decision in plan.decisions if decision.dtype == "float32"] == ["0.gate", "1.gate"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"path": "0", "run": {"forward": "low", "weight_grad": "float32"}},
            "asks for gradients of weights in float32",
        ),
        ({"path": "0", "after_stall": "raise"}, "raises a cell after a stall"),
        ({"path": "0", "kept": "int8-rows"}, "keeps activations in 8 bits"),
    ],
)
def test_what_torch_cannot_do_is_refused(rule: dict[str, object], words: str) -> None:
    with pytest.raises(precast.Error, match=words) as caught:
        precast.Policy("O2", "float16", rules=[rule]).plan(networks.mlp())
    assert (caught.value.kind, caught.value.line) == ("Unsupported", 5)


def test_an_op_of_ones_own_list_is_refused() -> None:
    policy = precast.Policy("O2", "bfloat16", ops={"full": {"add": ["Softmax"]}})
    with pytest.raises(precast.Error, match="write a rule for the module that calls it"):
        policy.plan(networks.mlp())


def test_files_of_other_tools() -> None:
    class Head(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4), Head(4, 4))
    rules = [{"path": name, "run": "float32"} for name in ("2", "3")]
    plan = precast.Policy("O2", "bfloat16", rules=rules).plan(model)
    assert plan.to_hf_skip_list() == ["2", "3"]
    config = json.loads(plan.to_deepspeed())["torch_autocast"]
    assert (config["dtype"], config["enabled"]) == ("bfloat16", True)
    names: dict[str, object] = {}
    code = plan.to_torchao().replace("from torchao.quantization import FqnToConfig", "FqnToConfig = dict")
    exec(compile(code, "torchao", "exec"), names)
    assert names["LOWERED"] == {"0": True, "2": False, "3": False}


def test_operands_are_planned_and_converted() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 20), nn.Linear(20, 4))
    rules = [{"path": "3", "operands": "none"}, {"path": "**", "operands": "mxfp8"}]
    plan = precast.Policy("O2", "bfloat16", rules=rules).plan(model)
    assert "operands mxfp8" in plan.decisions[1].effect
    # Blocks of 32 do not divide 20.
    assert "n 20 is not a multiple of 32" in plan.explain("2")
    with pytest.raises(precast.Error, match=r"`0` has operands mxfp8, which a Linear does not quantize"):
        plan.apply(model)
    assert '"0": "MXFP8BlockScaling"' in plan.to_transformer_engine()
    rules = [{"path": "3", "operands": "none"}, {"path": "**", "operands": "tensorwise"}]
    text = precast.Policy("O2", "bfloat16", rules=rules).plan(model).to_torchao()
    assert '"2": "tensorwise"' in text and '"3": "' not in text


def test_layers_of_torchao_train_in_fp8_by_a_plan() -> None:
    pytest.importorskip("torchao")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    policy = precast.Policy("O2", "bfloat16", rules=[{"path": "0", "operands": "tensorwise"}])
    names: dict[str, object] = {}
    exec(compile(policy.plan(model).to_torchao(), "torchao", "exec"), names)
    x, wide = torch.randn(32, 32), model(torch.randn(32, 32))
    names["train_in_8_bits"](model, emulate=True)  # type: ignore[operator]
    assert type(model[0]).__name__ == "Float8Linear"
    with policy.plan(model).applied(model):
        low = model(x)
        low.pow(2).sum().backward()
    assert low.dtype is wide.dtype is torch.float32
    without = precast.Policy("O2", "bfloat16").plan(model)
    with torch.no_grad():
        plain = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
        plain.load_state_dict(model.state_dict())
        wide = plain(x)
    assert 1e-3 < ((low - wide).norm() / wide.norm()).item() < 0.1
    assert len(policy.plan(model).diff(without)) == 1


def test_only_modules_are_planned() -> None:
    with pytest.raises(TypeError, match=r"a plan is of a torch\.nn\.Module, got dict"):
        precast.Policy("O2", "bfloat16").plan({})  # type: ignore[arg-type]
