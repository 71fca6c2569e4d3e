"""What ``init`` proposes: found by reading sources, none of which is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_SKIPPED = {"tests", "test", "docs", "build", "dist", "examples", "benchmarks", "benchmark"}
_LARGEST_BYTES = 2_000_000
# By the parameter's name: a guess that the user looks at.
_SCALARS = {"eps": "1e-6", "epsilon": "1e-6", "scale": "1.0", "alpha": "1.0", "beta": "0.0"}
_VECTORS = {"weight", "bias", "w", "gamma", "beta_vector", "ln_weight", "ln_bias"}
_TENSOR, _VECTOR = "bf16[4096,4096]", "bf16[4096]"
_LABELS = {"target", "targets", "label", "labels", "indices", "ids", "input_ids", "index"}
_SWITCHES = re.compile(r"(is|use|has|with|in)_|causal$|training$|inplace$|log_")
# What tensors of more dimensions are tried as where two do not do: heads, sequences, one dimension.
_OTHER_SHAPES = ("bf16[2,1024,16,128]", "bf16[4,2048,1024]", "bf16[4096]")


@dataclass(frozen=True)
class Found:
    """A package with Triton code: its import name, and its folder in the repository."""

    root: Path
    name: str
    path: str


@dataclass(frozen=True)
class Launcher:
    """A public function that launches a kernel, with arguments that are guessed; with a backward
    where it is differentiable."""

    name: str
    call: str
    args: str
    backward: bool = False

    @property
    def variants(self) -> tuple[str, ...]:
        """The arguments with other shapes, for who finds that these do not fit."""
        if _TENSOR not in self.args:
            return ()
        return tuple(self.args.replace(_TENSOR, shape) for shape in _OTHER_SHAPES)


def find_packages(root: Path) -> list[Found]:
    """Find the packages of a repository that import Triton.

    Args:
        root: The repository's folder; ``src/`` in it is looked into as well.

    Returns:
        One for each top-level package, by name. A folder without ``__init__.py`` counts as a
        namespace, and the package below it is found.
    """
    found = []
    for base in (root / "src", root):
        for folder in sorted(base.iterdir()) if base.is_dir() else []:
            if folder.is_dir() and folder.name.isidentifier() and folder.name not in _SKIPPED:
                if base == root and folder.name == "src":
                    continue
                for place in _packages_below(folder):
                    if any(_uses_triton(one) for one in _modules(place)):
                        name = ".".join(place.relative_to(base).parts)
                        found.append(Found(root, name, place.relative_to(root).as_posix()))
    return found


def _packages_below(folder: Path) -> Iterator[Path]:
    """The folder itself if it holds modules, else the packages below a namespace."""
    if any(folder.glob("*.py")):
        yield folder
        return
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and inner.name.isidentifier():
            yield from _packages_below(inner)


def _modules(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts[:-1]
        private = any(one.startswith("_") for one in inside)
        if private or _SKIPPED & set(inside) or path.stat().st_size > _LARGEST_BYTES:
            continue
        yield path


def _uses_triton(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.search(r"^\s*(from\s|import\s(.*,)?)\s*triton\b", text, re.MULTILINE) is not None


def launchers(found: Found, most: int) -> list[Launcher]:
    """Find the public functions of a package that launch kernels.

    Args:
        found: The package.
        most: How many are returned.

    Returns:
        Functions in which a kernel is called with a grid, and those that call them in the same
        module, each with arguments guessed from the names of its parameters.
    """
    proposed: list[Launcher] = []
    folder = found.root / found.path
    for path in _modules(folder):
        if not _uses_triton(path):
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        module = ".".join((found.name, *(one for one in parts if one != "__init__")))
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        differentiable = list(_differentiable(tree))
        found_here = [
            *(Launcher(_plain(one.name), f"{module}:{one.name}.apply", args, backward=True)
              for one, args in differentiable),
            *(Launcher(one.name, f"{module}:{one.name}", _guessed(one))
              for one in ([] if differentiable else _launching(tree))),
        ]  # fmt: skip
        for one in found_here:
            name = f"{one.name}-bf16"
            if any(other.name == name for other in proposed):
                name = f"{parts[-1].strip('_')}-{name}".lstrip("-")
            proposed.append(replace(one, name=name))
    names = [one.name for one in proposed]
    unique = [one for one in proposed if names.count(one.name) == 1]
    return sorted(unique, key=lambda one: not one.backward)[:most]


def _differentiable(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, str]]:
    """The public autograd functions of a module, with arguments for what ``forward`` needs."""
    for one in tree.body:
        if not isinstance(one, ast.ClassDef) or one.name.startswith("_"):
            continue
        if not any(ast.unparse(base).rpartition(".")[2] == "Function" for base in one.bases):
            continue
        for method in one.body:
            if isinstance(method, ast.FunctionDef) and method.name == "forward":
                yield one, _guessed(method, skip=1)


def _plain(name: str) -> str:
    """``LigerRMSNormFunction`` as a series is called: ``liger_rms_norm``."""
    words = re.sub(r"(Function|AutoGrad|Autograd|Fn|Func)$", "", name) or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()


def _launching(tree: ast.Module) -> list[ast.FunctionDef]:
    """Public functions without a decorator of Triton that launch, directly or by another one."""
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    host = [one for one in functions if not _is_kernel(one)]
    launching = {one.name for one in host if _launches(one)}
    calling = {one.name for one in host if _called(one) & launching}
    public = [one for one in host if not one.name.startswith("_")]
    return [one for one in public if one.name in launching | calling]


def _is_kernel(function: ast.FunctionDef) -> bool:
    words = " ".join(ast.unparse(one) for one in function.decorator_list)
    return re.search(r"\b(jit|autotune|heuristics)\b", words) is not None


def _launches(function: ast.FunctionDef) -> bool:
    """Whether it holds ``kernel[grid](...)``."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
        for node in ast.walk(function)
    )


