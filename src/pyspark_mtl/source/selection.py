"""The check that a query still reads the resources of its checkpoint. Pure.

An entry of a checkpoint whose resource the options do not select any more is parked: it is kept, is not read, and
continues when the options select it again. Contents that are never read because of a changed option, or because the
sources of a union have changed places, are a loss like any other.
"""

from __future__ import annotations

import logging
import re

from mtl.errors import OffsetError
from pyspark_mtl.options.kinds import matches
from pyspark_mtl.options.settings import ReadSettings
from pyspark_mtl.source.offsets import Offset

log = logging.getLogger(__name__)

NAMED = 5
"""Resources that an error names; a changed pattern can leave thousands."""


def parked(settings: ReadSettings, offset: Offset) -> frozenset[str]:
    """The resources of a checkpoint's offset that the options do not select. OffsetError unless formerPattern matches
    all of them; with failOnDataLoss=false they are logged.
    """
    unselected = settings.unselected(offset.resources)
    former = settings.former
    unexpected = [name for name in unselected if former is None or not matches(former, name)]
    if unexpected:
        text = _text(settings, offset, unexpected)
        if settings.fail_on_data_loss:
            pattern = "|".join(map(re.escape, unexpected[:NAMED])) if len(unexpected) <= NAMED else "..."
            raise OffsetError(
                f"{text}. If the sources of a union have changed places, put them back. If the query shall read no "
                f"more of them, give formerPattern={pattern}; for another query use a new checkpoint. With "
                "failOnDataLoss=false this is logged"
            )
        log.warning("%s", text)
    return frozenset(unselected)


def _text(settings: ReadSettings, offset: Offset, names: list[str]) -> str:
    positions = [f"{name!r} up to {offset.resources[name].next - 1}" for name in names[:NAMED]]
    if len(names) > NAMED:
        positions.append(f"{len(names) - NAMED} more")
    selected = (
        f"resourcePattern={settings.pattern}"
        if settings.resources is None
        else f"resources={_shortened(settings.resources)}"
    )
    return (
        f"the query of this checkpoint has read {', '.join(positions)}, and its options are {selected}: later contents "
        "would never be read"
    )


def _shortened(names: tuple[str, ...]) -> str:
    return ",".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
