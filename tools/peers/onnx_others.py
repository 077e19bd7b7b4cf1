"""onnx_others.py FOLDER [MODEL ...]: converts each case of a folder by three other converters, and checks what came out.

The cases are those of onnx_cases.py. Each converter gets the case's own options for the low dtype, inputs and outputs, and
what stays float32; all else is its default. Needs onnx, onnxruntime and numpy, and for each converter that is to be
measured its package: onnxconverter-common, onnxruntime, nvidia-modelopt (with onnx-graphsurgeon, onnxslim, onnxscript,
polygraphy; torch is imported and not used, so an empty module serves in its place). Converts each MODEL, too, and prints the seconds.
"""
import importlib.machinery, importlib.metadata, json, os, subprocess, sys, tempfile, time, types

PACKAGES = {"common": "onnxconverter-common", "onnxruntime": "onnxruntime", "modelopt": "nvidia-modelopt"}


def float16_options(float16, options):
    """Two of the converters have the same options."""
    if options["low"] != "float16":
        raise ValueError("float16 alone")
    return {
        "keep_io_types": options.get("keep_io", False),
        "op_block_list": float16.DEFAULT_OP_BLOCK_LIST + options.get("full_ops", []),
        "node_block_list": options.get("full_nodes", []),
    }


def by_common(model, to, options):
    import onnx
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(model), **float16_options(float16, options)), to)


def by_onnxruntime(model, to, options):
    import onnx
    from onnxruntime.transformers import float16, onnx_model

    done = onnx_model.OnnxModel(onnx.load(model))
    done.convert_float_to_float16(**float16_options(float16, options))
    # It appends its casts.
    done.topological_sort()
    onnx.save(done.model, to)


def by_modelopt(model, to, options):
    import onnx

    try:
        import torch
    except ImportError:
        # Asked for, and not used.
        torch = sys.modules["torch"] = types.ModuleType("torch")
        torch.__spec__, torch.Tensor = importlib.machinery.ModuleSpec("torch", None), type("Tensor", (), {})
    from modelopt.onnx.autocast.convert import convert_to_mixed_precision

    done = convert_to_mixed_precision(
        onnx_path=model,
        low_precision_type={"float16": "fp16", "bfloat16": "bf16"}[options["low"]],
        nodes_to_exclude=options.get("full_nodes"),
        op_types_to_exclude=options.get("full_ops"),
        keep_io_types=options.get("keep_io", False),
        calibration_data=options.get("npz"),
    )
    onnx.save(done, to)


BY = {"common": by_common, "onnxruntime": by_onnxruntime, "modelopt": by_modelopt}


def one(converter, model, to, options):
    """Converts a model in a process of its own, since a converter may crash. Returns what it said."""
    command = [sys.executable, os.path.abspath(__file__), "--one", converter, model, to, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and os.path.exists(to):
        os.remove(to)
    return done


def is_right(converter, folder, scratch, case):
    from onnx_cases import array, holds, same
    import numpy as np

    path = os.path.join(folder, case)
    with open(path) as file:
        written = json.load(file)
    options, checks = dict(written["convert"]), written["checks"]
    model, to = os.path.join(folder, written["model"]), os.path.join(scratch, written["model"])
    if options.get("ranges"):
        options["npz"] = to + ".npz"
        np.savez(options["npz"], **{name: array(value) for name, value in written["inputs"].items()})
    done = one(converter, model, to, options)
    if done.returncode:
        words = checks.get("refuse_or")
        return bool(words) and all(word in done.stderr for word in words)
    try:
        if holds(written, model, to):
            return False
    except Exception:
        return False
    if checks.get("idempotent"):
        again = to + ".again.onnx"
        return one(converter, to, again, options).returncode == 0 and same(to, again)
    return True


def main():
    folder = os.path.abspath(sys.argv[1])
    cases = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    for converter, package in PACKAGES.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{package} is not installed")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            hold = [case for case in cases if is_right(converter, folder, scratch, case)]
            print(f"{package} {version}: {len(hold)} of {len(cases)} hold: " + ", ".join(case[:2] for case in hold))
            for model in sys.argv[2:]:
                began = time.monotonic()
                done = one(converter, model, os.path.join(scratch, "timed.onnx"), {"low": "float16", "keep_io": True})
                took = time.monotonic() - began
                said = "" if done.returncode == 0 else " and failed: " + done.stderr.strip().splitlines()[-1]
                print(f"  {os.path.basename(model)}: {took:.1f} s with the start of Python{said}", flush=True)


if sys.argv[1:2] == ["--one"]:
    # The folder `torch` beside this file is not torch.
    sys.path.pop(0)
    BY[sys.argv[2]](sys.argv[3], sys.argv[4], json.loads(sys.argv[5]))
elif __name__ == "__main__":
    main()
