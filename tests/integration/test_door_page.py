"""The page that the MBWS door shows, in a real browser."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mtl.testing import RunningBroker
from tests.support.aio import in_loop
from tests.support.chromium import CHROMIUM, page
from tests.support.cutting_proxy import HERE, CuttingProxy
from tests.support.doors import door

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")


@in_loop
async def test_the_page_publishes_subscribes_and_survives_its_network(
    mtl_broker: RunningBroker, tmp_path: Path
) -> None:
    """Its own forms first; then numbered contents, cut in the middle of them again and again.

    With MTL_SCREENSHOT=FILE in the environment it keeps what the page shows after all that (docs/how-to/doors.md).
    """
    async with door("mbws", mtl_broker.endpoint, "127.0.0.1:0", page=True) as (opened, beside):
        port = urlsplit(opened.endpoint).port
        assert port is not None
        with CuttingProxy(port) as proxy:
            async with page(f"http://{HERE}:{port}/", tmp_path) as there:
                await there.evaluate("the.connecting.requestSubmit()")
                await there.evaluate(
                    "the.body.value = 'größer ✓ 😀'; the.type.value = 'text/plain';"
                    "the.properties.value = 'kind=new, ü=a=b'; the.publishing.requestSubmit()"
                )
                await there.until("the.contents.rows.length === 1 && connection.settled === 1")
                cells = "Array.from(the.contents.rows[0].cells, cell => cell.textContent)"
                assert await there.evaluate(cells) == ["1", "größer ✓ 😀", "text/plain", "kind=new, ü=a=b"]
                async with beside.writer("orders") as w:
                    await w.send(b"\xff\xfe")
                await there.until("the.contents.rows.length === 2")
                assert await there.evaluate(cells) == ["2", "(2 octets)", "", ""]

                await there.evaluate(
                    "setInterval(() => { if (n < 500) for (let i = 0; i < 5; i++)"
                    " connection.publish({ body: `${n++}`, type: '', properties: [] }); }, 5); var n = 0; null"
                )
                for cut in (1, 2, 3):
                    await there.until(f"the.contents.rows.length > {cut} * 100")
                    await asyncio.to_thread(proxy.cut)
                    await there.until(f"connection.recoveries === {cut}")
                await there.until("the.contents.rows.length >= 502 && !connection.window.length")
                shown = "Array.from(the.contents.rows, row => row.cells[1].textContent).reverse().slice(2)"
                assert await there.evaluate(shown) == [str(n) for n in range(500)]
                assert await there.evaluate("connection.beginnings") == 1
                if (kept := os.environ.get("MTL_SCREENSHOT")) is not None:
                    await there.screenshot(Path(kept), 960, 540)
        async with beside.reader("orders", start=3, until=503) as log:
            assert [content.body async for content in log] == [b"%d" % n for n in range(500)]
        assert (await beside.describe(["orders"]))["orders"].next == 503
