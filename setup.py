"""The one thing that pyproject.toml cannot say: stage two's hot path is a plain shared library, for ctypes.

reo runs without it (deduplicator/compiled.py), so a machine without a compiler builds the rest.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("deduplicator._hot_path", ["deduplicator/hot_path.c"], extra_compile_args=["-O2", "-std=c11"], libraries=["dl"], optional=True)])
