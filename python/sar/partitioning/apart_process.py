"""What the process that cuts a graph runs. It imports neither torch nor SAR, and does not outlive its parent. Its last
output line is ``done``.

Arguments: ``kaminpar`` or ``mtkahypar``; number of the parent, of an open ParHIP file, of an open file for the parts;
parts, seed, threads, expected nodes and neighbours; imbalance; of KaMinPar the name of the context, of Mt-KaHyPar
``volume`` or ``cut``.
"""

import array
import ctypes
import os
import sys

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_NO_WEIGHTS = 2  # a bit of the first number of a ParHIP file
_BLOCK = 1 << 20  # numbers that are written at a time


def main() -> None:
    parent, graph_file, out_file, *numbers = map(int, sys.argv[2:10])
    cut, imbalance, mode = globals()[sys.argv[1]], float(sys.argv[10]), sys.argv[11]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:  # it was gone before the line above
        sys.exit("the process that asked for the parts is gone")
    with os.fdopen(out_file, "wb") as file:
        found = cut(f"/proc/self/fd/{graph_file}", file, *numbers, imbalance, mode)
        array.array("i", found).tofile(file)
    print("done")


def kaminpar(path, file, parts, seed, threads, nodes, neighbours, imbalance, context):  # type: ignore[no-untyped-def]
    import kaminpar

    kaminpar.reseed(seed)
    compressed = context.startswith("terapart")
    graph = kaminpar.load_graph(path, kaminpar.GraphFileFormat.PARHIP, compressed)
    if (graph.n(), graph.m()) != (nodes, neighbours):
        sys.exit(f"KaMinPar read {graph.n()} nodes and {graph.m()} neighbours of {nodes} and {neighbours}")
    return kaminpar.KaMinPar(threads, kaminpar.context_by_name(context)).compute_partition(graph, parts, imbalance)


def mtkahypar(path, file, parts, seed, threads, nodes, neighbours, imbalance, objective):  # type: ignore[no-untyped-def]
    """The library reads text. For ``cut`` that is the graph. For ``volume`` it is a hypergraph with a net for each
    node: the node itself and its neighbours. A net with nodes in k parts costs k - 1, the parts that the node's row is
    sent to."""
    import mtkahypar

    library = mtkahypar.initialize(threads, False)
    mtkahypar.set_seed(seed % 2**31)
    context = library.context_from_preset(mtkahypar.PresetType.DEFAULT)
    by_volume = objective == "volume"
    measure = mtkahypar.Objective.KM1 if by_volume else mtkahypar.Objective.CUT
    context.set_partitioning_parameters(parts, imbalance, measure)
    context.logging = False
    write_text(path, file, nodes, neighbours, by_volume)  # the file is first for the text, then for the parts
    read = library.hypergraph_from_file if by_volume else library.graph_from_file
    graph = read(f"/proc/self/fd/{file.fileno()}", context)
    if graph.num_nodes() != nodes:
        sys.exit(f"Mt-KaHyPar read {graph.num_nodes()} nodes of {nodes}")
    found = graph.partition(context).get_partition()
    file.seek(0)
    file.truncate()
    return found


def write_text(path, file, nodes, neighbours, by_volume):  # type: ignore[no-untyped-def]
    """Writes a ParHIP file as text: a line for each node, with nodes numbered from 1."""
    import numpy as np

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
    import numpy as np

    text = np.full((len(numbers), width + 1), ord(" "), np.uint8)
    rest = np.array(numbers)
    for column in reversed(range(width)):
        text[:, column] = np.where(rest > 0, rest % 10 + ord("0"), ord(" "))
        rest //= 10
    text[last, width] = ord("\n")
    return text.tobytes()


main()
