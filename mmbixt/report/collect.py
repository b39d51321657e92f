"""The data of a report: read from a work dir, or computed."""

from argparse import Namespace
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass

from mmengine.registry import DATASETS, MODELS, init_default_scope

from mmbixt.checkpoints.errors import CheckpointError
from mmbixt.datasets.availability import leaves
from mmbixt.engine.boundary_vis_hook import NoLabelsError
from mmbixt.evaluation.sums import (
    FILE_NAME,
    ImageSums,
    OtherImagesError,
    SumsFileError,
    read_sums,
    write_sums,
)
from mmbixt.report.predictor import Example, Predictor
from mmbixt.report.work_dir import Run


@dataclass
class ReportData:
    """The data of a report."""

    run: Run
    parameters: int | None = None  # number of parameters; None if the model was not built
    weights: str = ''  # name of the checkpoint that was evaluated
    counts: ImageSums | None = None
    band: str | None = None  # the band that is shown; None if no band was counted
    examples: dict[str, list[Example]] | None = None  # by 'Worst' and 'Best'
    problem: str = ''  # why there are no counts or no examples
    images: int | None = None  # of the test set of a detector; None if it was not found


def collect(run: Run, options: Namespace) -> ReportData:
    """The data of the report of a run; options are those of tools/analysis/report.py."""
    data, config, model = ReportData(run), deepcopy(run.config), None
    if 'module' in config.model:  # a config dumped by a test with --tta
        config.model = config.model.module
        if not (config.get('val_dataloader') and config.get('test_dataloader')):
            data.problem = 'After --tta, the config needs val_dataloader and test_dataloader.'
            return data
        pipeline = next(leaves(config.val_dataloader.dataset)).pipeline
        for part in leaves(config.test_dataloader.dataset):
            part.pipeline = pipeline
    if not options.no_model:
        init_default_scope(config.get('default_scope', 'mmengine'))
        model = MODELS.build(config.model)
        data.parameters = sum(p.numel() for p in model.parameters())
    if run.detects:
        with suppress(FileNotFoundError):
            data.images = len(DATASETS.build(config.test_dataloader.dataset)) if model else None
        return data
    file = run.folder / FILE_NAME
    if file.exists() and not options.evaluate and not options.checkpoint:
        data.counts = read_sums(file)
        data.band = data.counts.choose_band(options.band)
    checkpoint = options.checkpoint or run.checkpoint
    if not model or not checkpoint:
        missing = f'There is no checkpoint in {run.folder}.'
        data.problem = missing if model else 'The model was not run (--no-model).'
        return data
    if not config.get('test_dataloader'):
        data.problem = 'The config has no test_dataloader.'
        return data
    try:
        predictor = Predictor(config, model, checkpoint, run.generated)
        data.weights = checkpoint.name
        if data.counts and data.counts.classes != list(predictor.meta['classes']):
            raise SumsFileError(
                f'{file} has counts of other classes than the test set of the config. To count '
                'again: --evaluate'
            )
        if not data.counts:
            print(f'predicting the {len(predictor.dataset):,} images of the test set', flush=True)
            data.counts = predictor.count()
            data.band = data.counts.choose_band(options.band)
            if not options.checkpoint:
                try:
                    write_sums(file, **vars(data.counts))
                    print(f'counts of every image: {file}')
                except OSError as error:  # no permission, a full disk
                    print(f'The counts of every image were not saved: {error}')
        if not options.images:
            data.problem = 'Pictures are turned off (--images 0).'
        elif not data.band:
            data.problem = 'Images are chosen by their scores in a band, and no band was counted.'
        else:
            print('drawing pictures', flush=True)
            data.examples = predictor.worst_and_best(data.counts, data.band, options.images)
    except (CheckpointError, FileNotFoundError, NoLabelsError, OtherImagesError) as error:
        if options.checkpoint or options.evaluate:
            raise
        data.problem = str(error)
    return data
