"""A cluster in the settings. `common.source_pool` asks several source clusters."""

from __future__ import annotations

from dataclasses import dataclass

from common.settings.security import Security


@dataclass
class Cluster:
    """The source or the destination cluster; messages call it by its `name`."""

    name: str
    bootstrap_servers: str
    security: Security
    number: int = 0
    """Of a source candidate, from 1 on, in the order of the setting."""
    handshake_error: str = ""
    """Why the TLS or SASL handshake failed, on either side. The clients set it
    (`common.kafka.client_errors`), because librdkafka reports it only in `error_cb`.
    """
    is_refused: bool = False
    """Whether that was final: the credentials or the certificate; set in the same way."""
    connection_error: str = ""
    """Why no connection could be opened; set in the same way."""
    throttled_s: float = 0.0
    """For how long a broker said last that it reads no more requests of this client (KIP-599)."""
