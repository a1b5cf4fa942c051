"""The compiled path, built with AddressSanitizer and UndefinedBehaviorSanitizer: a process that
loads it ends with a report when it reads or writes a byte that is not its own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "deduplicator" / "compiled_path.c"
LIBRARY = "_compiled_path.so"
FLAGS = (
    "-std=c11",
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fPIC",
)


def build_sanitized(folder: Path, source: str) -> None:
    """Build this C file; `deduplicator.compiled_path.FOLDER` says which folder's is loaded.

    The library is not linked with the compiler's sanitizer: the one that its process has
    (`build_environment`) serves it, be it the compiler's or the fuzzer's.
    """
    file = folder / "compiled_path.c"
    file.write_text(source)
    compiled = file.with_suffix(".o")
    subprocess.run(["cc", *FLAGS, "-c", str(file), "-o", str(compiled)], check=True)
    subprocess.run(["cc", "-shared", str(compiled), "-o", str(folder / LIBRARY)], check=True)


def find_compiler_sanitizers() -> list[str]:
    """The libraries of the compiler."""
    return [
        subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]


def build_environment(libraries: list[str]) -> dict[str, str]:
    """What a process needs that loads it: these libraries of the sanitizers before all others.
    Python's own leaks are not looked for.
    """
    return {
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        # Python allocates so often that the default quarantine and stacks need 15 MB a second
        "ASAN_OPTIONS": (
            "detect_leaks=0:abort_on_error=0:quarantine_size_mb=16:malloc_context_size=3"
        ),
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
