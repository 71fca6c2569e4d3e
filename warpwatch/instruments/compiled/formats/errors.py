"""What an error says in one line, compilers' errors among them, and where it happened."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from pathlib import Path

_HARNESS = "warpwatch"
_FOLDER = Path(__file__).resolve().parents[3]
_GENERATORS = {
    "cutlass": "the CuTe DSL",
    "cuda.tile": "cuTile",
    "cuda": "CUDA Python",
    "cupy": "CuPy",
    "numba.cuda": "Numba",
    "torch.utils.cpp_extension": "a CUDA extension",
}
_LIBRARIES = ("torch", "triton", "importlib", _HARNESS)


def one_line(error: BaseException) -> str:
    """The kind of an error, for code in Triton where it is, and the line of it that says most."""
    where = ""
    # Evidence is read without Triton; where one of its errors is at hand, so is its module.
    compilers = sys.modules.get("triton.compiler.errors")
    while compilers is not None and isinstance(error, compilers.CompilationError):
        line = getattr(error.node, "lineno", None)
        function = re.search(r"\bdef (\w+)", error.src or "")
        if line and function:
            where = f"line {line} of {function[1]}: "
        if error.error_message or error.__cause__ is None:
            break
        error = error.__cause__  # in a function the kernel calls
    said = getattr(error, "error_message", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line] or lines or ["no message"]
    return f"{type(error).__name__}: {where}{telling[0]}"[:300]


def _frames(error: BaseException) -> list[tuple[str, str, int]]:
    """Module, file and line of each frame, the innermost last."""
    return [
        (str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]


def _belongs(module: str, package: str) -> bool:
    return bool(package) and f"{module}.".startswith(f"{package}.")


def _is_library(module: str, file: str) -> bool:
    """Whether code is a library's or the harness's own, which may run as the main program."""
    own = module == "__main__" and Path(file).resolve().is_relative_to(_FOLDER)
    return own or module.split(".")[0] in _LIBRARIES


def passes_through(error: BaseException, package: str) -> bool:
    """Whether code of ``package`` was at work when ``error`` was raised."""
    return any(_belongs(module, package) for module, _, _ in _frames(error))


def is_unknown_option(error: BaseException, package: str) -> bool:
    """Whether a call gives a keyword that the package does not take, as a commit may lack it.

    Args:
        error: As it was caught.
        package: The measured package.

    Returns:
        False also where the package gives the keyword to its own function: that is its mistake.
    """
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None or not isinstance(error, TypeError):
        return False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if _belongs(str(frame.f_globals.get("__name__", "")), package):
            # A wrapper hands on what it was given.
            code = frame.f_code
            named = code.co_argcount + code.co_kwonlyargcount
            named += bool(code.co_flags & inspect.CO_VARARGS)
            if not code.co_flags & inspect.CO_VARKEYWORDS:
                return False
            return found[1] in frame.f_locals.get(code.co_varnames[named], ())
    return True


def of_inductor(error: BaseException) -> str:
    """Say in one line why Inductor gave up a function, where that is the error; empty elsewhere."""
    kinds = {f"{one.__module__}.{one.__qualname__}" for one in type(error).__mro__}
    if "torch._dynamo.exc.BackendCompilerFailed" not in kinds:
        return ""
    if "torch._inductor.exc.InductorError" not in kinds and "'inductor'" not in str(error):
        return ""  # another backend of torch.compile
    inner = getattr(error, "inner_exception", error)
    text = str(inner).splitlines()[0] if str(inner) else "no message"
    return f"{type(inner).__name__}: {text}"[:150]


def other_generator(error: BaseException) -> str:
    """Say that a call runs kernels that are not Triton's, where an error comes from their library.

    Args:
        error: As it was caught.

    Returns:
        One line, empty where no such library was at work.
    """
    for module, _, _ in _frames(error):
        for library, name in _GENERATORS.items():
            if _belongs(module, library):
                text = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
                return (
                    f"{name} makes kernels that are not recorded ({text[:100]}): write its cubins "
                    "to files, and give those to `warpwatch inspect FILE.cubin`"
                )
    return ""


def located(error: BaseException, package: str) -> str:
    """Say an error in one line, with the file and the line where it happened.

    Args:
        error: As it was caught.
        package: The measured package: its innermost frame is the place, else that of the code
            which is neither a library's nor the harness's.

    Returns:
        The kind of the error, its first line, and the place in parentheses where there is one.
    """
    text = str(error).splitlines()[0] if str(error) else "no message"
    said = f"{type(error).__name__}: {text}"[:220]
    if isinstance(error, SyntaxError) and error.filename:
        return said  # its text names the place
    frames = _frames(error)
    own = [one for one in frames if _belongs(one[0], package)]
    others = [one for one in frames if not _is_library(*one[:2])]
    for module, file, line in (own or others)[-1:]:
        path = Path(file)
        parts = module.split(".")
        depth = len(parts) if path.stem != "__init__" else len(parts) + 1
        return f"{said} ({'/'.join(path.parts[-depth:])}:{line})"
    return said
