"""Tokens for Amazon MSK with IAM (`sasl_mechanism=AWS_MSK_IAM`), signed with the credentials that
AWS's default chain finds: variables, profile, web identity, container, machine.

A token is a URL that is signed in advance, good for 15 minutes. confluent-kafka calls `renew_token`
at four fifths of that, in a thread of librdkafka's own: clients that nobody polls renew theirs too.
AWS's library signs; it is the extra `msk`, because most users have no MSK.
"""

from __future__ import annotations

import importlib.util
import logging
from functools import cache, partial
from typing import Any

from common.errors import AccessRefused
from common.settings.clusters import Cluster

log = logging.getLogger(__name__)
LIBRARY = "aws_msk_iam_sasl_signer"


def is_installed() -> bool:
    """Whether AWS's library is there."""
    return importlib.util.find_spec(LIBRARY) is not None


def build_options(cluster: Cluster) -> dict[str, Any]:
    """What signs tokens for a client of librdkafka, if the cluster asks for them. AccessRefused
    when there are no credentials: the client would wait for 10 s and not say why.
    """
    if not cluster.security.has_iam:
        return {}
    sign_token(cluster)
    return {"oauth_cb": partial(renew_token, cluster)}


def renew_token(cluster: Cluster, _config: str) -> tuple[str, float]:
    """Called by confluent-kafka; after an error it asks again in 10 s."""
    try:
        return sign_token(cluster)
    except AccessRefused as failed:
        log.warning("%s. The client goes on with the token that it has", failed)
        raise


def sign_token(cluster: Cluster) -> tuple[str, float]:
    """A token, and until when it is good, in seconds since 1970."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    try:
        token, expiry_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            cluster.security.sasl_aws_region, _create_provider()
        )
    except Exception as failed:  # the library's, botocore's and those of its HTTP client
        raise AccessRefused(
            f"no token could be signed for the {cluster.name} cluster: {failed}",
            "AWS's default chain has to find credentials: AWS_ACCESS_KEY_ID …, AWS_PROFILE, or a"
            " role of this pod, container or machine",
        ) from None
    return token, expiry_ms / 1000


@cache
def _create_provider() -> Any:
    """The default chain for the library, which would walk through it for every token. One that has
    found temporary credentials renews them some minutes before they are over.
    """
    import botocore.session
    from botocore.credentials import CredentialProvider

    # at DEBUG it logs what it signs, with the session's token
    logging.getLogger("botocore").setLevel(logging.WARNING)
    session = botocore.session.Session()

    class DefaultChain(CredentialProvider):  # type: ignore[misc]
        """What the library takes."""

        def load(self) -> Any:
            """The credentials of this moment; the session keeps what it has found."""
            credentials = session.get_credentials()
            if credentials is None:
                raise LookupError("there are no AWS credentials")
            return credentials.get_frozen_credentials()

    return DefaultChain()
