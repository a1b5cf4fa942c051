"""TLS and SASL of a cluster of MirrorMaker 2's, as settings of reo: Java's names, JAAS, key stores.

reo reads certificates from PEM files (KIP-651 has them for Java too). What is in a store of Java's
own is not converted; a note has the command.
"""

from __future__ import annotations

import re

from common.settings.security import LOGIN_MODULES
from reo.importers.imported_settings import ImportedSettings

OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;]+)""")
CREDENTIALS = {
    "sasl_username": ("client.credentials.client.id", "username", "clientId", "oauth.client.id"),
    "sasl_password": (
        "client.credentials.client.secret",
        "password",
        "clientSecret",
        "oauth.client.secret",
    ),
    "sasl_oauth_token_url": ("token.endpoint.url", "oauth.token.endpoint.uri"),
    "sasl_oauth_scope": ("scope", "scope", "oauth.scope"),
}
"""The property `sasl.oauthbearer.…` (KIP-1139), which wins, and the options of the login modules;
those with `oauth.` are Strimzi's.
"""
REFERENCE = re.compile(r"\$\{[^}]*\}")
EXTENSION = "extension_"
"""What the options of SASL extensions begin with (KIP-342)."""
P12_TO_PEM = (
    "keytool -importkeystore -srckeystore {file} -destkeystore a.p12 -deststoretype PKCS12;"
    " openssl pkcs12 -in a.p12 -nodes -out reo.pem"
)
RAW = (
    "no setting of reo: stage one's clients take it as a raw option, stage two's are librdkafka,"
    " with options of its own"
)


def convert_security(into: ImportedSettings, cluster: str, side: str) -> None:
    """All security properties that begin with `cluster`, as settings of `side`."""
    protocol = into.left.pop(f"{cluster}security.protocol", "PLAINTEXT").upper()
    into.values[f"{side}.security_protocol"] = protocol
    for kind, is_used in (("sasl", "SASL" in protocol), ("ssl", "SSL" in protocol)):
        if not is_used:
            into.drop(
                rf"{cluster}{kind}\..*",
                f"{side}.security_protocol is {protocol}, so it is not used",
            )
    if "SASL" in protocol:
        _convert_sasl(into, cluster, side)
    if protocol.endswith("SSL"):
        _convert_tls(into, cluster, side)
    into.drop(rf"{cluster}(sasl|ssl)\..*", RAW)


def parse_jaas(text: str) -> dict[str, str]:
    """The options of a login module, as java.io.StreamTokenizer reads quotes."""
    return {
        name: re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
        for name, value in OPTION.findall(text)
    }


def _convert_sasl(into: ImportedSettings, cluster: str, side: str) -> None:
    jaas_key = f"{cluster}sasl.jaas.config"
    mechanism = into.left.pop(f"{cluster}sasl.mechanism", "GSSAPI")
    if mechanism not in LOGIN_MODULES:
        into.note(
            f"{cluster}sasl.mechanism",
            f"one of {', '.join(LOGIN_MODULES)} is expected, not {mechanism}",
        )
    else:
        into.values[f"{side}.sasl_mechanism"] = mechanism
    jaas = parse_jaas(into.left.pop(jaas_key, ""))
    extensions = [
        f"{name.removeprefix(EXTENSION)}={value}"
        for name, value in jaas.items()
        if name.startswith(EXTENSION)
    ]
    if extensions:
        into.values[f"{side}.sasl_oauth_extensions"] = ",".join(extensions)
    into.drop(f"{cluster}sasl.login.callback.handler.class", "follows from the mechanism")
    if any(name.startswith("aws") for name in jaas):
        into.note(jaas_key, "credentials come from AWS's default chain: docs/how-to/secure.md")
    for setting, (own, *options) in CREDENTIALS.items():
        key, name = f"{cluster}sasl.oauthbearer.{own}", f"{side}.{setting}"
        value = into.left.pop(key, "")
        if not value:
            key, value = jaas_key, next((jaas[option] for option in options if option in jaas), "")
        if REFERENCE.search(value):
            into.note(key, f"its value is a reference, which reo does not resolve: set {name}")
        elif value:
            into.set(key, name, value)


def _convert_tls(into: ImportedSettings, cluster: str, side: str) -> None:
    for store, settings, command in (
        ("truststore", ("ssl_ca_file",), "keytool -list -rfc -keystore {file} >ca.pem"),
        ("keystore", ("ssl_certificate_file", "ssl_key_file"), P12_TO_PEM),
    ):
        names = " and ".join(f"{side}.{setting}" for setting in settings)
        key = f"{cluster}ssl.{store}.location"
        file = into.left.pop(key, "")
        kind = into.left.pop(f"{cluster}ssl.{store}.type", "JKS").upper()
        if file and kind == "PEM":
            into.values |= dict.fromkeys((f"{side}.{setting}" for setting in settings), file)
        elif file:
            into.note(
                key, f"{kind}: make it PEM ({command.format(file=file)}), and set {names} to that"
            )
        into.drop(
            rf"{cluster}ssl\.{store}\.(certificates|certificate\.chain|key)",
            f"write it into a file, and set {names} to that",
        )
        into.drop(rf"{cluster}ssl\.{store}\.password", "a PEM file has none")
    into.drop(
        rf"{cluster}ssl\.key\.password", "encrypted keys are not taken: decrypt it by openssl"
    )
    key = f"{cluster}ssl.endpoint.identification.algorithm"
    if into.left.pop(key, "https") != "https":
        into.note(key, "the host name in a broker's certificate is checked: docs/how-to/secure.md")
