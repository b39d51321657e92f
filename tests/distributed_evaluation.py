"""What the processes of the metric's test run; a module that they can import by its name."""

import pickle
from pathlib import Path

import torch.distributed as dist

from mmbixt.evaluation import BoundaryIoUMetric


def evaluate(rank, folder, processes, classes, samples):
    meeting = f'file://{folder}/rendezvous'
    dist.init_process_group('gloo', meeting, rank=rank, world_size=processes)
    metric = BoundaryIoUMetric(sums_file=f'{folder}/sums.npz', collect_dir=f'{folder}/exchange')
    metric.dataset_meta = dict(classes=classes)
    # as mmengine's sampler: in turns, and from the start again where they do not come out even
    share = (samples + samples)[rank::processes][: -(-len(samples) // processes)]
    metric.process({}, share)
    Path(folder, f'{rank}.pkl').write_bytes(pickle.dumps(metric.evaluate(len(samples))))
    dist.destroy_process_group()
