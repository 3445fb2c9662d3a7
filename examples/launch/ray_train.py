"""Runs a script, unchanged, as workers of Ray Train.

python examples/launch/ray_train.py 2 examples/gcn.py parts/cora.json
"""

import os
import runpy
import sys

from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def worker(command):
    """Ray has made a process group of torch.distributed, which sar.initialize_comms() finds."""
    os.chdir(command["directory"])
    sys.argv = command["words"]
    runpy.run_path(command["words"][0], run_name="__main__")
    import sar

    sar.comm.shutdown()  # Ray's processes go on


if __name__ == "__main__":
    trainer = TorchTrainer(
        worker,
        train_loop_config={"directory": os.getcwd(), "words": sys.argv[2:]},
        scaling_config=ScalingConfig(num_workers=int(sys.argv[1]), resources_per_worker={"CPU": 1}),
        torch_config=TorchConfig(backend="gloo"),
    )
    trainer.fit()
