"""A cluster in the settings. `common.source_pool` asks several source clusters."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from common.settings.security import Security

MSK_ADDRESS = re.compile(r"[.]kafka(?:-serverless)?[.]([a-z0-9-]+)[.]amazonaws[.]com")
"""In the name of an Amazon MSK broker: its region."""


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

    def __post_init__(self) -> None:
        """The region that signs AWS_MSK_IAM's tokens can follow from the addresses."""
        region = MSK_ADDRESS.search(self.bootstrap_servers)
        if self.security.has_iam and not self.security.sasl_aws_region and region:
            self.security = replace(self.security, sasl_aws_region=region[1])
