"""Errors that are found in Python."""

from __future__ import annotations

from ._engine import Error


def error(kind: str, words: str) -> Error:
    """Returns an error of a kind, such as `Path`, without a place in a file."""
    made = Error(words)
    made.kind, made.file, made.line, made.column = kind, None, None, None
    return made
