"""Figures, printed and never asserted: `make bench`. Brokers, service and load are real; each
figure has a label that says what was measured.
"""
