"""What mkdocs does here beyond its configuration: a navigation by folders, and links that hold.

- The navigation lists the folders of ``docs/`` by their kind, and pages by their place in it.
- A link to a file outside ``docs/`` leads to the repository, where one is known, else to nowhere.
- A page whose lists or tables read otherwise here than on GitHub is an error.
- So is a page that would load something from elsewhere when it is read.

mkdocs is not imported: these types say which part of its own is used.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any, Protocol

from markdown_it import MarkdownIt


class Config(Protocol):
    """mkdocs' configuration."""

    docs_dir: str
    site_dir: str
    nav: Any


class File(Protocol):
    """mkdocs' file."""

    src_uri: str


class Page(Protocol):
    """mkdocs' page."""

    file: File
    markdown: str | None
    meta: dict[str, Any]


log = logging.getLogger("mkdocs.hooks.warpwatch")

KINDS = {
    "tutorials": "Tutorials",
    "guides": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "kernels": "Kernels",
    "results": "Results",
}
_DIARY = "log/"  # outside the navigation: pages that stay as they were
LAST = {"glossary.md": "Glossary", "faq.md": "FAQ"}
# Within a folder these come first, in this order; the others follow by name.
FIRST = (
    "index.md",
    "first-report.md",
    "your-own-package.md",
    "first-flagged-pull-request.md",
    "command-line.md",
    "attention.md",
    "matmul.md",
    "architecture.md",
    "how-it-judges.md",
)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
# What a browser loads by itself; a link that a reader follows is none of it.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'>]+"
    r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preconnect|icon)[^>]*\bhref=[\"']?(?:https?:)?//[^\"'>]+"
    r"|@import[^;]*https?:[^;]*|url\([\"']?(?:https?:)?//[^)]*"
)
_COMMONMARK = MarkdownIt("commonmark").enable("table")


def on_config(config: Config) -> None:
    """Make the navigation of the folders that are there.

    Args:
        config: The site's configuration, whose navigation is set.
    """
    config.nav = navigation(Path(config.docs_dir))


def navigation(docs: Path) -> list[Any]:
    """List the pages by kind.

    Args:
        docs: The folder of the documents.

    Returns:
        A navigation as mkdocs takes it.
    """
    nav: list[Any] = [{"Start here": "index.md"}] if (docs / "index.md").exists() else []
    for folder, title in KINDS.items():
        if pages := _listed(docs, docs / folder):
            nav.append({title: pages})
    nav += [{title: name} for name, title in LAST.items() if (docs / name).exists()]
    return nav


def _listed(docs: Path, folder: Path) -> list[Any]:
    pages: list[Any] = [
        page.relative_to(docs).as_posix() for page in sorted(folder.glob("*.md"), key=_place)
    ]
    for inner in sorted(one for one in folder.glob("*/") if any(one.glob("*.md"))):
        title = inner.name.replace("-", " ").capitalize()
        pages.append({title: _listed(docs, inner)})
    return pages


def _place(page: Path) -> tuple[int, str]:
    return (FIRST.index(page.name) if page.name in FIRST else len(FIRST), page.name)


def on_page_markdown(markdown: str, page: Page, config: Config, files: Any) -> str:
    """Turn links that leave ``docs/`` into links to the repository.

    Args:
        markdown: The page's text.
        page: The page.
        config: The site's configuration.
        files: The site's files.

    Returns:
        The text with links that hold on the site.
    """
    docs = Path(config.docs_dir)
    source = docs / page.file.src_uri
    diary = page.file.src_uri.startswith(_DIARY)
    if diary:
        page.meta["search"] = {"exclude": True}

    def held(found: re.Match[str]) -> str:
        text, link = found[2], found[3]
        if found[1]:
            picture = not diary or (source.parent / link).exists()
            return found[0] if picture else text
        if "://" in link or link.startswith("mailto:"):
            return found[0]
        target = (source.parent / link).resolve()
        if target.is_relative_to(docs):
            # The diary says what was, and its links led to pages of its day.
            return text if diary and not target.exists() else found[0]
        if not target.exists():
            return text if diary else found[0]
        return _outside(text, target.relative_to(docs.parent).as_posix())

    return _outside_code(markdown, lambda prose: _LINK.sub(held, prose))


def _outside(text: str, path: str) -> str:
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"[{text}]({server}/{repository}/blob/HEAD/{path})"
    return text if f"`{path}`" in text else f"{text} (`{path}`)"


def _outside_code(markdown: str, change: Any) -> str:
    parts, at = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(markdown[at:])])


def on_page_content(html: str, page: Page, config: Config, files: Any) -> str:
    """Compare the page with the reading of CommonMark, which GitHub shows.

    Args:
        html: The page's content.
        page: The page.
        config: The site's configuration.
        files: The site's files.

    Returns:
        The content as it is. A difference is a warning, which ends a strict build.
    """
    plain_page = page.markdown is not None and ":::" not in page.markdown
    if plain_page and not page.file.src_uri.startswith(_DIARY):
        plain = _COMMONMARK.render(page.markdown or "")
        for tag in ("li", "table", "blockquote"):
            here, there = (len(re.findall(rf"<{tag}[ >]", one)) for one in (html, plain))
            if here != there:
                log.warning(
                    f"{page.file.src_uri}: {here} <{tag}> on the site and {there} on GitHub: put "
                    "an empty line before a list, and indent parts of an entry by four spaces"
                )
    return html


def on_post_build(config: Config) -> None:
    """Check that no page loads anything from elsewhere.

    Args:
        config: The site's configuration. Each such place is a warning, which ends a strict build.
    """
    site = Path(config.site_dir)
    for path in sorted(one for end in ("html", "css") for one in site.rglob(f"*.{end}")):
        for found in loaded(path.read_text(encoding="utf-8")):
            log.warning(f"{path.relative_to(site)}: loads from elsewhere when read: {found}")


def loaded(text: str) -> list[str]:
    """Find what a browser would load from elsewhere.

    Args:
        text: HTML or CSS.

    Returns:
        The tags and rules, shortened.
    """
    return [found[0][:200] for found in _LOADED.finditer(text)]
