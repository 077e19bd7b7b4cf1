"""Traces of `torch.amp.GradScaler`, for `tests/goldens-extra/torch/grad_scaler.json`: `python scaler.py > FILE`.

They have the form of `tests/goldens/torch/grad_scaler.json`. Beside gradients that are set, there are those of a real backward pass:
`[backward, losses]` scales each loss and walks back from it. A loss is the sum of products with parameters: for each optimizer a row of
numbers for each parameter, or null."""

import json
import math
import pickle
import warnings

import torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i64": torch.int64}
QUIET = {"init_scale": 4.0, "growth_interval": 2}


def number(x):
    return x if isinstance(x, bool) or x is None or math.isfinite(x) else {math.inf: "inf", -math.inf: "-inf"}.get(x, "nan")


def parsed(x):
    if isinstance(x, list):
        return [parsed(item) for item in x]
    return float(x) if x in ("inf", "-inf", "nan") else x


def shown(x):
    if isinstance(x, torch.Tensor) and x.is_sparse:
        values = [number(v) for v in x._values().double().tolist()]
        return {"sparse": True, "coalesced": x.is_coalesced(), "indices": x._indices().tolist(), "values": values, "dtype": str(x.dtype)}
    if isinstance(x, torch.Tensor):
        return {"dtype": str(x.dtype).removeprefix("torch."), "v": [number(v) for v in x.detach().double().reshape(-1).tolist()]}
    if isinstance(x, dict):
        return {key: shown(value) for key, value in x.items()}
    if isinstance(x, (list, tuple, map)):
        return [shown(item) for item in x]
    return number(x)


class Trace:
    def __init__(self, config, optimizers):
        keywords = {"device": "cpu"} | {key: parsed(x) for key, x in config.items()}
        self.scaler = torch.amp.GradScaler(**keywords)
        self.params, self.optimizers, self.steps = [], [], []
        for at, spec in enumerate(optimizers):
            dtype = DTYPES[spec.get("dtype", "f32")]
            self.params.append([torch.tensor(p, dtype=dtype, requires_grad=True) for p in spec["params"]])
            optimizer = torch.optim.SGD(self.params[at], lr=spec.get("lr", 1.0))
            plain = optimizer.step

            def step(*args, plain=plain, at=at, **keywords):
                plain(*args, **keywords)
                self.taken[at] += 1
                return 42.0

            optimizer.step = step
            self.optimizers.append(optimizer)

    def loss(self, rows):
        total = 0.0
        for params, row in zip(self.params, rows):
            for param, factors in zip(params, row or []):
                if factors is not None:
                    total = total + (param * torch.tensor(parsed(factors), dtype=param.dtype)).sum()
        return total

    def do(self, name, *args):
        scaler, one = self.scaler, torch.tensor
        match name:
            case "scale":
                return scaler.scale(one(parsed(args[0]), dtype=DTYPES[args[1]] if len(args) > 1 else None))
            case "scale_list":
                return scaler.scale(self.losses(args[0]))
            case "scale_tuple":
                return scaler.scale(tuple(self.losses(args[0])))
            case "scale_iterator":
                return scaler.scale(iter(self.losses(args[0])))
            case "scale_dict":
                return list(scaler.scale({"a": one(1.0)}))
            case "scale_bad":
                return scaler.scale(args[0] if args else 1.0)
            case "backward":
                losses = [self.loss(rows) for rows in args[0]]
                for loss in losses:
                    scaler.scale(loss).backward(retain_graph=True)
                return losses
            case "grads":
                for param, grad in zip(self.params[args[0]], args[1]):
                    param.grad = None if grad is None else one(parsed(grad), dtype=param.dtype)
            case "sparse_grad":
                param = self.params[args[0]][0]
                param.grad = torch.sparse_coo_tensor([args[1]], one(args[2], dtype=param.dtype), param.shape)
            case "zero_grad":
                self.optimizers[args[0]].zero_grad(*args[1:])
            case "unscale":
                scaler.unscale_(self.optimizers[args[0]])
            case "clip":
                return torch.nn.utils.clip_grad_norm_(self.params[args[0]], args[1]).item()
            case "step":
                return scaler.step(self.optimizers[args[0]])
            case "update":
                scaler.update()
            case "update_new":
                new = parsed(args[0])
                scaler.update(one(new) if isinstance(new, list) else new)
            case "set":
                getattr(scaler, f"set_{args[0]}")(args[1])
            case "reload":
                fresh = torch.amp.GradScaler("cpu")
                fresh.load_state_dict(scaler.state_dict())
                self.scaler = fresh
            case "load_state_dict":
                scaler.load_state_dict(args[0])
            case "pickle":
                self.scaler = pickle.loads(pickle.dumps(scaler))
            case "get_growth_tracker":
                return scaler._get_growth_tracker()
            case _:
                return getattr(scaler, name)()

    def losses(self, numbers):
        return [self.losses(x) if isinstance(x, list) else torch.tensor(x) for x in numbers]

    def event(self, event):
        self.taken = [0] * len(self.optimizers)
        record = {"event": event}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                returned = self.do(*event)
                if returned is not None:
                    record["returns"] = shown(returned)
            except Exception as error:
                record["error"] = {"type": type(error).__name__, "message": str(error)[:300]}
        if caught:
            record["warnings"] = [str(warning.message)[:200] for warning in caught]
        record |= {"scale": number(float(self.scaler.get_scale())), "growth_tracker": self.scaler._get_growth_tracker()}
        record |= {"step_taken": self.taken, "params": shown(self.params)}
        record["grads"] = [[None if p.grad is None else shown(p.grad) for p in params] for params in self.params]
        if self.scaler.is_enabled():
            states = [self.scaler._per_optimizer_states[id(optimizer)] for optimizer in self.optimizers]
            record["stage"] = [state["stage"].name for state in states]
        return record


