"""`reo config import`: other programs' configurations as settings of reo."""
