"""All planted defects, by what they break."""

from tests.mutants import books, records, releases, server

BUGS = (*releases.BUGS, *books.BUGS, *records.BUGS, *server.BUGS)
