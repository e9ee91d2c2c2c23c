"""The page of the MBWS door, in a real browser."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mtl.client.aio import Connection
from mtl.doors.running import Door
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.chromium import CHROMIUM, Page, page
from tests.support.cutting_proxy import HERE, CuttingProxy
from tests.support.doors import door

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")


BROKEN = """(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  const broken = [];
  while (texts.nextNode()) {
    for (const { 0: word, index } of texts.currentNode.data.matchAll(/\\S+/g)) {
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + word.length);
      if (new Set(Array.from(range.getClientRects(), box => Math.round(box.top))).size > 1) broken.push(word);
    }
  }
  return broken;
})()"""
"""The words with a line break in them."""


@asynccontextmanager
async def page_of(
    mtl_broker: RunningBroker, tmp_path: Path
) -> AsyncIterator[tuple[Door, Connection, CuttingProxy, Page]]:
    """The door, another client, and the page behind a network that can be cut."""
    async with door("mbws", mtl_broker.endpoint, "127.0.0.1:0", page=True) as (opened, broker_client):
        port = urlsplit(opened.endpoint).port
        assert port is not None
        with CuttingProxy(port) as proxy:
            async with page(f"http://{HERE}:{port}/", tmp_path) as there:
                yield opened, broker_client, proxy, there


@in_loop
async def test_every_field_has_a_label(mtl_broker: RunningBroker, tmp_path: Path) -> None:
    async with page_of(mtl_broker, tmp_path) as (_, _, _, there):
        labels = "Array.from(document.querySelectorAll('input'), one => one.labels[0]?.textContent.trim())"
        assert await there.evaluate(labels) == [
            "Address, a resource's name",
            "From: earliest, latest or a sequence",
            "Body",
            "Content type",
            "Properties",
        ]


@in_loop
async def test_the_page_can_disconnect_and_reconnect(mtl_broker: RunningBroker, tmp_path: Path) -> None:
    async with page_of(mtl_broker, tmp_path) as (opened, _, _, there):
        assert await there.evaluate("the.disconnect.disabled")
        await there.evaluate("the.connecting.requestSubmit()")
        await there.until("connection.state === 'open'")
        await there.evaluate("the.body.value = '1'; the.publishing.requestSubmit(); the.disconnect.click()")
        await there.until("connection.state === 'closed'")
        assert await there.evaluate("the.disconnect.disabled && the.publish.disabled")
        assert "1 acknowledged by the door, 0 not yet" in await there.evaluate("the.state.textContent")
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        await there.evaluate("the.connecting.requestSubmit()")
        await there.until("the.contents.rows.length === 1")
        assert "1 content received" in await there.evaluate("the.state.textContent")


@in_loop
async def test_counts_continue_with_another_connection(mtl_broker: RunningBroker, tmp_path: Path) -> None:
    """A connection unknown to the door starts over; the counts remain those of received messages."""
    async with page_of(mtl_broker, tmp_path) as (_, _, proxy, there):
        await there.evaluate("the.connecting.requestSubmit()")
        for n in (1, 2):
            await there.evaluate("the.body.value = '1'; the.publishing.requestSubmit()")
            await there.until(f"the.contents.rows.length === {n} && !connection.window.length")
            if n == 1:
                await there.evaluate("connection.name = 'urn:uuid:unknown'; null")
                await asyncio.to_thread(proxy.cut)
                await there.until("connection.beginnings === 2")
        state = await there.evaluate("the.state.textContent")
        assert "2 contents received" in state
        assert "2 acknowledged by the door, 0 not yet" in state
        assert "begun again 1 time" in state


@in_loop
async def test_long_bodies_are_shortened_without_broken_words(
    mtl_broker: RunningBroker, tmp_path: Path
) -> None:
    long = "größer 😀 " * 100
    async with page_of(mtl_broker, tmp_path) as (_, broker_client, _, there):
        await broker_client.create_resource("orders")
        async with broker_client.writer("orders") as w:
            await w.send(long.encode(), {"content-type": "application/vnd.apache.arrow.stream"})
            await w.send(b"x" * 90, {"kind": "brand-new-and-longer-than-others"})
        await there.evaluate("the.connecting.requestSubmit()")
        await there.until("the.contents.rows.length === 2")
        cell = "the.contents.rows[1].cells[1]"
        short = await there.evaluate(f"{cell}.firstChild.data")
        assert short.endswith("…")
        assert 290 < len(short.encode("utf-16-le")) // 2 <= 301
        assert long.startswith(short[:-1])
        for width in (400, 700, 1100):
            await there.size(width, 600)
            assert await there.evaluate(BROKEN) == []
            assert await there.evaluate("document.documentElement.scrollWidth") <= width
        button = f"{cell}.querySelector('button')"
        assert await there.evaluate(f"{button}.textContent") == "show all 1000 characters"
        await there.evaluate(f"{button}.click()")
        assert await there.evaluate(f"{cell}.firstChild.data") == long
        await there.evaluate(f"{button}.click()")
        assert await there.evaluate(f"{cell}.firstChild.data") == short


@in_loop
async def test_the_page_publishes_subscribes_and_survives_its_network(
    mtl_broker: RunningBroker, tmp_path: Path
) -> None:
    """First its forms; then numbered contents while the network is cut repeatedly.

    With MTL_SCREENSHOT=FILE in the environment it keeps what the page shows after all that (docs/how-to/doors.md).
    """
    async with page_of(mtl_broker, tmp_path) as (_, broker_client, proxy, there):
        await there.evaluate("the.connecting.requestSubmit()")
        await there.evaluate(
            "the.body.value = 'größer ✓ 😀'; the.type.value = 'text/plain';"
            "the.properties.value = 'kind=new, ü=a=b'; the.publishing.requestSubmit()"
        )
        await there.until("the.contents.rows.length === 1 && connection.settled === 1")
        cells = "Array.from(the.contents.rows[0].cells, cell => cell.textContent)"
        assert await there.evaluate(cells) == ["1", "größer ✓ 😀", "text/plain", "kind=new, ü=a=b"]
        async with broker_client.writer("orders") as w:
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
        script = "Array.from(the.contents.rows, row => row.cells[1].textContent).reverse().slice(2)"
        assert await there.evaluate(script) == [str(n) for n in range(500)]
        assert await there.evaluate("connection.beginnings") == 1
        if (kept := os.environ.get("MTL_SCREENSHOT")) is not None:
            await there.screenshot(Path(kept), 960, 540)
        async with broker_client.reader("orders", start=3, until=503) as log:
            assert [content.body async for content in log] == [b"%d" % n for n in range(500)]
        assert (await broker_client.describe(["orders"]))["orders"].next == 503
