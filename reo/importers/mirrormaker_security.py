"""TLS and SASL of a cluster of MirrorMaker 2's, as settings of reo: Java's names, JAAS, key stores.

reo reads certificates from PEM files (KIP-651 has them for Java too). What is in a store of Java's
own is not converted; a note has the command.
"""

from __future__ import annotations

import re

from common.settings.security import LOGIN_MODULES
from reo.importers.imported_settings import Table

OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;]+)""")
CREDENTIALS = {
    "sasl_username": ("username", "clientId", "oauth.client.id"),
    "sasl_password": ("password", "clientSecret", "oauth.client.secret"),
    "sasl_oauth_token_url": ("oauth.token.endpoint.uri",),
    "sasl_oauth_scope": ("scope", "oauth.scope"),
}
"""Options of the login modules; those with `oauth.` are Strimzi's."""
PROPERTIES = {
    "sasl_username": "sasl.oauthbearer.client.credentials.client.id",
    "sasl_password": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl_oauth_token_url": "sasl.oauthbearer.token.endpoint.url",
    "sasl_oauth_scope": "sasl.oauthbearer.scope",
}
"""The same as properties of their own (KIP-1139), which win."""
P12_TO_PEM = (
    "keytool -importkeystore -srckeystore {file} -destkeystore a.p12 -deststoretype PKCS12;"
    " openssl pkcs12 -in a.p12 -nodes -out reo.pem"
)
RAW = (
    "no setting of reo: stage one's clients take it as a raw option, stage two's are librdkafka,"
    " with options of its own"
)


def convert_security(table: Table, cluster: str, side: str, with_secrets: bool) -> None:
    """All security properties that begin with `cluster`, as settings of `side`."""
    values = table.into.values
    protocol = str(table.take(f"{cluster}security.protocol") or "PLAINTEXT").upper()
    values[f"{side}.security_protocol"] = protocol
    for kind, is_used in (("sasl.", "SASL" in protocol), ("ssl.", "SSL" in protocol)):
        for key in [key for key in table.left if key.startswith(cluster + kind)]:
            if not is_used:
                table.drop(key, f"{side}.security_protocol is {protocol}, so it is not used")
    if "SASL" in protocol:
        _convert_sasl(table, cluster, side, with_secrets)
    if protocol.endswith("SSL"):
        _convert_tls(table, cluster, side)
    for key in [key for key in table.left if re.match(rf"{cluster}(sasl|ssl)\.", key)]:
        table.drop(key, RAW)


def parse_jaas(text: str) -> dict[str, str]:
    """The options of a login module, as java.io.StreamTokenizer reads quotes."""
    return {
        name: re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
        for name, value in OPTION.findall(text)
    }


def _convert_sasl(table: Table, cluster: str, side: str, with_secrets: bool) -> None:
    values, jaas_key = table.into.values, f"{cluster}sasl.jaas.config"
    mechanism = table.take(f"{cluster}sasl.mechanism") or "GSSAPI"
    if mechanism not in LOGIN_MODULES:
        table.note(
            f"{cluster}sasl.mechanism",
            f"one of {', '.join(LOGIN_MODULES)} is expected, not {mechanism}",
        )
    else:
        values[f"{side}.sasl_mechanism"] = mechanism
    jaas = parse_jaas(table.take(jaas_key) or "")
    table.drop(f"{cluster}sasl.login.callback.handler.class", "follows from the mechanism")
    for setting, options in CREDENTIALS.items():
        key, name = f"{cluster}{PROPERTIES[setting]}", f"{side}.{setting}"
        value = table.take(key)
        if not value:
            key, value = jaas_key, next((jaas[option] for option in options if option in jaas), "")
        if value and "${" in value:
            table.note(key, f"{value} is a reference, which reo does not resolve: set {name}")
        elif value and setting == "sasl_password" and not with_secrets:
            table.note_secret(key, name)
        elif value:
            values[name] = value


def _convert_tls(table: Table, cluster: str, side: str) -> None:
    values = table.into.values
    for store, settings, command in (
        ("truststore", ("ssl_ca_file",), "keytool -list -rfc -keystore {file} >ca.pem"),
        ("keystore", ("ssl_certificate_file", "ssl_key_file"), P12_TO_PEM),
    ):
        names = " and ".join(f"{side}.{setting}" for setting in settings)
        key = f"{cluster}ssl.{store}.location"
        file = table.take(key)
        kind = str(table.take(f"{cluster}ssl.{store}.type") or "JKS").upper()
        if file and kind == "PEM":
            values |= dict.fromkeys((f"{side}.{setting}" for setting in settings), file)
        elif file:
            table.note(
                key, f"{kind}: make it PEM ({command.format(file=file)}), and set {names} to that"
            )
        table.drop(
            f"{cluster}ssl.{store}.certificates {cluster}ssl.{store}.certificate.chain"
            f" {cluster}ssl.{store}.key",
            f"write it into a file, and set {names} to that",
        )
        table.drop(f"{cluster}ssl.{store}.password", "a PEM file has none")
    table.drop(f"{cluster}ssl.key.password", "encrypted keys are not taken: decrypt it by openssl")
    if table.left.pop(f"{cluster}ssl.endpoint.identification.algorithm", "https") != "https":
        table.note(
            f"{cluster}ssl.endpoint.identification.algorithm",
            "the host name in a broker's certificate is checked: docs/how-to/secure.md",
        )
