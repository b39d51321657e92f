"""What training takes from the file of a whole model, and which files it refuses."""

from pathlib import Path

import pytest
import torch
from helpers import assert_close, official_state
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from running import fresh_mmengine, small_segmentor
from torch import nn
from variants import VARIANTS

from mmbixt.backbones.published import classifier_config
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, unwrap
from mmbixt.engine.start import start_from

HEAD = dict(type='FCNHead', in_channels=16, channels=8, num_classes=2, num_convs=2)


@pytest.fixture
def config(tmp_path):
    """A segmentor of two classes."""
    cfg = small_segmentor(tmp_path, VARIANTS['xcit'])
    cfg.model.decode_head = HEAD
    cfg.default_hooks.load_from = dict(type='mmbixt.LoadFromHook')
    cfg.load_from = str(tmp_path / 'old.pth')
    cfg.train_cfg.max_iters = 0
    return cfg


@pytest.fixture
def write(config):
    """Writes the file of the same model with five classes, or with other changes."""

    def write(change=lambda state: state, **head):
        init_default_scope('mmseg')
        head = {**HEAD, 'num_classes': 5, **head}
        state = MODELS.build({**config.model, 'decode_head': head}).state_dict()
        state = change({k: x + 1 if x.is_floating_point() else x for k, x in state.items()})
        torch.save(dict(state_dict=state), config.load_from)
        return state

    return write


def begin(config):
    """The model before the first step, and the lines of the log that begin with load_from."""
    with fresh_mmengine():
        runner = Runner.from_cfg(config)
        runner.train()
    log = next(Path(runner.log_dir).glob('*.log')).read_text()
    assert 'do not match exactly' not in log  # mmengine's own message
    return runner.model.state_dict(), [x for x in log.splitlines() if ' - load_from=' in x]


def unlike(model, state):
    """Weights of the model that are not those of the file."""
    keys = [k for k, x in model.items() if k not in state or not torch.equal(x.cpu(), state[k])]
    return {key for key in keys if not key.endswith('num_batches_tracked')}


def test_layers_of_other_classes_start_anew_and_are_named(config, write):
    """With an average of the weights, too, which begins with them."""
    state = write()
    config.custom_hooks = [dict(type='EMAHook')]
    model, (said,) = begin(config)
    assert unlike(model, state) == {'decode_head.conv_seg.weight', 'decode_head.conv_seg.bias'}
    assert said.endswith(
        f'WARNING - load_from={config.load_from}: Initialised anew, because the numbers of outputs '
        'differ: decode_head.conv_seg (5 in the file, 2 here).'
    )


def test_parts_that_only_one_of_both_has_are_named(config, write):
    def change(state):
        state = {k: x for k, x in state.items() if k.startswith('backbone.')}
        return {**state, 'auxiliary_head.conv_seg.bias': torch.zeros(2)}

    state = write(change)
    model, (said,) = begin(config)
    assert all(key.startswith('decode_head.') for key in unlike(model, state))
    assert said.endswith(
        'Initialised anew, because the file has none: decode_head. In the file, but not in the '
        'model: auxiliary_head.'
    )


def test_models_that_convert_their_weights_do_so():
    """Position tables of mmpretrain's models, for images of another size."""
    init_default_scope('mmpretrain')
    arch = dict(embed_dims=32, num_layers=1, num_heads=2, feedforward_channels=32)
    vit = dict(type='VisionTransformer', arch=arch, patch_size=16)
    head = dict(type='VisionTransformerClsHead', num_classes=5, in_channels=32)
    small, large = (
        MODELS.build(dict(type='ImageClassifier', backbone=dict(vit, img_size=size), head=head))
        for size in (64, 128)
    )
    nn.init.normal_(small.backbone.pos_embed)
    weights, said = start_from(large, small.state_dict())
    assert said == ''
    large.load_state_dict(weights)
    assert_close(large.backbone.pos_embed[:, 0], small.backbone.pos_embed[:, 0])
    assert large.backbone.pos_embed.std() > 0
    with pytest.raises(CheckpointMismatchError, match='patch_embed'):
        start_from(large, {k: x[:1] if 'patch_embed' in k else x for k, x in weights.items()})


def test_the_same_model_is_loaded_without_a_word(config, write):
    state = write(num_classes=2)
    model, said = begin(config)
    assert (unlike(model, state), said) == (set(), [])


