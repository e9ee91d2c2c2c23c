"""The site builds without warnings, every link has a target, and no page loads from other hosts."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documentation import site

ROOT = Path(__file__).parents[1]

LINKS = {"a": "href", "img": "src", "script": "src", "link": "href"}
LOADED = {"img", "script", "link"}


class Html(HTMLParser):
    """A page's links as (tag, target), and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        target = values.get(LINKS.get(tag, ""))
        if target and values.get("rel") != "canonical":
            self.links.append((tag, target))
        self.anchors |= {name for name in (values.get("id"), values.get("name")) if name}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--strict"),
            *("--config-file", "mkdocs.yml", "--site-dir", str(place)),
        ],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return place


def _pages(place: Path) -> Iterator[tuple[str, Html]]:
    for path in sorted(place.rglob("*.html")):
        if path.name != "404.html":  # served at any address
            yield path.relative_to(place).as_posix(), Html(path.read_text(encoding="utf-8"))


def test_no_link_is_dead(built: Path) -> None:
    pages = dict(_pages(built))
    assert len(pages) > 30
    dead = []
    for name, page in pages.items():
        for _, target in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
            file = name if not parts.path else file
            anchors = pages[file].anchors if file in pages else None
            missing = anchors is not None and parts.fragment and unquote(parts.fragment) not in anchors
            if not (built / file).exists() or missing:
                dead.append(f"{name}: {target}")
    assert not dead, "\n".join(dead)


def test_no_page_loads_from_other_hosts(built: Path) -> None:
    loaded = [target for _, page in _pages(built) for tag, target in page.links if tag in LOADED]
    assert loaded
    assert not [target for target in loaded if urlsplit(target).netloc]


def test_the_site_has_every_page_of_the_repository(built: Path) -> None:
    assert "<h1" in (built / "index.html").read_text(encoding="utf-8")
    for page in site.INCLUDED.values():
        assert (built / page.replace(".md", ".html")).exists(), page


def test_a_link_to_a_file_becomes_a_link_to_its_page() -> None:
    text = "[protocol](../../PROTOCOL.md#9-fault-model), [a job](../../spark-submit-examples/windows.py), [x](b.md)"
    found = site.relinked(text, "docs/how-to/a.md")
    assert found == "[protocol](../reference/protocol.md#9-fault-model), a job, [x](b.md)"


def test_links_in_code_are_not_changed() -> None:
    text = "```text\n[protocol](../PROTOCOL.md)\n```\n"
    assert site.relinked(text, "docs/a.md") == text


def test_a_long_name_in_a_table_may_break_at_its_words() -> None:
    long, short = "startingOffsetsByTimestamp", "maxOffsetsPerTrigger"
    html = f"<td><code>{long}</code></td><td><code>{short}</code></td><p><code>{long}</code></p>"
    broken = "starting<wbr>Offsets<wbr>By<wbr>Timestamp"
    assert site.breakable(html) == html.replace(long, broken, 1)


def test_files_named_on_the_contributors_page_exist() -> None:
    """A placeholder in capitals stands for a new file; a file may be given by the last parts of its path."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_./-]+\.(?:py|toml|md|sh|yaml))`", text))
    assert len(named) > 40
    files = [f"/{path.relative_to(ROOT)}" for path in tracked_files()]
    missing = [name for name in named if not any(file.endswith(f"/{name.lstrip('./')}") for file in files)]
    assert not missing


def test_every_promise_of_the_security_page_names_tests_that_exist() -> None:
    """The last cell of a promise has scenarios of tests/hostile, and tests as FILE::NAME."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tests = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}

    def exists(name: str) -> bool:
        file, _, function = name.rpartition("::")
        return any(
            re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE)
            for path, text in tests.items()
            if (path.name == file if file else path.parent.name == "scenarios")
        )

    section = page.partition("## Promises")[2].partition("## What a peer can do")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 15
    for row in rows:
        shown = row.rstrip(" |").rpartition(" | ")[2]
        named = [name for name in re.findall(r"`([^`]+)`", shown) if "/" not in name]
        assert named or shown == "all scenarios", row
        assert not [name for name in named if not exists(name)], row
    for name in re.findall(r"test_\w+\.py::\w+", page):
        assert exists(name), name


def tracked_files() -> list[Path]:
    ignored = {".git", ".venv", "build", "__pycache__", "node_modules"}
    return [
        path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.relative_to(ROOT).parts)
    ]
