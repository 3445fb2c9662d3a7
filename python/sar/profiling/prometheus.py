"""Shows a worker's metrics to Prometheus."""

from __future__ import annotations

import errno
from typing import Any, Callable, Dict, Iterator, Mapping

from sar._engine.log import logger
from sar.extras import need

from .samples import Family, samples


class PrometheusServer:
    """Answers ``http://host:port/metrics`` with what ``read`` returns at that moment.

    :raises MissingLibraryError: prometheus-client is not installed
    :raises OSError: nothing can listen there
    """

    def __init__(self, host: str, port: int, rank: int, read: Callable[[], Mapping[str, Any]]) -> None:
        client = need("prometheus_client", "metrics", "SAR_METRICS=prometheus")
        self._core = need("prometheus_client.core", "metrics", "SAR_METRICS=prometheus")
        self._rank, self._read = str(rank), read
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = client.start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            why = "is in use: choose another port" if error.errno == errno.EADDRINUSE else f"fails ({error.strerror})"
            where = f"rank {rank} listens at {host}, port {port}, for Prometheus"
            raise OSError(error.errno, f"{where}, which {why}") from None
        logger.info("metrics of rank %d: http://%s:%d/metrics", rank, host, self._server.server_port)

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def collect(self) -> Iterator[Any]:
        """What prometheus_client asks for at each request."""
        try:
            found = self._read()
        except (RuntimeError, ValueError) as error:  # the session has ended since the request came
            logger.debug("no metrics: %s", error)
            return
        families: Dict[Family, Any] = {}
        for family, key, value in samples(found):
            made = families.get(family)
            if made is None:
                kind = self._core.CounterMetricFamily if family.counts else self._core.GaugeMetricFamily
                labels = ["rank", family.label] if family.label else ["rank"]
                made = families[family] = kind(f"sar_{family.name}", family.text, labels=labels)
            made.add_metric([self._rank, key] if family.label else [self._rank], value)
        yield from families.values()

    def write(self, record: Mapping[str, Any]) -> None:
        """Nothing: ``read`` knows the last epoch."""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
