"""Run the code blocks of tutorials and guides.

    python -m tools.docs.code [PAGE ...] [--list] [--show]

Each page runs in a folder of its own. ``--list`` says for each block whether it is run, and why
not. ``--show`` prints the output of each command. It exits with 1 where a block fails, or is not
run and gives no reason.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tools.docs.code import blocks, running
from tools.docs.style.pages import name
from tools.root import ROOT

FOLDERS = ("tutorials", "guides")


def all_pages() -> list[Path]:
    """Every tutorial and guide.

    Returns:
        Their files.
    """
    return sorted(page for one in FOLDERS for page in (ROOT / "docs" / one).glob("*.md"))


def run_page(page: Path, home: Path, done: dict[Path, Path]) -> list[str]:
    """Run a page after the page that it begins with.

    Args:
        page: The page's file.
        home: A folder for all pages of this run.
        done: The folders of pages that ran; the page's own is added.

    Returns:
        The output of each command.
    """
    page = page.resolve()
    steps = blocks.read(page)
    folder = home / page.parent.name / page.stem
    if steps.after is not None:
        if steps.after not in done:
            run_page(steps.after, home, done)
        shutil.copytree(done[steps.after], folder, symlinks=True)
    else:
        folder.mkdir(parents=True)
    printed = running.run(page, steps, folder, running.environment(home / "home"))
    done[page] = folder
    return printed


def main(arguments: list[str] | None = None) -> int:
    """Run pages, or list their blocks.

    Args:
        arguments: Of the command line; those of the process without.

    Returns:
        0; 1 where a block failed or gives no reason why it is not run.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs.code", description="Run code blocks of tutorials and guides."
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    parser.add_argument("--list", action="store_true", help="say what is run, and run nothing")
    parser.add_argument("--show", action="store_true", help="print the output of each command")
    options = parser.parse_args(arguments)
    failed = False
    done: dict[Path, Path] = {}
    with tempfile.TemporaryDirectory(prefix="documents-") as home:
        for page in options.pages or all_pages():
            steps = blocks.read(page)
            for block in steps.unexplained:
                failed = True
                print(f"{name(page)}:{block.line}: not run, and no comment says why")
            if options.list:
                for block in steps.blocks:
                    state = "runs" if block.runs else block.file or block.reason or block.language
                    print(f"{name(page)}:{block.line}: {state}")
            elif steps.by:
                print(f"{name(page)}: run by {steps.by}")
            elif page.resolve() in done:
                print(f"{name(page)}: ran, another page begins with it")
            elif any(block.runs for block in steps.blocks):
                try:
                    printed = run_page(page, Path(home), done)
                except running.BlockError as error:
                    failed = True
                    print(error, file=sys.stderr)
                else:
                    print(f"{name(page)}: {len(printed)} blocks ran")
                    print("\n".join(printed) if options.show else "", end="")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
