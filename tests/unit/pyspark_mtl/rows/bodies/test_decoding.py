from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_mtl.options.kinds import one_of
from pyspark_mtl.options.table import BY_KEY
from pyspark_mtl.rows.bodies.decoding import DECODERS, decoder
from pyspark_mtl.rows.bodies.encoding import encode, streams

ROWS = pa.RecordBatch.from_pydict({"x": ["one", "two"]})


@pytest.mark.parametrize("name", DECODERS)
def test_every_format_has_encoder_and_decoder(name: str) -> None:
    bodies = pa.array(list(streams(ROWS)), pa.binary()) if name == "arrow" else encode(name, ROWS)
    assert decoder(name, ROWS.schema)(bodies).rows.equals(ROWS)


def test_the_option_names_every_format() -> None:
    assert BY_KEY["bodyformat"].parse.__doc__ == one_of("raw", *DECODERS).__doc__
