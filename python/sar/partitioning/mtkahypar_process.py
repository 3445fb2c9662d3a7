"""What the process that cuts a graph with Mt-KaHyPar runs. It imports neither torch nor SAR, and does not outlive its
parent. Its last output line is ``done``.

Arguments: number of the parent, of an open ParHIP file, of an open file for the parts; parts, seed, threads, expected
nodes and neighbours; imbalance; ``volume`` or ``cut``.

The library reads text. For ``cut`` that is the graph. For ``volume`` it is a hypergraph with a net for each node: the
node itself and its neighbours. A net with nodes in k parts costs k - 1, the parts that the node's row is sent to.
"""

import array
import ctypes
import os
import sys

import numpy as np

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_NO_WEIGHTS = 2  # a bit of the first number of a ParHIP file
_BLOCK = 1 << 20  # numbers that are written at a time


def main() -> None:
    parent, graph_file, out_file, parts, seed, threads, nodes, neighbours = map(int, sys.argv[1:9])
    imbalance, objective = float(sys.argv[9]), sys.argv[10]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:  # it was gone before the line above
        sys.exit("the process that asked for the parts is gone")

    import mtkahypar

    library = mtkahypar.initialize(threads, False)
    mtkahypar.set_seed(seed % 2**31)
    context = library.context_from_preset(mtkahypar.PresetType.DEFAULT)
    by_volume = objective == "volume"
    measure = mtkahypar.Objective.KM1 if by_volume else mtkahypar.Objective.CUT
    context.set_partitioning_parameters(parts, imbalance, measure)
    context.logging = False
    with os.fdopen(out_file, "wb") as file:  # first for the text, then for the parts
        write_text(f"/proc/self/fd/{graph_file}", file, nodes, neighbours, by_volume)
        read = library.hypergraph_from_file if by_volume else library.graph_from_file
        graph = read(f"/proc/self/fd/{out_file}", context)
        if graph.num_nodes() != nodes:
            sys.exit(f"Mt-KaHyPar read {graph.num_nodes()} nodes of {nodes}")
        found = graph.partition(context).get_partition()
        file.seek(0)
        file.truncate()
        array.array("i", found).tofile(file)
    print("done")


def write_text(path, file, nodes, neighbours, by_volume):  # type: ignore[no-untyped-def]
    """Writes a ParHIP file as text: a line for each node, with nodes numbered from 1."""
    version = int(np.memmap(path, np.uint64, "r", shape=1)[0])
    offsets = np.memmap(path, np.int64, "r", 24, nodes + 1)
    base = 24 + 8 * (nodes + 1)
    columns = np.memmap(path, np.int32, "r", base, neighbours)
    weights = np.ones(nodes, np.int32)
    if not version & _NO_WEIGHTS:
        weights = np.memmap(path, np.int32, "r", base + 4 * neighbours, nodes)
    width = len(str(max(nodes, int(weights.max()))))
    file.write(f"{nodes} {nodes if by_volume else neighbours // 2} 10\n".encode())
    begin = 0
    while begin < nodes:
        room = offsets[begin] + 4 * _BLOCK
        end = min(nodes, begin + _BLOCK, max(begin + 1, int(np.searchsorted(offsets, room, "right")) - 1))
        ends = (offsets[begin : end + 1] - base) // 4
        first = np.arange(begin + 1, end + 1) if by_volume else weights[begin:end]
        numbers = np.insert(columns[ends[0] : ends[-1]].astype(np.int64) + 1, ends[:-1] - ends[0], first)
        file.write(lines(numbers, ends[1:] - ends[0] + np.arange(end - begin), width))
        begin = end
    if by_volume:
        for begin in range(0, nodes, _BLOCK):
            block = weights[begin : begin + _BLOCK]
            file.write(lines(block, np.arange(len(block)), width))
    file.flush()


def lines(numbers, last, width):  # type: ignore[no-untyped-def]
    """Numbers as text, with blanks between them. Those at the positions ``last`` end a line."""
    text = np.full((len(numbers), width + 1), ord(" "), np.uint8)
    rest = np.array(numbers)
    for column in reversed(range(width)):
        text[:, column] = np.where(rest > 0, rest % 10 + ord("0"), ord(" "))
        rest //= 10
    text[last, width] = ord("\n")
    return text.tobytes()


main()
