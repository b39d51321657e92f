"""The data of a report: read from a work dir, or computed."""

from argparse import Namespace
from dataclasses import dataclass

from mmbixt.checkpoints.errors import CheckpointError
from mmbixt.evaluation.sums import FILE_NAME, ImageSums, read_sums, write_sums
from mmbixt.report.predictions import Example, Predictions
from mmbixt.report.work_dir import Run


@dataclass
class ReportData:
    """The data of a report."""

    run: Run
    parameters: int | None = None  # number of parameters; None if it did not run
    weights: str = ''  # name of the checkpoint that was evaluated
    counts: ImageSums | None = None
    band: str | None = None  # the band that is shown; None if no band was counted
    examples: dict[str, list[Example]] | None = None  # by 'Worst' and 'Best'
    problem: str = ''  # why there are no counts or no examples


def report_data(run: Run, options: Namespace) -> ReportData:
    """The data of the report of a run; options are those of tools/analysis/report.py."""
    data, file = ReportData(run), run.folder / FILE_NAME
    if file.exists() and not options.evaluate and not options.checkpoint and not run.detects:
        data.counts = read_sums(file)
        data.band = data.counts.choose_band(options.band)
    checkpoint = options.checkpoint or run.checkpoint
    if not checkpoint:
        data.problem = f'There is no checkpoint in {run.folder}.'
    if data.problem or run.detects:
        return data
    try:
        predictions = Predictions(run.config, checkpoint, run.generated)
    except (CheckpointError, FileNotFoundError) as error:
        if options.checkpoint or options.evaluate:
            raise
        data.problem = str(error)
        return data
    data.parameters = sum(p.numel() for p in predictions.predict.network.model.parameters())
    data.weights = checkpoint.name
    if not data.counts:
        print(f'predicting the {len(predictions.dataset):,} images of the test set', flush=True)
        data.counts = predictions.count()
        data.band = data.counts.choose_band(options.band)
        if not options.checkpoint:
            write_sums(file, data.counts)
            print(f'counts of every image: {file}')
    if options.images and data.band:
        print('drawing pictures', flush=True)
        data.examples = predictions.worst_and_best(data.counts, data.band, options.images)
    else:
        data.problem = 'Pictures are turned off (--images 0), or no band was counted.'
    return data
