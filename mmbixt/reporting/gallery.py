"""Pictures of the images that a model does worst and best, ready to be put into a page."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from mmbixt.evaluation.boundary import image_sums, scores
from mmbixt.evaluation.sums import ImageSums
from mmbixt.reporting.figures import band_width, choose_images, image_scores
from mmbixt.reporting.predictor import Predictor
from mmbixt.visualization.attention import summary_figure
from mmbixt.visualization.boundary_errors import error_figure

WIDTH, HEIGHT = 1400, 2400  # pixels of a picture, at most
QUALITY = 80
TOLERANCE = 1.0  # points, by which scores of one model may differ between devices

Palette = Sequence[Sequence[int]] | None


class ImagesMissingError(ValueError):
    """Counts are of images that are not in the test set."""


@dataclass(frozen=True)
class Picture:
    """A picture in a page.

    Attributes:
        source: address that holds the picture itself.
        width, height: in pixels.
    """

    source: str
    width: int
    height: int


@dataclass(frozen=True)
class Exhibit:
    """An image of the test set, and what the model makes of it.

    Attributes:
        name: of the file.
        score: mean IoU in the band, of this image, per cent.
        everywhere: the same over all its pixels.
        counted: the first of them by the file of counts.
        errors: where and how it is wrong.
        attention: what the model looks at; None for other backbones than ours.
    """

    name: str
    score: float
    everywhere: float
    counted: float
    errors: Picture
    attention: Picture | None


@dataclass(frozen=True)
class Gallery:
    """The worst image is the first of the worst, the best the first of the best."""

    worst: list[Exhibit]
    best: list[Exhibit]

    @property
    def strangers(self) -> int:
        """How many predictions are not those that were counted."""
        shown = [*self.worst, *self.best]
        return sum(abs(one.score - one.counted) > TOLERANCE for one in shown)


def make_gallery(
    predictor: Predictor,
    counted: ImageSums,
    band: str,
    palette: Palette,
    number: int,
    track: Callable[[Sequence], Iterable],
) -> Gallery:
    """Predict and draw the images with the lowest and the highest scores.

    Args:
        predictor: the model and the images.
        counted: counts of each image, by which they are chosen.
        band: name of the one in which mean IoU is taken.
        palette: a colour for each class; None for ones that are told apart easily.
        number: of the worst, and of the best.
        track: shows progress over a sequence.
    """
    of_images = image_scores(counted, band)
    worst, best = choose_images(of_images, number)
    places = find_images(predictor.names, [counted.images[i] for i in (*worst, *best)])
    indices = [*zip((*worst, *best), places, strict=True)]
    exhibits = [
        make_exhibit(predictor, index, counted.images[i], float(of_images[i]), band, palette)
        for i, index in track(indices)
    ]
    return Gallery(exhibits[: len(worst)], exhibits[len(worst) :])


def find_images(available: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where images are in the test set, by their names with or without folder and ending."""
    places = {Path(name).stem: index for index, name in enumerate(available)}
    missing = [name for name in wanted if Path(name).stem not in places]
    if missing:
        raise ImagesMissingError(
            f'The counts are of other images than those of the test set in the config: '
            f'{missing[0]}, for one, is not among its {len(available):,}.'
        )
    return [places[Path(name).stem] for name in wanted]


def make_exhibit(
    predictor: Predictor, index: int, name: str, counted: float, band: str, palette: Palette
) -> Exhibit:
    """Predict and draw one image of the test set."""
    shown = predictor(index)
    width = band_width(band)
    sums = image_sums(shown.truth, shown.prediction, len(predictor.classes), widths=[width])
    found = scores(sums)
    score, everywhere = found[f'{band}/mIoU'], found['all/mIoU']
    errors = error_figure(
        shown.image, shown.truth, shown.prediction, predictor.classes, palette, width, name
    )
    attention = summary_figure(predictor.model, shown.inputs, shown.image, content=shown.content)
    picture = attention and embed(attention)
    return Exhibit(name, score, everywhere, counted, embed(errors), picture)


def embed(figure: Figure) -> Picture:
    """A figure as a picture within a page."""
    drawn, packed = BytesIO(), BytesIO()
    figure.savefig(drawn, format='png')
    picture = Image.open(drawn).convert('RGB')
    picture.thumbnail((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    picture.save(packed, 'WEBP', quality=QUALITY)
    source = f'data:image/webp;base64,{b64encode(packed.getvalue()).decode()}'
    return Picture(source, *picture.size)
