"""Read the code blocks, tables and links of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
)

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_CLAIM_FILE = "yaml claim-file "


@dataclass(frozen=True)
class Block:
    page: Path
    info: str
    body: str

    @property
    def claim_file(self) -> str | None:
        """The name of the file that the block is all of."""
        return self.info.removeprefix(_CLAIM_FILE) if self.info.startswith(_CLAIM_FILE) else None


def blocks(page: Path) -> list[Block]:
    return [Block(page, match["info"].strip(), match["body"]) for match in _FENCE.finditer(page.read_text("utf-8"))]


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


def write_claim_files(page: Path, folder: Path) -> list[Path]:
    """Write every complete claim file of a page into a folder."""
    written = []
    for block in blocks(page):
        if block.claim_file is not None:
            written.append(folder / block.claim_file)
            written[-1].write_text(block.body, encoding="utf-8")
    return written


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row, heads and rules included."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
