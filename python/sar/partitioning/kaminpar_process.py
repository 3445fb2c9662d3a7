"""What the process that cuts a graph with KaMinPar runs. It imports neither torch nor SAR, and does not outlive its
parent. Its last output line is ``done``.

Arguments: number of the parent, of an open ParHIP file, of an open file for the parts; parts, imbalance, seed,
threads, name of the context, expected nodes and neighbours.
"""

import array
import ctypes
import os
import sys

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def main() -> None:
    parent, graph_file, out_file, parts, seed, threads, nodes, neighbours = map(int, sys.argv[1:9])
    imbalance, context = float(sys.argv[9]), sys.argv[10]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:  # it was gone before the line above
        sys.exit("the process that asked for the parts is gone")

    import kaminpar

    kaminpar.reseed(seed)
    compressed = context.startswith("terapart")
    graph = kaminpar.load_graph(f"/proc/self/fd/{graph_file}", kaminpar.GraphFileFormat.PARHIP, compressed)
    if (graph.n(), graph.m()) != (nodes, neighbours):
        sys.exit(f"KaMinPar read {graph.n()} nodes and {graph.m()} neighbours of {nodes} and {neighbours}")
    found = kaminpar.KaMinPar(threads, kaminpar.context_by_name(context)).compute_partition(graph, parts, imbalance)
    del graph
    with os.fdopen(out_file, "wb") as file:
        array.array("i", found).tofile(file)
    print("done")


main()
