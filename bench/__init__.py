"""Figures, printed and never asserted: `make bench`. Brokers, service and load are real; what is measured is said beside each number."""
