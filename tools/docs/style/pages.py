"""Which pages the style check reads."""

from __future__ import annotations

from pathlib import Path

from tools.root import ROOT

# The diary says what was, in the words of its day.
_EXEMPT = ("docs/log/",)
# Pages of results and releases name commits and days.
_OF_HISTORY = ("docs/results/", "CHANGELOG.md", "reports/published/")


def all_pages() -> list[Path]:
    """Every page that a reader may meet.

    Returns:
        Markdown files of the root, docs/, reports/published/ and .github/, without the diary.
    """
    found = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "reports" / "published").glob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
    ]
    return sorted(page for page in found if not name(page).startswith(_EXEMPT))


def of_history(page: Path) -> bool:
    """Say whether hashes and dates belong on a page.

    Args:
        page: The page's file.

    Returns:
        True for results and the list of releases.
    """
    return name(page).startswith(_OF_HISTORY)


def name(page: Path) -> str:
    """Name a page by its path in the checkout.

    Args:
        page: The page's file.

    Returns:
        The path with slashes; a file outside the checkout keeps its own.
    """
    page = page.resolve()
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.as_posix()
