"""Scripts of nested regions, for `tests/goldens-extra/torch/nested.json`: `python regions.py > FILE`.

They have the form of `tests/goldens/torch/nested.json`: `[enter, {keywords}]`, `[exit]`, `[no_grad]`, and `[op, result, name, arguments]`, of
which some are variables and others are values. Results are aligned with steps."""

import contextlib
import json
import warnings

import torch
import torch.nn.functional as F

SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "bool": "bool", "int8": "i8"}
LONG = {short: getattr(torch, long) for long, short in SHORT.items()}


def short(dtype):
    return SHORT[str(dtype).removeprefix("torch.")]


def variables():
    torch.manual_seed(0)
    matrices = {name: torch.rand(8, 8) for name in "abcd"}
    lows = {"h": torch.rand(8, 8).half(), "g": torch.rand(8, 8).bfloat16(), "z": torch.rand(8, 8).double()}
    return matrices | lows | {"w": torch.rand(8, 8, requires_grad=True), "i": torch.arange(8)}


OPS = {
    "linear": F.linear, "mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "cross_entropy": F.cross_entropy,
    "bce": F.binary_cross_entropy_with_logits, "gelu": F.gelu, "silu": F.silu,
    "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)), "pow": lambda x: x**2, "cumsum": lambda x: x.cumsum(0),
    "cat": lambda *x: torch.cat(x), "stack": lambda *x: torch.stack(x),
    "topk": lambda x: torch.topk(x, 2)[0], "add_scalar": lambda x: x + 1.0,
    "to_f32": lambda x: x.float(), "to_f16": lambda x: x.half(), "to_bf16": lambda x: x.bfloat16(),
    "to_f64": lambda x: x.double(), "to_i64": lambda x: x.long(),
    "zeros": lambda *size, **k: torch.zeros(*(size or (8, 8)), **k),
    "ones": lambda *size, **k: torch.ones(*(size or (8, 8)), **k),
    "empty": lambda *size, **k: torch.empty(*(size or (8, 8)), **k),
    "rand": lambda *size, **k: torch.rand(*(size or (8, 8)), **k),
    "randn": lambda *size, **k: torch.randn(*(size or (8, 8)), **k),
    "full": lambda size=(8, 8), value=0.5, **k: torch.full(size, value, **k),
    "eye": lambda n=8, **k: torch.eye(n, **k), "arange": lambda n=8, **k: torch.arange(n, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 8, **k), "tensor": lambda x=0.5, **k: torch.tensor(x, **k),
    "randint": lambda **k: torch.randint(0, 8, (8,), **k), "randperm": lambda **k: torch.randperm(8, **k),
}  # fmt: skip


def state():
    return {
        "enabled": torch.is_autocast_enabled("cpu"),
        "dtype": short(torch.get_autocast_dtype("cpu")),
        "cache_enabled": torch.is_autocast_cache_enabled(),
    }


