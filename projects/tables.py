"""What the tables of trained networks share: rows from the work dirs of run_networks.sh."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mmengine.config import Config

from mmbixt.report.work_dir import read_records, starts_in

START, END = '<!-- table: table.py -->', '<!-- end of table -->'


def parse_args(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('runs', type=Path, help='the folder of the work dirs')
    parser.add_argument('--update', type=Path, metavar='FILE', help='replace the table in it')
    return parser.parse_args()


def training(folder: Path) -> list[str]:
    """Images seen, seconds and device of a training."""
    (config,) = folder.glob('*.py')
    cfg = Config.fromfile(config)
    files = (start / 'vis_data/scalars.json' for start in starts_in(folder))
    times = [x['time'] for file in files for x in read_records(file) if 'loss' in x]
    iterations, batch_size = cfg.train_cfg.max_iters, cfg.train_dataloader.batch_size
    seconds = np.mean(times) * iterations
    device = (folder / 'device.txt').read_text().strip()
    return [f'{iterations * batch_size:,}', f'{seconds:,.0f}', device]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *rows = rows
    rule = ['---', *['---:'] * (len(header) - 1)]
    return '\n'.join(f'| {" | ".join(row)} |' for row in (header, rule, *rows))


def show(tables: str, file: Path | None) -> None:
    """Print the tables and replace those in a file."""
    print(tables)
    if file:
        text = file.read_text()
        before, after = text.split(START)[0], text.split(END)[-1]
        file.write_text(f'{before}{START}\n{tables}\n{END}{after}')