def _called(function: ast.FunctionDef) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def _guessed(function: ast.FunctionDef, skip: int = 0) -> str:
    """Arguments for the parameters that have no default, ``skip`` of them passed over."""
    given = function.args
    every = [*given.posonlyargs, *given.args]
    needed = [_guess(one) for one in every[skip : len(every) - len(given.defaults)]]
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is None:
            needed.append(f"{one.arg}={_guess(one)}")
    return " ".join(needed)


def _guess(parameter: ast.arg) -> str:
    kind = ast.unparse(parameter.annotation) if parameter.annotation else ""
    name = parameter.arg.lower().strip("_")
    if "Optional" in kind or "None" in kind:
        return "none"
    if name in _SCALARS or kind == "float":
        return _SCALARS.get(name, "1.0")
    if kind == "int" or name.startswith(("num_", "n_")):
        return "-100" if name == "ignore_index" else "8" if "group" in name else "128"
    if kind == "bool" or _SWITCHES.search(name):
        return "false"
    if kind == "str" or name == "reduction":
        return "mean"
    if name in _LABELS:
        return "i64[4096]"
    return _VECTOR if name in _VECTORS or name.endswith(("weight", "bias")) else _TENSOR


def written(found: Found, calls: Sequence[Launcher], problems: Mapping[str, str]) -> str:
    """Write the configuration.

    Args:
        found: The package.
        calls: The workloads that are proposed.
        problems: Why some of them cannot be recorded, by name: those become comments.

    Returns:
        The text of ``warpwatch.toml``.
    """
    lines = [
        "# What Warpwatch measures here. `warpwatch doctor` says whether it is right.",
        "",
        "# What every commit is compiled for; all targets where this is left out.",
        'targets = ["sm_90", "gfx942"]',
        "",
        "[package]",
        f'name = "{found.name}"',
        f'path = "{found.path}"',
        "",
        "# Each call is a series. Arguments are tensors, as dtype[shape], or Python literals;",
        "# `backward = true` measures gradients as well. The arguments below are guessed.",
    ]
    if not calls:
        lines += ["#", "# [[workload]]", '# name = "gelu-bf16-4096"']
        lines += [f'# call = "{found.name}.ops:gelu"', f'# args = "{_TENSOR}"']
    good = [one for one in calls if one.name not in problems]
    for one in (*good, *(one for one in calls if one.name in problems)):
        hidden = "# " if one.name in problems else ""
        lines.append("")
        if hidden:
            lines.append(f"# Not recorded ({problems[one.name][:150]}): mend its arguments.")
        lines += [
            f"{hidden}[[workload]]",
            f'{hidden}name = "{one.name}"',
            f'{hidden}call = "{one.call}"',
            f'{hidden}args = "{one.args}"',
            *([f"{hidden}backward = true"] if one.backward else []),
        ]
    return "\n".join(lines) + "\n"
