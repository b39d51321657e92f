"""From a work dir to what a page shows: read what is there, make what is missing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mmbixt.checkpoints.loader import CheckpointFileError
from mmbixt.checkpoints.state_dict import CheckpointMismatchError
from mmbixt.checkpoints.unpickler import UnsafeCheckpointError
from mmbixt.datasets.availability import MissingDatasetError
from mmbixt.evaluation.sums import ImageSums, read_sums, write_sums
from mmbixt.reporting.figures import bands_of, choose_band
from mmbixt.reporting.files import replacing
from mmbixt.reporting.gallery import ImagesMissingError, make_gallery
from mmbixt.reporting.page import Material
from mmbixt.reporting.predictor import NoTruthError, Predictor, build_model, without_augmentation
from mmbixt.reporting.work_dir import Run
from mmbixt.visualization.palette import sample_palette

# of a model and its images: a page can do without, and says so
OBSTACLES = (
    CheckpointFileError,
    CheckpointMismatchError,
    FileNotFoundError,  # of a checkpoint
    ImagesMissingError,
    MissingDatasetError,
    NoTruthError,
    UnsafeCheckpointError,
)
NO_MODEL = 'The model was not run (--no-model).'


class WishError(ValueError):
    """What a report was asked for cannot be had."""


@dataclass(frozen=True)
class Wishes:
    """How a report is to be made.

    Attributes:
        checkpoint: weights; None for the last ones of the run. Others are counted anew, and their
            counts not kept among those of the run.
        images: of the worst and of the best, at most.
        band: name of the one that it is about; None for the usual one.
        evaluate: count anew.
        use_model: run the model for what is missing.
    """

    checkpoint: Path | None = None
    images: int = 6
    band: str | None = None
    evaluate: bool = False
    use_model: bool = True


def gather(run: Run, wishes: Wishes, track: Callable[[Iterable], Iterable]) -> Material:
    """Everything that a page shows.

    Args:
        run: what is in the work dir.
        wishes: how the report is to be made.
        track: shows progress over an iterable with a length.
    """
    config = without_augmentation(run.config)
    model = build_model(config) if wishes.use_model else None
    parameters = sum(p.numel() for p in model.parameters()) if model else None
    material = Material(run, parameters)
    if run.detects:
        return material
    if run.sums_file.exists() and not wishes.evaluate and not wishes.checkpoint:
        material = replace(material, counted=read_sums(run.sums_file))
    checkpoint = wishes.checkpoint or run.checkpoint
    if model is None or checkpoint is None:
        why = NO_MODEL if model is None else f'There is no checkpoint in {run.folder}.'
        return replace(_choose_band(material, wishes), uncounted=why, undrawn=why)
    try:
        predictor = Predictor(config, model, checkpoint)
        if not material.counted:
            print(f'predicting the {len(predictor.dataset):,} images of the test set', flush=True)
            keep = None if wishes.checkpoint else run.sums_file
            material = replace(material, counted=_count(predictor, keep, track))
        material = replace(material, weights=checkpoint.name)
        material = _choose_band(material, wishes)
        return _add_gallery(material, predictor, wishes.images, track)
    except OBSTACLES as error:
        if wishes.checkpoint or wishes.evaluate:
            raise WishError(f'{error}') from error
        return replace(_choose_band(material, wishes), uncounted=f'{error}', undrawn=f'{error}')


def _count(
    predictor: Predictor, file: Path | None, track: Callable[[Iterable], Iterable]
) -> ImageSums:
    """Count the pixels of all images, and keep the counts in a file where that is possible."""
    counted = predictor.count(track)
    if file is None:
        return counted
    try:
        with replacing(file) as part:
            write_sums(part, counted.images, counted.classes, counted.counts)
        print(f'counts of every image: {file}')
    except OSError as error:  # a work dir of somebody else, a full disk
        print(f'The counts of every image are not kept for the next time: {error}')
    return counted


def _choose_band(material: Material, wishes: Wishes) -> Material:
    """The one that was asked for, or the usual one."""
    if not material.counted:
        return material
    there = bands_of(material.counted)
    if wishes.band and wishes.band not in there:
        raise WishError(f'--band {wishes.band}: the bands that were counted are {", ".join(there)}')
    return replace(material, band=wishes.band or choose_band(there))


def _add_gallery(
    material: Material, predictor: Predictor, number: int, track: Callable[[Iterable], Iterable]
) -> Material:
    if not number:
        return replace(material, undrawn='No pictures were asked for (--images 0).')
    if not material.band:
        return replace(material, undrawn='No band was counted by which to choose images.')
    palette = predictor.palette
    if material.run.generated:
        palette = sample_palette(predictor.classes, palette)
    print('drawing pictures', flush=True)
    return replace(
        material,
        gallery=make_gallery(predictor, material.counted, material.band, palette, number, track),
    )
