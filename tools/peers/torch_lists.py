"""Reads the op lists of `torch.autocast` out of the wheels of torch on PyPI, and compares them with precast's.

    torch_lists.py [VERSION ...]

The wheels for macOS have the symbols of the functions that wrap ops, for the autocast of every device; nothing of
them is run. What changed between versions is printed, and must be what `hosts/python/precast/_pin.py` says.
"""

import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path

VERSIONS = ["2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
PLATFORMS = ["macosx_11_0_arm64", "macosx_12_0_arm64", "macosx_14_0_arm64"]
#: `c10::DeviceType` and `at::autocast::CastPolicy`.
DEVICES = {0: "cpu", 1: "cuda", 12: "xpu", 13: "mps"}
POLICIES = [
    "lower_precision_fp",
    "fp32",
    "fp32_set_opt_dtype",
    "fp32_append_dtype",
    "promote",
]
WRAPPER = re.compile(
    rb"WrapFunction_ILNS0_10CastPolicyE(\d+)ELN3c1010DeviceTypeE(\d+)E[\w$]*?4_ops(\d+)(\w+)"
)


def library(version):
    """The bytes of the library with the dispatcher."""
    with tempfile.TemporaryDirectory() as folder:
        platforms = [
            word for platform in PLATFORMS for word in ("--platform", platform)
        ]
        wanted = [
            "--python-version",
            "3.12",
            "--only-binary",
            ":all:",
            "--no-deps",
            "--quiet",
            "--dest",
            folder,
        ]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                *platforms,
                *wanted,
                f"torch=={version}",
            ],
            check=True,
        )
        with zipfile.ZipFile(next(Path(folder).glob("torch-*.whl"))) as wheel:
            return wheel.read("torch/lib/libtorch_cpu.dylib")


def lists(version):
    """The ops of each device and policy, without the overloads for named dimensions, which torch 2.13 dropped."""
    found = defaultdict(set)
    for policy, device, length, name in WRAPPER.findall(library(version)):
        op = name[: int(length)].decode()
        if int(device) in DEVICES and "imname" not in op:
            found[DEVICES[int(device)], POLICIES[int(policy)]].add(op)
    return found


def main():
    versions = sys.argv[1:] or VERSIONS
    path = Path(__file__).parents[2] / "hosts/python/precast/_pin.py"
    [changes] = [
        ast.literal_eval(line.value)
        for line in ast.parse(path.read_text()).body
        if isinstance(line, ast.Assign) and line.targets[0].id == "CHANGES"
    ]
    known = {
        (since, device, op) for since, devices, op in changes for device in devices
    }
    met, gone, before = set(), set(), None
    for version in versions:
        now = lists(version)
        short = tuple(int(part) for part in version.split(".")[:2])
        counts = {
            device: sum(len(ops) for (of, _), ops in now.items() if of == device)
            for device in DEVICES.values()
        }
        print(
            version, ", ".join(f"{device} {count}" for device, count in counts.items())
        )
        for key in sorted(set(now) | set(before or now)) if before else []:
            for op in sorted(now[key] - before[key]):
                print(f"  {op} joined {key[1]} on {key[0]}")
                met.add((short, key[0], op))
            for op in sorted(before[key] - now[key]):
                print(f"  {op} left {key[1]} on {key[0]}")
                gone.add(op)
        before = now
    if not sys.argv[1:] and met != known:
        sys.exit(f"the changes in {path.name} differ: {sorted(met ^ known)}")
    # Ops that torch itself removed have no list.
    if gone - {"cholesky", "qr"}:
        sys.exit(f"ops left a list, which no pin puts back: {sorted(gone)}")


main()
