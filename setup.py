"""What pyproject.toml cannot say: stage two's compiled path is a plain shared library for ctypes,
so one wheel fits every Python on its kind of machine.

reo runs without it (deduplicator/compiled_path.py), so a machine without a compiler builds the
rest.
"""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform (PEP 425)."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            "deduplicator._compiled_path",
            ["deduplicator/compiled_path.c"],
            extra_compile_args=["-O2", "-std=c11"],
            libraries=["dl"],
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": PlatformWheel},
    options={"build": {"build_base": "build/.wheel"}},  # build/ is a folder of the repository
)
