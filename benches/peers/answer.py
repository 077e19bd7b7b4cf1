"""Answers the lines that a bench writes with what torch needs for them. Needs torch from PyPI."""

import sys
import time

import torch


def answer(find, clock=time.perf_counter):
    """For each line, which is `THREADS REPEATS WORDS...`: seconds per call of what `find` gives for the words, or `error` and
    why. Nothing else is written."""
    print(f"torch {torch.__version__} with {torch.backends.cpu.get_cpu_capability()}", flush=True)
    for line in sys.stdin:
        threads, repeats, *words = line.split()
        torch.set_num_threads(int(threads))
        try:
            call = find(*words)
            start = clock()
            for _ in range(int(repeats)):
                call()
            print((clock() - start) / int(repeats), flush=True)
        except Exception as error:  # a peer that cannot run is a row of the table, not the end of it
            print("error", str(error).replace("\n", " ")[:120], flush=True)
