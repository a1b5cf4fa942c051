"""What pyproject.toml cannot say: stage two's compiled path is a plain shared library for ctypes,
so one wheel fits every Python on its kind of machine; and README in a package has no relative
links, because a package index has no other file of the repository.

reo runs without it (deduplicator/compiled_path.py), so a machine without a compiler builds the
rest.
"""

import re
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform (PEP 425)."""
        return "py3", "none", super().get_tag()[2]


def read_readme() -> str:
    """README.md with its relative links and pictures led to where the documentation is served, or
    with their texts alone where it is not.
    """
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    served = project.get("urls", {}).get("Documentation", "").removesuffix("docs")
    link = r"(!?\[)([^]]*)\]\((?![a-z]+:|#)([^)]*)\)"
    return re.sub(link, rf"\1\2]({served}\3)" if served else r"\2", Path("README.md").read_text())


setup(
    long_description=read_readme(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "deduplicator._compiled_path",
            ["deduplicator/compiled_path.c"],
            extra_compile_args=["-O2", "-std=c11"],
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": PlatformWheel},
    options={"build": {"build_base": "build/.wheel"}},  # build/ is a folder of the repository
)
