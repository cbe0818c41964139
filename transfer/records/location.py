"""Location of a record store: a file of SQLite, or a PostgreSQL database by its URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from loopwright.dsl.words import brief
from loopwright.paths import file_at
from loopwright.transfer.records.record import RecordError

_SCHEME = re.compile(r"([A-Za-z][\w+.-]+):/")
_ALLOWED = "give the path of a file, or postgresql://user@host:port/database as text"
_SYNTAX = (
    "a port is a number, a parameter NAME=VALUE, and in names and passwords "
    "@ is written %40, / %2F, ? %3F and # %23"
)
_HOST = re.compile(r"(?:[^@]*@)?(\[.*\]|[^@:]*)(?::\d*)?")
_HIDDEN = "***"


@dataclass(frozen=True)
class Server:
    """A PostgreSQL database; its text is its URL with every password hidden.

    Attributes
    ----------
    user, password, host, port, database: None where libpq's own defaults are to be taken.
    query: further parameters of libpq, such as `host`, `service` or `sslmode`.
    """

    user: str | None
    password: str | None = field(repr=False)
    host: str | None
    port: int | None
    database: str | None
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def of(url: str) -> Server:
        """Read a URL. Raises `RecordError`, whose message shows none of the URL but its scheme:
        where the parts are not clear, any of them may be the password."""
        try:
            parts = urlsplit(url)
            port = parts.port
            query = tuple(parse_qsl(parts.query, True, strict_parsing=bool(parts.query)))
        except ValueError:
            raise _unclear(_SYNTAX) from None
        place = _HOST.fullmatch(parts.netloc)
        if place is None or "@" in parts.path or parts.fragment:
            raise _unclear(_SYNTAX)
        database = unquote(parts.path.removeprefix("/")) or None
        if database is None and not {"dbname", "service"} & dict(query).keys():
            raise _unclear("it names no database")
        names = (parts.username, parts.password, place[1].strip("[]"))
        user, password, host = (unquote(name) if name else None for name in names)
        return Server(user, password, host, port, database, query)

    def hide(self, text: str) -> str:
        """A text, such as an error of the server, without the passwords."""
        secrets = [value for name, value in self.query if _is_secret(name)]
        for secret in filter(None, (self.password, *secrets)):
            text = text.replace(secret, _HIDDEN)
        return text

    def __str__(self) -> str:
        password = "" if self.password is None else f":{_HIDDEN}"
        user = "" if self.user is None else f"{quote(self.user)}{password}@"
        host = f"[{self.host}]" if ":" in (self.host or "") else self.host or ""
        port = "" if self.port is None else f":{self.port}"
        shown = [(k, _HIDDEN if _is_secret(k) else v) for k, v in self.query]
        query = f"?{urlencode(shown, safe='/*')}" if shown else ""
        return f"postgresql://{user}{host}{port}/{quote(self.database or '')}{query}"


Location = Path | Server
GivenLocation = str | os.PathLike[str] | Server
"""Location as users give it."""


def location_of(given: GivenLocation) -> Location:
    """The location that is named. Raises `RecordError` for what can be none: a path that no file
    can have, and the URL of anything but a PostgreSQL database."""
    if isinstance(given, Server):
        return given
    if not isinstance(given, str | os.PathLike):
        raise RecordError(f"records = {brief(given)}: {_ALLOWED}, or None to keep nothing")
    text = os.fsdecode(os.fspath(given))
    if text in ("", ":memory:"):
        raise RecordError(f"{text!r} is not a file: give the path of a record store")
    if text.startswith("postgresql://"):
        return Server.of(text)
    if found := _SCHEME.match(text):
        raise RecordError(f"records = {found[1]}:…: no store is kept there; {_ALLOWED}")
    return file_at(text, "the record store", RecordError, exists=False).absolute()


def is_url(given: GivenLocation) -> bool:
    """Return whether a location is a URL's text, of whatever kind."""
    return isinstance(given, str) and _SCHEME.match(given) is not None


def may_exist(given: GivenLocation) -> bool:
    """Return whether a store may be there; a server is not asked. Raises `RecordError`."""
    location = location_of(given)
    return isinstance(location, Server) or location.exists()


def _unclear(problem: str) -> RecordError:
    return RecordError(f"records = postgresql://…: {problem}; {_ALLOWED}")


def _is_secret(name: str) -> bool:
    return "password" in name.lower()
