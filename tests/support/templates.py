"""PyG compiles two templates anew for each class of layers, which takes as long as most tests of a layer: here once.

A process that imports this, and its forks, take what was compiled for the first class.
"""

import contextlib
from typing import Any

with contextlib.suppress(ImportError):
    import jinja2

    _compile, _compiled = jinja2.Environment.compile, {}

    def _once(environment: Any, source: Any, *name: Any, **options: Any) -> Any:
        key = (source, name, tuple(options.items()))
        if key not in _compiled:
            _compiled[key] = _compile(environment, source, *name, **options)
        return _compiled[key]

    jinja2.Environment.compile = _once  # type: ignore[method-assign, assignment]
