"""Graph directories: graph.json and the arrays that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

Arrays = Mapping[str, np.ndarray]
Relation = Tuple[np.ndarray, np.ndarray, Arrays]


def write(
    folder: Path,
    nodes: Mapping[str, Tuple[int, Arrays]],
    relations: Mapping[Tuple[str, str, str], Relation],
    ids: Optional[Mapping[str, str]] = None,
) -> Dict[Tuple[str, str, str], Relation]:
    """Writes a graph directory.

    :param nodes: the number of nodes of each type, and their features
    :param relations: sources, destinations and features of the edges of each, in any order
    :param ids: the file of the users' ids of a type, inside the directory
    :returns: the relations with their edges in the order of the directory: by destination, then by source
    """
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, array: np.ndarray) -> Dict[str, Any]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
        return {"file": name, "dtype": str(array.dtype), "shape": list(array.shape)}

    kinds: Dict[str, Any] = {}
    for kind, (count, features) in nodes.items():
        of = {name: save(f"nodes/{kind}/{name}.npy", array) for name, array in features.items()}
        file = (ids or {}).get(kind)
        kinds[kind] = {"count": count, "ids": file and {"file": file, "type": "VARCHAR"}, "features": of}
    sorted_relations, edges = {}, []
    for triple, (src, dst, features) in relations.items():
        order = np.lexsort((src, dst))
        src, dst, features = src[order], dst[order], {name: array[order] for name, array in features.items()}
        sorted_relations[triple] = src, dst, features
        place, rows = f"edges/{'__'.join(triple)}", nodes[triple[2]][0]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=rows))]).astype(np.int64)
        edges.append(
            {
                "type": list(triple),
                "count": len(src),
                "symmetric": None,
                "indptr": save(f"{place}/indptr.npy", indptr),
                "source": save(f"{place}/source.npy", src.astype(np.int32)),
                "features": {name: save(f"{place}/{name}.npy", array) for name, array in features.items()},
            }
        )
    text = {"format": "SAR graph 1", "name": folder.name, "node_types": kinds, "edge_types": edges}
    (folder / "graph.json").write_text(json.dumps(text))
    return sorted_relations
