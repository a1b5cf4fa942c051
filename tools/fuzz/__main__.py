"""`python -m tools.fuzz`: every target with atheris, one after the other; `--target`: one of them;
`--seconds`: how long each.

libFuzzer ends the process that it runs in, so each target has a process of its own; it prints
executions, coverage and, on a finding, the input. The corpus that grows is kept in `build/.fuzz`,
so the next run goes on where this one ends.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from tools.fuzz import sanitizers

CORPUS = Path(__file__).parents[2] / "build" / ".fuzz"
SANITIZED = "envelope"
"""The target that runs C code, which sanitizers end at a byte that is not its own."""
NAMES = (SANITIZED, "records", "metadata", "environment", "settings_file")
SANITIZED_FOLDER = CORPUS / "sanitized"
INPUT_BYTES_MAX = 2_000
SLOW_S = 10
UNDER_TEST = ["common", "deduplicator"]
"""Not dynaconf: it has many times the lines, and the fuzzer would spend its time there."""


def run_target(name: str, seconds: int) -> None:
    """Run one target; does not return."""
    # installed by `make fuzz` alone
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with atheris.instrument_imports(include=UNDER_TEST):
        from deduplicator import compiled_path
        from tools.fuzz import seeds, targets

    if name == SANITIZED:
        compiled_path.FOLDER = SANITIZED_FOLDER
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds.SEEDS[name]):
        (folder / f"seed-{number}").write_bytes(seed)
    words = CORPUS / f"{name}.words"
    words.write_text("".join(f'"{quote_word(word)}"\n' for word in seeds.WORDS[name]))
    atheris.Setup(
        [
            f"fuzz {name}",
            str(folder),
            f"-dict={words}",
            f"-max_total_time={seconds}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-timeout={SLOW_S}",
            f"-artifact_prefix={CORPUS}/{name}-",
            "-print_final_stats=1",
            "-verbosity=1",
        ],
        targets.TARGETS[name],
    )
    atheris.Fuzz()


def prepare_sanitizers() -> dict[str, str]:
    """Build the library with sanitizers; returns the variables that its process needs."""
    SANITIZED_FOLDER.mkdir(parents=True, exist_ok=True)
    sanitizers.build_sanitized(SANITIZED_FOLDER, sanitizers.SOURCE.read_text())
    # the one that has libFuzzer as well: with the compiler's, libFuzzer would see no coverage
    atheris = importlib.util.find_spec("atheris")
    assert atheris is not None
    assert atheris.origin is not None
    library = Path(atheris.origin).parent.parent / "asan_with_fuzzer.so"
    return sanitizers.build_environment([str(library)])


def quote_word(word: bytes) -> str:
    """A word as libFuzzer's dictionaries have it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


def main() -> int:
    """Run the chosen targets; returns 1 when an input breaks an invariant."""
    arguments = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    arguments.add_argument("--target", choices=NAMES, help="run only this target")
    arguments.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    arguments.add_argument(
        "--here", action="store_true", help="run in this process, without a summary"
    )
    options = arguments.parse_args()
    if options.here:
        run_target(options.target, options.seconds)
    failed = []
    for name in [options.target] if options.target else NAMES:
        print(f"fuzz: {name}, {options.seconds} s", flush=True)
        process = subprocess.run(
            [
                sys.executable,
                "-m",
                "tools.fuzz",
                "--here",
                "--target",
                name,
                "--seconds",
                str(options.seconds),
            ],
            env=os.environ | (prepare_sanitizers() if name == SANITIZED else {}),
            check=False,
        )
        if process.returncode:
            failed.append(name)
    print(
        f"fuzz: {', '.join(failed)} broke; the inputs are in {CORPUS}"
        if failed
        else "fuzz: every invariant held"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
