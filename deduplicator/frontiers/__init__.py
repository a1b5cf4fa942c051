"""A partition's frontier: where it is stored, and how the copy of a partition starts from it."""