def without(name):
    return lambda state: {key: x for key, x in state.items() if not key.startswith(name)}


def backbone(prefix):
    def change(state):
        state = without('decode_head.')(state)
        return {prefix + key.removeprefix('backbone.'): x for key, x in state.items()}

    return change


ALONE = r"(?s:.*)The backbone fits\. To load it alone: .*old\.pth', prefix='backbone\.'\)\)$"
NO_MODEL = r"No weight of .*old\.pth begins with 'backbone\.'.* fits the backbone\.\n.*"


@pytest.mark.parametrize(
    ('change', 'head', 'message'),
    [
        (without('decode_head.convs.1.'), {}, rf'Missing in the file: 2 of 88 weights{ALONE}'),
        (without('nothing'), dict(channels=4), f'Of another shape.*: .*conv_seg.weight: {ALONE}'),
        (without('nothing'), dict(num_convs=3), rf'Not in the model: \d+ weights{ALONE}'),
        (without('backbone.'), {}, r"begins with 'backbone\.'"),
        (without(''), {}, r'old\.pth has no weights\.'),
        (without('backbone.blocks.1'), {}, r'old\.pth does not fit mmbixt\.XCiT'),
        (backbone(''), {}, NO_MODEL + r"checkpoint='.*old\.pth'\)\)$"),
        (backbone('model.encoder.'), {}, NO_MODEL + r"old\.pth', prefix='model\.encoder\.'\)\)$"),
    ],
)
def test_what_fits_by_half_is_refused(config, write, change, head, message):
    write(change, **head)
    with pytest.raises(CheckpointMismatchError, match=message), fresh_mmengine():
        Runner.from_cfg(config).train()


def test_a_run_of_another_model_is_not_resumed(config, write):
    write()
    config.resume = True
    message = r'old\.pth does not fit EncoderDecoder: (?s:.*)conv_seg.weight: \(5, 8, 1, 1\) in the'
    with pytest.raises(CheckpointMismatchError, match=message), fresh_mmengine():
        Runner.from_cfg(config).train()


@pytest.mark.parametrize('head', ['mmbixt.ClassifierHead', 'LinearClsHead'])
def test_classifiers(head):
    """Our head refuses other classes itself; files of the authors are renamed while they load."""
    init_default_scope('mmpretrain')
    config = classifier_config(dict(type='mmbixt.BiXT', depth=11), num_classes=10)
    config['head']['type'] = head
    state = unwrap(official_state('bixt_ti_l64_p16'))
    model = MODELS.build(config)
    with pytest.raises(CheckpointMismatchError, match=r'1000 classes|size mismatch for head\.fc'):
        start_from(model, state)
    own = unwrap({**model.state_dict(), 'head.fc.bias': torch.zeros(5)})
    own['head.fc.weight'] = torch.zeros(5, 192)
    if head == 'LinearClsHead':
        assert start_from(model, own)[1].endswith(': head.fc (5 in the file, 10 here)')
    else:
        with pytest.raises(CheckpointMismatchError, match='a classifier of 5 classes'):
            start_from(model, own)


def plain(classes, same=4):
    """A model of other parts than ours; a layer has scores of classes as inputs, as PointRend's."""
    head = dict(scores=nn.Linear(8, classes), points=nn.Linear(8 + classes, 4))
    head = nn.ModuleDict(dict(head, queries=nn.Embedding(classes, 4), same=nn.Linear(6, same)))
    return nn.ModuleDict(dict(backbone=nn.Linear(2, 3), neck=nn.Linear(3, 4), bbox_head=head))


def test_other_backbones_and_classes_as_inputs():
    model, state = plain(2), unwrap(plain(5).state_dict())
    weights, said = start_from(model, state)
    model.load_state_dict(weights)
    assert 'bbox_head.points (13 in the file, 10 here)' in said
    assert torch.equal(model.bbox_head.same.weight, state['bbox_head.same.weight'])
    for name in ('backbone.bias', 'neck.bias', 'bbox_head.same.weight'):  # no outputs
        with pytest.raises(CheckpointMismatchError, match=f'another shape.*: 1 of 11 .* {name}:'):
            start_from(model, unwrap({**state, name: torch.zeros(9, 8)}))
    rest = {key: x for key, x in state.items() if not key.startswith('backbone.')}
    with pytest.raises(CheckpointMismatchError, match=r'Missing in the file: 2 of 11 .*backbone'):
        start_from(model, unwrap(rest))
