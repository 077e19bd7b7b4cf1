"""The command, if this build has it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import precast
import pytest
from precast import _engine

HAS_COMMAND = hasattr(_engine, "command")
needs_command = pytest.mark.skipif(not HAS_COMMAND, reason="an engine without the command")


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "precast._command", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(HAS_COMMAND, reason="an engine with the command")
def test_an_engine_without_the_command_says_so() -> None:
    done = _run("--version")
    assert (done.returncode, done.stderr) == (2, "this build of the package has no command\n")


@needs_command
def test_the_command_has_its_name_and_its_status() -> None:
    done = _run("--version")
    assert (done.returncode, done.stdout) == (0, f"precast {precast.__version__}\n")
    done = _run("plan", "nosuch", "--policy", "o2")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no file `nosuch`")
    done = _run("plan", "mlp", "--policy", "o2-bf16")
    assert done.returncode == 0
    assert "8 cells" in done.stdout


@needs_command
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_an_interrupt_ends_the_command(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "precast._command", "train", "--epochs", "100000", "--output", str(tmp_path / "out")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        time.sleep(5)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    # The default of the system, or that of the command, which ends a run between two steps.
    assert running.returncode in (-signal.SIGINT, 1, 130)
