"""Addresses of CUPTI's functions, for probes that profile their own process."""

from __future__ import annotations

from collections.abc import Callable

from stallprobes.engine.timeline.interfaces import CuptiCalls
from stallprobes.errors import Unsupported
from stallprobes.records.libcupti import load
from stallprobes.records.timeline import TimelineUnavailable


class CuptiFunctions:
    """libcupti, loaded on first use. Loading it does not attach it to the process."""

    def __init__(self, driver_version: int, load: Callable[[int], CuptiCalls] = load) -> None:
        """``load`` finds the library that matches ``driver_version``, or raises TimelineUnavailable."""
        self._driver_version = driver_version
        self._load = load
        self._library: CuptiCalls | None = None

    def address(self, function: str) -> int:
        """The address of a function of CUPTI. Raises Unsupported without the library or without the function."""
        library = self._loaded()
        found = library.address(function)
        if not found:
            raise Unsupported(f"the libcupti at {library.path} has no {function}")
        return found

    def text(self, code: int) -> str:
        """CUPTI's name of the code ``code``. Raises Unsupported without the library."""
        return self._loaded().text(code)

    def _loaded(self) -> CuptiCalls:
        if self._library is None:
            try:
                self._library = self._load(self._driver_version)
            except TimelineUnavailable as error:
                status = error.status
                raise Unsupported(f"{status.found}; {status.do}" if status.do else status.found) from error
        return self._library
