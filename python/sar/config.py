"""Settings that a script may change, before or after :func:`sar.initialize_comms`.

Every worker must set the same values, because they determine what is sent and when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

_OLD: Dict[str, Any] = {
    "pipeline_depth": 1,
    "current_layer_index": 0,
    "total_layers": None,
    "train_iter": 0,
    "total_train_iter": 0,
}
"""Settings of the older package, whose scripts set them. They have no effect."""


class _Settings(type):
    """Refuses unknown settings: a misspelled one would silently have no effect."""

    if not TYPE_CHECKING:  # which is to know the settings below alone

        def __getattr__(cls, name: str) -> Any:
            if name in _OLD:
                return _OLD[name]
            raise AttributeError(f"sar.Config has no setting {name!r}")

    def __setattr__(cls, name: str, value: object) -> None:
        if name in _OLD:
            _OLD[name] = value
            return
        if name not in dir(cls):
            import difflib  # costs import sar a millisecond otherwise

            known = sorted(n for n in dir(cls) if not n.startswith("_"))
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            raise AttributeError(f"sar.Config has no setting {name!r}; {hint}")
        super().__setattr__(name, value)


class Config(metaclass=_Settings):
    """Process-wide settings; set them on the class, as in ``sar.Config.window_bytes = 64 << 20``.

    :raises AttributeError: there is no such setting; the message suggests the nearest name
    """

    __slots__ = ()  # what is set on an object in place of the class has no effect: refused too

    disable_sr: bool = False
    """Keep what forward fetched in place of fetching it again in backward (SA mode). The numbers are the same.
    Sums and means of ``copy_u`` never fetch twice, so for them it changes nothing."""

    max_collective_size: int = 0
    """Kept for scripts that set it, without effect: tensors of any size travel in chunks of 1 MiB at most."""

    window_bytes: Optional[int] = None
    """Bytes of remote rows, rings and send staging that a worker may hold at once, from the next graph operation
    on: never exceeded, to the byte. ``None``: 4, 8 or 16 MiB, by the number of workers and the nodes of the largest
    part (1 KiB for each, 512 KiB for each peer), and 16 MiB with samplers; among more than 10 workers up to 1.7 MiB for
    each peer, for frames of 256 KiB, but no more than half a KiB for each node. ``sar.stats()["window"]`` shows what it
    is, and the most that was held since it has been that. A window too small raises :class:`sar.BudgetError`, which
    names the smallest that works."""

    exchange: str = "auto"
    """Where sums, means and attention are computed for edges between two workers. ``"pull"``: at the destinations'
    worker, which gets rows of sources, in backward once more where their values matter, and sends their gradients back.
    ``"push"``: at the sources' worker, which sends a partial result for each destination; where it needs values of the
    destination, these come first, in backward with the gradient and the state of the softmax. It costs memory for the
    edges (4 bytes each, and 2 or 4 for gradients of attention). ``"auto"``: what is fewest bytes, rows for some edges
    and partial results for others; gradients of attention are pushed for each pair of workers where that is worth its
    computing, by edges and kind of link. Expressions that read edge features or draw dropout are always pulled, and so
    are maxima and minima. ``sar.stats()["links"]`` shows the bytes of each way. Results agree up to rounding."""

    wire_dtype: Optional[str] = None
    """``"bfloat16"``: rows of sources that are float32 are rounded to bfloat16 when messages read them, those of this
    worker like those of others, and travel so, in half the bytes. Sums, results and gradients stay float32. It is
    inexact, by up to 1 part in 256 of each number, and the same for any number of workers. ``None``: rows travel as
    they are. ``sar.stats()["wire_dtype"]`` tells what is set. What Python message functions read again in backward
    travels in float32."""

    patch_dgl: bool = True
    """Whether making a graph has DGL's layers understand it (:func:`sar.patch_dgl` does it in any case). With ``False``
    nothing in DGL is replaced; layers of ``dgl.nn`` then do not run on SAR's graphs, those of :mod:`sar.nn` do."""

    patch_pyg: bool = True
    """Whether making an edge index for PyG (:func:`sar.pyg.load`, :func:`sar.pyg.edge_index`) replaces the functions of
    torch_geometric that its layers call on one. With ``False`` nothing in torch_geometric is replaced; layers then
    compute the values of all edges where they take a softmax, a maximum or a mean, and some do not run. The same on
    every worker."""

    fuse: bool = True
    """Whether SAGEConv with the mean, GATConv with one linear map and batch norm run as one fused operation each, with
    less memory. With ``False`` they run step by step: layers of DGL as DGL wrote them, and batch norm returns an
    ordinary tensor. Results agree up to rounding. Messages are identical, so workers may use different settings.
    ``sar.stats()["layers"]`` shows how layers ran."""

    block_bytes: int = 8 << 20
    """Bytes that one run of a Python message or reduce function may take, about: its rows, what it makes of them, and
    their gradients. Functions run on so many edges at a time, at least on 64, or on the messages of one node. The
    same from forward to backward."""

    features: str = "memory"
    """Where node features of two or more dimensions are after :func:`sar.load_dgl_partition_data`. ``"memory"``: they
    are read. ``"mapped"``: they stay in the partition's files, and the tensors are mapped over them, so features may be
    larger than memory; what else makes a copy of them is under "Features on disk" in the documentation. The numbers are
    the same to the bit, and so is what a worker sends, so workers may differ."""

    allow_outside_paths: bool = False
    """Let the JSON file of a partition name files outside its own directory, by an absolute path, ``..`` or a symbolic
    link. Without it, a partition from elsewhere cannot make its reader open other files of the machine. It changes
    nothing that is sent, and may differ between workers."""
