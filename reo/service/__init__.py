"""The service: starts both stages, restarts them, and answers on one HTTP port.

In the order of a start:

    startup.py          what is checked and created before any process is started
    supervisor.py       the processes; child.py: one of them; restarts.py: when it is started again
    health.py           the HTTP server: metrics, health and readiness; service_status.py: /status
    progress_log.py     what the log says of the work: counts, what waits, that it has caught up
"""