def run(script):
    values, scopes, results = variables(), [], []
    for step in script:
        kind, result = step[0], {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if kind == "enter":
                keywords = {key: LONG.get(x, x) if key == "dtype" else x for key, x in step[1].items()}
                scopes.append(torch.autocast("cpu", **keywords))
                scopes[-1].__enter__()
            elif kind == "no_grad":
                scopes.append(torch.no_grad())
                scopes[-1].__enter__()
            elif kind == "exit":
                scopes.pop().__exit__(None, None, None)
            else:
                _, out, name, *arguments = step
                keywords = next((x for x in arguments if isinstance(x, dict)), {})
                keywords = {key: LONG[x] for key, x in keywords.items()}
                given = [values[x] if isinstance(x, str) else x for x in arguments if not isinstance(x, dict)]
                try:
                    values[out] = OPS.get(name, getattr(torch, name, None))(*given, **keywords)
                    result = {"out_dtype": short(values[out].dtype), "requires_grad": values[out].requires_grad}
                except Exception as error:
                    result = {"error": {"type": type(error).__name__, "message": str(error)[:400]}}
        if caught:
            result["warning"] = [str(warning.message) for warning in caught]
        results.append(result | {"state": state()})
    with contextlib.ExitStack() as rest:
        [rest.push(scope) for scope in scopes]
    return {"script": script, "results": results}


def op(out, name, *arguments):
    return ["op", out, name, *arguments]


def enter(**keywords):
    return ["enter", keywords]


EXIT = ["exit"]
CREATED = ["zeros", "ones", "empty", "rand", "randn", "full", "eye", "linspace", "tensor"]
LIKE = ["zeros_like", "ones_like", "rand_like", "empty_like"]
FUNCTIONS = ["relu", "neg", "abs", "exp", "sqrt", "sigmoid", "tanh", "gelu", "softmax", "layer_norm", "sum", "mean", "prod", "cumsum"]
FUNCTIONS += ["add_scalar", "max", "clone", "t", "var", "norm", "log_softmax", "pow", "topk"]


def made(dtype):
    steps = [op("m", name) for name in CREATED] + [op("n", "arange"), op("n", "randint"), op("n", "randperm")]
    steps += [op("m", "zeros", 8, 8), op("m", "ones", 8, 8, {"dtype": "f16"}), op("m", "full", [8, 8], 2.0)]
    steps += [op("m", "full", [8, 8], 2.0, {"dtype": "bf16"}), op("n", "arange", 8, {"dtype": "f32"}), op("m", "eye", 8, {"dtype": "f64"})]
    steps += [op("o", "ones"), op("p", "mm", "o", "o"), op("q", "add", "o", "p"), op("r", "mm", "o", "a")]
    steps += [op("l", name, x) for name in LIKE for x in "ahgzi" if not (name == "rand_like" and x == "i")]
    return [enter(dtype=dtype), *steps, EXIT, *[op("m", name) for name in CREATED[:3]]]


def of_integers(dtype):
    pairs = ["add", "sub", "mul", "div", "cat", "stack", "maximum", "eq", "mse_loss"]
    steps = [op("x", name, "i", "i") for name in pairs] + [op("x", name, "i") for name in FUNCTIONS if name not in ("t", "topk")]
    return [enter(dtype=dtype), *steps, op("y", "add", "i", "h"), op("y", "mul", "g", "i"), op("y", "cross_entropy", "a", "i"), EXIT]


def of_f64(dtype):
    steps = [op("x", name, "z", "z") for name in ["mm", "linear", "cat", "stack", "add", "mse_loss", "bce"]]
    steps += [op("x", name, "z") for name in FUNCTIONS]
    steps += [op("x", "mm", "z", "a"), op("x", "mm", "h", "z"), op("x", "cat", "z", "a"), op("x", "cat", "a", "z"), op("x", "add", "z", "g")]
    return [enter(dtype=dtype), *steps, EXIT]


def of_low(dtype):
    return [enter(dtype=dtype), *[op("x", name, x) for name in FUNCTIONS for x in "ahg"], EXIT]


SCRIPTS = {
    "made_in_bf16": made("bf16"),
    "made_in_f16": made("f16"),
    "integers_in_bf16": of_integers("bf16"),
    "integers_in_f16": of_integers("f16"),
    "f64_in_bf16": of_f64("bf16"),
    "f64_in_f16": of_f64("f16"),
    "functions_in_bf16": of_low("bf16"),
    "functions_in_f16": of_low("f16"),
    "functions_in_no_region": [op("x", name, x) for name in FUNCTIONS for x in "ahgz"],
    "none_is_not_said": [enter(dtype=None, cache_enabled=None), op("e", "mm", "a", "b"), enter(dtype="f16"), enter(dtype=None), op("e", "mm", "a", "b"), EXIT, EXIT, EXIT],
    "refused_dtype_is_inherited": [enter(dtype="f32"), enter(), op("e", "mm", "a", "b"), enter(dtype="f16"), op("e", "mm", "a", "b"), EXIT, EXIT, EXIT],
    "f64_and_i8_are_refused": [enter(dtype="f64"), op("e", "mm", "a", "b"), EXIT, enter(dtype="i8"), op("e", "mm", "a", "b"), op("o", "ones"), EXIT, op("e", "mm", "a", "b")],
    "one_region_after_the_other": [enter(dtype="bf16"), op("e", "mm", "a", "b"), EXIT, enter(dtype="f16"), op("f", "mm", "a", "b"), op("x", "mm", "e", "f"), EXIT],
    "no_grad_around_a_region": [["no_grad"], enter(dtype="bf16"), op("e", "linear", "a", "w"), op("o", "ones"), EXIT, EXIT, op("e", "linear", "a", "w")],
    "an_empty_script": [],
}  # fmt: skip

if __name__ == "__main__":
    cases = ",\n".join(f"{json.dumps(name)}: {json.dumps(run(script))}" for name, script in SCRIPTS.items())
    print(f'{{"torch": "{torch.__version__}",\n"cases": {{\n{cases}\n}}}}')
