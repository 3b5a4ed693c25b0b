"""Files that are replaced whole."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: str | Path, text: str) -> None:
    """Write `text` to a file in one step: a reader sees the old file or the whole new one."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    os.replace(partial, target)
