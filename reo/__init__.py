"""reo: the command line, and the service that runs both stages: run, check, status, verify,
recover, cutover.
"""
