"""List the mistakes of a config before a run, as tools/train.py and tools/test.py do.

Checked are types and arguments, the data sets and their first images with labels, classes, whether
the parts of the model fit together, metrics, and the schedule. No checkpoint is read.
"""

import argparse

from mmbixt.check.config import SPLITS
from mmbixt.cli import add_common_arguments, load_config, run


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/check_config.py configs/bixt/semfpn_bixt_ti_ade20k.py',
    )
    add_common_arguments(parser)
    return parser.parse_args()


def main() -> None:
    load_config(parse_args(), SPLITS)
    print('No mistake was found.')


if __name__ == '__main__':
    run(main)
