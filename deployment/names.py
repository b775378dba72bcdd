"""Names and addresses of a server as a certificate holds them, from what people write."""

from __future__ import annotations

import ipaddress
import re

import idna

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"  # underscores: containers have them
_HOST = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)*{_LABEL}")
_LONGEST = 253


def certificate_name(given: str) -> str:
    """A DNS name in lower case and, where it is international, in its ASCII form; or an address without brackets.

    Raises:
        ValueError: neither.
    """
    address = given[1:-1] if given.startswith("[") and given.endswith("]") else given
    try:
        return str(_address(address))
    except ValueError:
        pass
    try:
        name = given.removesuffix(".")
        name = name.lower() if name.isascii() else idna.encode(name, uts46=True).decode()
    except idna.IDNAError as error:
        raise _refused(given, f"{error}") from None
    if re.fullmatch(rf"({_HOST.pattern}|\[[0-9a-f:.]+\]):\d+", name):
        raise _refused(given, "without a port")
    if not _HOST.fullmatch(name) or len(name) > _LONGEST or name.rsplit(".", 1)[-1].isdigit():
        raise _refused(given)
    return name


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise ValueError("a zone is this machine's own")
    return address


def _refused(given: str, why: str = "") -> ValueError:
    return ValueError(
        f"--name must be a host name (fl.example.org) or an address (192.0.2.7, ::1){f', {why}' if why else ''}. "
        f"Received {given!r}."
    )
