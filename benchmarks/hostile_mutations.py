"""Small damage to valid files: bits, bytes, lines, numbers, nesting, types; what torn disks and hostile hands leave."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9.-]*")
_ODD_TEXTS = (
    b"0", b"-1", b"017", b"0x1p-1074", b"1e400", b"1e308", b"5e-324", b"9" * 400, b".nan", b"nan", b"inf", b"NaN",
    b"-Infinity", b"null", b"~", b"true", b"yes", b"''", b'""', b"[]", b"{}", b"[" * 300, b"{a: " * 300, b"(" * 3000,
    b"-" * 2000, b"x" * 5000, b"!!python/object/apply:os.abort []", b"&a", b"*a", b"<<", b"../../x.npz", b"/dev/zero",
    b"\xff\xfe", b"\x00", "ΰ\u2028\U0001f600".encode(), b"\\ud800", b"1..", b"1..1000000", b"real[n, n]",
)  # fmt: skip
_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, 10**19, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -0.0, "",
    "x" * 3000, "nan", "-inf", [], {}, [0], [None], {"a": 1}, {"__tensor__": "header"}, "\ud800", "a_b^{c}$",
)  # fmt: skip
_ODD_NUMBERS = (
    b"0", b"-1", b"1", b"1/3", b"1e-400", b"5e-324", b"1e-300", b"1e-16", b"1e16", b"1e300", b"1.7e308", b"1e400",
)  # fmt: skip
_LARGEST = 2**20  # bytes of a mutated file


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return a file with one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(_KINDS)(content, rng)[:_LARGEST]
    return content


def odd_number(content: bytes, rng: random.Random) -> bytes:
    """Return a text in which one number became an odd one; it may well be valid still."""
    found = rng.choice(list(_NUMBER.finditer(content)))
    return content[: found.start()] + rng.choice(_ODD_NUMBERS) + content[found.end() :]


def damaged_value(value: Any, rng: random.Random) -> Any:
    """Return JSON data in which one place, evenly chosen, was changed; lists and objects are changed in place."""
    holder = [value]
    spots: list[tuple[Any, Any]] = [(holder, 0)]
    stack = [value]
    while stack:
        item = stack.pop()
        entries = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, inner in entries:
            spots.append((item, key))
            stack.append(inner)
    place, key = rng.choice(spots)
    draw = rng.random()
    if draw < 0.08 and place is not holder:
        del place[key]
    elif draw < 0.14 and isinstance(place[key], list):
        place[key] = place[key] * 2 if rng.random() < 0.5 else place[key][: len(place[key]) // 2]
    elif draw < 0.18:
        for _ in range(rng.choice((3, 400))):
            place[key] = [place[key]]
    elif draw < 0.24:
        place[key] = rng.choice(spots)[0]
        place[key] = json.loads(json.dumps(place[key], default=str)) if _acyclic(place[key]) else None
    elif draw < 0.34 and isinstance(place[key], int | float) and not isinstance(place[key], bool):
        place[key] = -place[key] if rng.random() < 0.3 else place[key] * 10.0 ** rng.choice((-300, -20, 20, 300))
    else:
        place[key] = rng.choice(_ODD_VALUES)
    return holder[0]


def _acyclic(value: Any) -> bool:
    try:
        json.dumps(value, default=str)
    except (ValueError, RecursionError):
        return False
    return True


def _bit(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 4, 40))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] if rng.random() < 0.7 else content[place:]


def _hole(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    stop = min(len(content), start + rng.choice((1, 16, 512)))
    return content[:start] + (bytes(stop - start) if rng.random() < 0.5 else b"") + content[stop:]


def _repeated(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    part = content[start : start + rng.choice((4, 64, 1024))]
    return content[:start] + part * rng.choice((2, 3, 500)) + content[start:]


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return content
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if rng.random() < 0.5:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines.insert(one, lines[other])
    return b"".join(lines)


def _inserted(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice(_ODD_TEXTS) + content[place:]


def _replaced(pattern: re.Pattern[bytes]) -> Callable[[bytes, random.Random], bytes]:
    def replace(content: bytes, rng: random.Random) -> bytes:
        found = list(pattern.finditer(content))
        if not found:
            return content
        one = rng.choice(found)
        other = rng.choice(found)[0] if rng.random() < 0.4 else rng.choice(_ODD_TEXTS)
        return content[: one.start()] + other + content[one.end() :]

    return replace


_KINDS = (_bit, _cut, _hole, _repeated, _lines, _inserted, *(_replaced(p) for p in (_NUMBER, _NUMBER, _WORD, _WORD)))
