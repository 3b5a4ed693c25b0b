"""The console that everything is printed on."""

from __future__ import annotations

import os
import re

from rich.console import Console

_LENGTH = re.compile(r"0*[1-9][0-9]{0,4}")  # of a line or a screen


class Output(Console):
    """A console as wide as the terminal, or as COLUMNS says where that is a width: with 0 nothing would be shown."""

    def __init__(self) -> None:
        lengths = ("COLUMNS", "LINES")
        kept = {name: value for name, value in os.environ.items() if name not in lengths or _LENGTH.fullmatch(value)}
        super().__init__(_environ=kept)
