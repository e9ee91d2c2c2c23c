"""MkDocs' hook: files of the repository outside of docs become pages of the site, and links work in both.

Links in Markdown files are relative to the repository, so that they work where the files are read. In the site a link
to a file that is a page leads to the page, and a link to any other file becomes plain text.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"

INCLUDED = {
    "PROTOCOL.md": "reference/protocol.md",
    "CONFORMANCE.md": "reference/conformance.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "spark-submit-examples/coming-from-kafka.md": "how-to/coming-from-kafka.md",
    "spark-submit-examples/README.md": "how-to/platforms/jobs.md",
    "spark-submit-examples/connect/README.md": "how-to/platforms/connect.md",
    "spark-submit-examples/yarn/README.md": "how-to/platforms/yarn.md",
    "spark-submit-examples/emr-serverless/README.md": "how-to/platforms/emr-serverless.md",
    "spark-submit-examples/kubernetes/README.md": "how-to/platforms/kubernetes.md",
    "spark-submit-examples/databricks/README.md": "how-to/platforms/databricks.md",
    "README.md": "index.md",
}
"""File of the repository: page of the site."""

_SOURCES = {page: source for source, page in INCLUDED.items()}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?<=<td><code>)[\w.-]+(?=</code></td>)")
_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\.)")

LONGEST_NAME = 24
"""Characters of a name in a table that stay on one line: longer names would leave too little width for their meaning.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are outside of docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 tests use this module without MkDocs

    for source, page in INCLUDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page with the site's links. A page without sections has no table of contents, so its tables are wider."""
    if "\n## " not in markdown:
        page.meta.setdefault("hide", ["toc"])
    return relinked(markdown, source_of(page.file.src_uri))


def on_page_content(html: str, **_: Any) -> str:
    """The page's HTML with places where long names in tables may break."""
    return breakable(html)


def breakable(html: str) -> str:
    """HTML in which a name above LONGEST_NAME in a table cell may break, before a capital letter or after a dot."""

    def broken(found: re.Match[str]) -> str:
        return found[0] if len(found[0]) <= LONGEST_NAME else _BREAK.sub("<wbr>", found[0])

    return _NAME.sub(broken, html)


def source_of(page: str) -> str:
    """The file of the repository from which a page of the site is made."""
    return _SOURCES.get(page, f"{DOCS}/{page}")


def page_of(source: str) -> str | None:
    """The page (or picture) of the site that is made from a file of the repository; None if there is none."""
    if source in INCLUDED:
        return INCLUDED[source]
    return source.removeprefix(f"{DOCS}/") if source.startswith(f"{DOCS}/") else None


def relinked(markdown: str, source: str) -> str:
    """The text of the file `source` with links to pages of the site, outside of code."""
    here = posixpath.dirname(page_of(source) or "")

    def link(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        name, mark, anchor = target.partition("#")
        if "://" in target or not name:
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        page = page_of(file)
        if page is not None:
            return f"{picture}[{text}]({os.path.relpath(page, here or '.')}{mark}{anchor})"
        if (ROOT / file).exists():
            return text if " " in text or "`" in text else f"`{text}`"
        return found[0]  # MkDocs warns about it

    return "".join(
        part if at % 2 else _LINK.sub(link, part) for at, part in enumerate(_FENCED.split(markdown))
    )
