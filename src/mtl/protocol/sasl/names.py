"""The one form of a user's name: SASLprep (RFC 4013), which SCRAM applies to the names that clients send.

Names that look alike, such as `finance` with the ligature U+FB01, are one name in this form. Every name that a peer
sends is brought into it before it is compared, and no user has a name that is not in it.
"""

from __future__ import annotations

import stringprep
import unicodedata
from collections.abc import Callable
from typing import Final

from mtl.errors import Malformed
from mtl.wire.visible import unseen

_PROHIBITED: Final[tuple[tuple[Callable[[str], bool], str], ...]] = (
    (stringprep.in_table_a1, "a character that Unicode 3.2 does not have"),
    (stringprep.in_table_c21_c22, "a control character"),
    (stringprep.in_table_c3, "a character for private use"),
    (stringprep.in_table_c4, "a code point that is not a character"),
    (stringprep.in_table_c5, "a surrogate"),
    (stringprep.in_table_c6, "a character that is not plain text"),
    (stringprep.in_table_c7, "a character that describes others"),
    (stringprep.in_table_c8, "a direction mark"),
    (stringprep.in_table_c9, "a tag"),
)
"""RFC 4013, sections 2.3 and 2.5."""


def user_name(text: str) -> str:
    """A user's name in its normal form. Raises `Malformed` for a name that is empty or not allowed."""
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c))
    name = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not name:
        raise Malformed("a user name is empty")
    for character in name:
        for prohibited, kind in _PROHIBITED:
            if prohibited(character):
                raise Malformed(f"the user name {name!r} has {kind}, U+{ord(character):04X}")
    if unseen(name) is not None:
        raise Malformed(f"the user name {name!r} has the invisible character {unseen(name)}")
    if not _has_one_direction(name):
        raise Malformed(f"the user name {name!r} mixes texts from left to right and from right to left")
    return name


def _has_one_direction(name: str) -> bool:
    """RFC 3454, section 6: a name with right-to-left characters has no others, and begins and ends with one."""
    if not any(map(stringprep.in_table_d1, name)):
        return True
    ends = stringprep.in_table_d1(name[0]) and stringprep.in_table_d1(name[-1])
    return ends and not any(map(stringprep.in_table_d2, name))