def trace(config, events, optimizers=None):
    optimizers = optimizers or [{"params": [[1.0, 2.0]], "lr": 1.0}]
    recorded = {"config": config, "optimizers": optimizers}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = Trace(config, optimizers)
        except Exception as error:
            return recorded | {"constructor_error": {"type": type(error).__name__, "message": str(error)}}
    if caught:
        recorded["warnings"] = [str(warning.message) for warning in caught]
    return recorded | {"events": [made.event(event) for event in events]}


TWO = [{"params": [[1.0, 2.0]], "lr": 0.5}, {"params": [[3.0], [4.0]], "lr": 1.0}]
SCALE = ["scale", 1.0]
GRADS = ["grads", 0, [[4.0, 8.0]]]
UPDATE = ["update"]


def step(*which):
    return [["step", at] for at in which] + [UPDATE]


def backward(*losses):
    return ["backward", list(losses)]


ONE_LOSS = backward([[[1.0, 2.0]]])
GETTERS = [[f"get_{name}"] for name in ["scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker"]]

TRACES = {
    "backward_of_one_loss": trace(QUIET, [ONE_LOSS, *step(0), ["zero_grad", 0], ONE_LOSS, *step(0), ["zero_grad", 0], ONE_LOSS, ["unscale", 0], ["clip", 0, 0.5], *step(0)]),
    "backward_adds_up": trace(QUIET, [ONE_LOSS, ONE_LOSS, *step(0)]),
    "backward_of_two_losses": trace(QUIET, [backward([[[1.0, 2.0]], None], [None, [[3.0], [0.5]]]), *step(0, 1)], TWO),
    "two_losses_share_a_parameter": trace(QUIET, [backward([[[1.0, 2.0]], [[1.0], None]], [[[0.5, 0.25]], [[3.0], [0.5]]]), ["unscale", 1], *step(0, 1)], TWO),
    "backward_overflows_in_one_of_two": trace(QUIET, [backward([[["inf", 1.0]], None], [None, [[3.0], [0.5]]]), *step(0, 1), ["zero_grad", 0], ["zero_grad", 1], backward([[[1.0, 2.0]], [[1.0], None]]), *step(0, 1)], TWO),
    "backward_overflows_by_the_scale": trace({"init_scale": 2.0**100}, [backward([[[1e10, 1.0]]]), ["step", 0], UPDATE]),
    "backward_after_a_step_adds": trace(QUIET, [ONE_LOSS, *step(0), ONE_LOSS, *step(0)]),
    "backward_between_unscale_and_step": trace(QUIET, [ONE_LOSS, ["unscale", 0], ONE_LOSS, *step(0)]),
    "backward_under_two_scales": trace({"init_scale": 4.0, "growth_interval": 1}, [ONE_LOSS, *step(0), ["zero_grad", 0], ONE_LOSS, UPDATE, *step(0)]),
    "backward_of_bf16": trace(QUIET, [ONE_LOSS, *step(0)], [{"params": [[1.0, 2.0]], "dtype": "bf16"}]),
    "backward_of_f16": trace(QUIET, [ONE_LOSS, *step(0)], [{"params": [[1.0, 2.0]], "dtype": "f16"}]),
    "backward_of_f64": trace(QUIET, [ONE_LOSS, *step(0)], [{"params": [[1.0, 2.0]], "dtype": "f64"}]),
    "backward_off": trace(QUIET | {"enabled": False}, [ONE_LOSS, ["unscale", 0], *step(0), ["zero_grad", 0], ONE_LOSS, *step(0)]),
    "for_cuda_without": trace({"device": "cuda"}, [["is_enabled"], *GETTERS, SCALE, ["scale", 1.0, "f16"], GRADS, ["unscale", 0], *step(0), ["state_dict"], ["load_state_dict", {}]]),
    "for_cuda_without_backward": trace({"device": "cuda", **QUIET}, [ONE_LOSS, *step(0), ["get_scale"], ["update_new", 8.0], ["get_scale"]]),
    "for_cuda_without_bad_numbers": trace({"device": "cuda", "growth_factor": 0.5}, [["is_enabled"], SCALE]),
    "for_cuda_and_off": trace({"device": "cuda", "enabled": False}, [["is_enabled"], SCALE, GRADS, *step(0)]),
    "getters_before_anything": trace({}, [["is_enabled"], *GETTERS, ["state_dict"]]),
    "getters_of_an_integer": trace({"init_scale": 8}, [["get_scale"], SCALE, ["get_scale"]]),
    "unscale_after_step": trace(QUIET, [SCALE, GRADS, ["step", 0], ["unscale", 0], UPDATE]),
    "step_before_scale": trace(QUIET, [GRADS, ["step", 0]]),
    "update_after_unscale_alone": trace(QUIET, [SCALE, GRADS, ["unscale", 0], UPDATE, SCALE, GRADS, ["unscale", 0], UPDATE]),
    "new_scale_as_a_number": trace(QUIET, [SCALE, GRADS, ["step", 0], ["update_new", 16.0], SCALE, ["update_new", "inf"], ["update_new", "nan"]]),
    "load_nothing": trace(QUIET, [["load_state_dict", {}]]),
    "load_before_scale": trace(QUIET, [["load_state_dict", {"scale": 128.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 2, "_growth_tracker": 1}], SCALE, GRADS, *step(0)]),
    "sparse_of_f16": trace(QUIET, [SCALE, ["sparse_grad", 0, [0, 0], [64000.0, 64000.0]], ["unscale", 0], ["step", 0]], [{"params": [[1.0, 2.0]], "dtype": "f16"}]),
    "sparse_of_four": trace(QUIET, [SCALE, ["sparse_grad", 0, [3, 1], [4.0, 8.0]], *step(0)], [{"params": [[1.0, 2.0, 3.0, 4.0]], "lr": 1.0}]),
    "losses_of_every_form": trace(QUIET, [["scale_list", [1.0, [2.0, [3.0]]]], ["scale_tuple", [1.0, 2.0]], ["scale_iterator", [1.0]], ["scale_list", []], ["scale_dict"], ["scale_bad"], ["scale_bad", 1.0], ["scale_bad", None], ["scale_bad", "word"]]),
    "losses_with_axes": trace({}, [["scale", [1.0, 2.0]], ["scale", [1.0], "f16"], ["scale", [1.0], "bf16"], ["scale", [[1.0, 2.0]], "f64"], ["scale", 3, "i64"]]),
    "nan_after_unscale": trace(QUIET, [SCALE, GRADS, ["unscale", 0], ["grads", 0, [["nan", 1.0]]], *step(0)]),
    "gradients_set_to_zero": trace(QUIET, [SCALE, GRADS, *step(0), ["zero_grad", 0, False], ["step", 0], UPDATE]),
    "setters_check_nothing": trace(QUIET, [["set", "growth_factor", 0.5], ["set", "backoff_factor", 2.0], ["set", "growth_interval", 0], SCALE, GRADS, *step(0)]),
    "loads_and_setters_in_a_step": trace(QUIET, [SCALE, GRADS, ["step", 0], ["set", "growth_interval", 1], UPDATE, ["reload"], SCALE]),
}  # fmt: skip

if __name__ == "__main__":
    traces = ",\n".join(f"{json.dumps(name)}: {json.dumps(recorded)}" for name, recorded in TRACES.items())
    print(f'{{"torch": "{torch.__version__}",\n"traces": {{\n{traces}\n}}}}')
