"""Which addresses a server may have: http or https, without credentials, and nothing that only this machine may see.

The address comes from a text field, and the lab calls it from where it runs. Cloud machines answer with their secrets
at link-local addresses, so those are refused, under whatever name; redirects are followed nowhere.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from dflash_lab.errors import LabError


def normal_url(url: str) -> str:
    """`url` without a trailing slash or `/v1`, with a scheme.

    Raises LabError for what cannot be a server's address.
    """
    url = url.strip().rstrip("/").removesuffix("/v1")
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        named = False
    if not named or parts.netloc.endswith(":") or parts.query or parts.fragment:
        raise LabError(f"{url!r} is not a server's address", "Give it as http://host:port")
    if parts.username is not None or parts.password is not None:
        raise LabError("The address holds a user name or password", "Give the server's API key in its own field")
    return url


def check_host(url: str) -> None:
    """Raises LabError when the host of `url` is, or resolves to, a link-local address. An unknown host passes."""
    host = urlsplit(url).hostname or ""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):  # nobody answers there: the request says so
        return
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if (mapped or address).is_link_local:
            raise LabError(f"{host} is the link-local address {text}", "Give the address of a model server")
