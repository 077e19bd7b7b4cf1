"""onnx_cases.py FOLDER PRECAST: converts each case of a folder by the command, and checks what came out.

A case is NAME.json beside its model: the options of the conversion under `convert`, what must hold under `checks`. The
folder, or the one above it, has `check.py CASE.json CONVERTED.onnx --json`, which prints what does not hold. Needs onnx,
onnxruntime and numpy. Prints `onnx cases: H of N hold`, and why the others do not.
"""
import json, os, subprocess, sys, tempfile, time
import numpy as np


def array(written):
    if "full" in written:
        return np.full(written["full"], written["value"], np.float32)
    numbers = written["data"]
    if written["dtype"].startswith("float"):
        numbers = [float(number) for number in numbers]
    return np.array(numbers).astype(written["dtype"]).reshape(written["shape"])


def policy(options, path):
    """The name of a shipped policy, or a file with the rules of the case."""
    rules = [("path", name) for name in options.get("full_nodes", [])]
    rules += [("op", name) for name in options.get("full_ops", [])]
    if not rules:
        return {"float16": "onnx", "bfloat16": "onnx-bf16"}[options["low"]]
    lines = ["version: 1", "pack: onnx-1", f"dtype: {options['low']}", "graph: {}", "rules:"]
    lines += [f"  - {{ {key}: {json.dumps(name)}, run: float32 }}" for key, name in rules]
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def convert(program, model, to, under, more=()):
    command = [program, "convert", model, to, "--policy", under, "--force", "--quiet", *more]
    return subprocess.run(command, capture_output=True, text=True)


def same(a, b):
    with open(a, "rb") as first, open(b, "rb") as second:
        return first.read() == second.read()


def check(folder, program, scratch, case):
    with open(os.path.join(folder, case)) as file:
        written = json.load(file)
    options, checks = written["convert"], written["checks"]
    model, to = os.path.join(folder, written["model"]), os.path.join(scratch, written["model"])
    more = [] if options.get("keep_io") else ["--low-io"]
    if options.get("ranges"):
        np.savez(to + ".npz", **{name: array(value) for name, value in written["inputs"].items()})
        more += ["--inputs", to + ".npz"]
    under = policy(options, to + ".yaml")
    began = time.monotonic()
    done = convert(program, model, to, under, more)
    took = time.monotonic() - began
    if done.returncode:
        words = checks.get("refuse_or")
        refused = words and all(word in done.stderr for word in words) and not os.path.exists(to)
        return ([] if refused else [done.stderr.strip()]), took
    script = next(
        (path for at in (folder, os.path.dirname(folder)) if os.path.exists(path := os.path.join(at, "check.py"))), None
    )
    if script is None:
        sys.exit(f"{folder} has no check.py, and neither has the folder above it")
    checked = subprocess.run(
        [sys.executable, script, os.path.join(folder, case), to, "--json"], capture_output=True, text=True
    )
    try:
        bad = json.loads(checked.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        bad = ["the check ended early: " + checked.stderr[-300:]]
    if checks.get("idempotent"):
        again = to + ".again.onnx"
        done = convert(program, to, again, under, more)
        if done.returncode or not same(to, again):
            bad.append("converting twice gives other bytes: " + done.stderr.strip())
    if checks.get("o0_same_bytes"):
        untouched = to + ".o0.onnx"
        done = convert(program, model, untouched, "o0")
        if done.returncode or not same(model, untouched):
            bad.append("level O0 gives other bytes: " + done.stderr.strip())
    return bad, took


def main():
    folder, program = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    cases = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    if not cases:
        sys.exit(f"{folder} has no cases: files NAME.json, each beside its model")
    hold, longest = 0, 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            bad, took = check(folder, program, scratch, case)
            hold, longest = hold + (not bad), max(longest, took)
            if bad:
                print("\n  ".join([case, *bad]))
    print(f"the longest conversion took {longest:.2f} s")
    print(f"onnx cases: {hold} of {len(cases)} hold")
    sys.exit(0 if hold == len(cases) else 1)


if __name__ == "__main__":
    main()
