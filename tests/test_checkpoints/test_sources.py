"""Published weights by their names, as configs use them."""

import zipfile
from collections import Counter
from unittest.mock import Mock

import pytest
import torch
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader
from test_checkpoints.layouts import build_meta, meta_state, random_state, saved, zipped

import mmbixt.registry  # noqa: F401
from mmbixt.backbones.xcit import ARCHS
from mmbixt.checkpoints.errors import CheckpointFileError, DownloadError
from mmbixt.checkpoints.sources import SOURCES, UnknownSourceError, find
from mmbixt.cli import run

BIXT_LAYOUTS = {
    'tiny-16': 'bixt_ti_l64_p16',
    'tiny-16-conv': 'bixt_ti_cnv_l64_p16',
    'tiny-4-d13': 'bixt_ti_l64_d13_p16s4',
    'tiny-8-conv-d13': 'bixt_ti_cnv_l64_d13_p8',
    'd256-16': 'bixt_ed256_l64_p16',
    'd256-ls-8': 'bixt_ed256LS_l64_p16s8',
}


@pytest.fixture
def publish(server, cache, monkeypatch):
    """Let a name lead to the server of the test, with this state dict behind it."""

    def publish(name, state):
        source = find(name)
        content = saved({'model': state})
        if source.is_zip:
            content = zipped({'exported/model.pth': content}, zipfile.ZIP_STORED)
        path = source.url.rsplit('/', 1)[1]
        server.files[path] = content
        monkeypatch.setitem(SOURCES, name, source._replace(url=server.url(path)))

    return publish


def arguments(source):
    """What the source says that it fills."""
    component, arguments = source.fills.split(' on ')[-1].split(': ')
    return dict(type=component, **eval(f'dict({arguments})'))


@pytest.mark.parametrize('name', BIXT_LAYOUTS)
def test_bixt_file_fills_what_its_source_says(name):
    model = arguments(SOURCES[f'bixt://{name}'])
    build_meta(MODELS.get(model.pop('type')), **model).load_state_dict(
        meta_state(BIXT_LAYOUTS[name])
    )


def test_published_file_through_init_cfg(publish, server):
    name, state = 'bixt://tiny-16', random_state('bixt_ti_l64_p16')
    publish(name, state)
    init_cfg = dict(type='Pretrained', checkpoint=name)
    backbone = MODELS.build({**arguments(SOURCES[name]), 'init_cfg': init_cfg})
    backbone.init_weights()
    own = backbone.state_dict()
    assert all(torch.equal(own[key], state[key]) for key in own if own[key].is_floating_point())
    CheckpointLoader.load_checkpoint(name)
    assert server.requests == 1


def test_table():
    """Some of each family, as the authors write them."""
    xcit, urls = 'https://dl.fbaipublicfiles.com/xcit', {s.url for s in SOURCES.values()}
    addresses = {
        'xcit://large24-p8-384-dist': f'{xcit}/xcit_large_24_p8_384_dist.pth',
        'xcit://small12-p16-dino': f'{xcit}/xcit_small_12_cp16_dino.pth',
        'xcit://ade-semfpn-small12-p16': f'{xcit}/ade/sem_fpn_xcit_small_12_p16.pth',
        'xcit://coco-maskrcnn-tiny12-p16': f'{xcit}/coco/maskrcnn_xcit_tiny_12_p16.pth',
    }
    assert {name: SOURCES[name].url for name in addresses} == addresses
    count = Counter(name.split('://')[0] for name in SOURCES)
    assert count == dict(bixt=17, xcit=42 + 4 + 24, biformer=5, swin=6)
    assert len(urls) == len(SOURCES) - 1  # swin://base and swin://mm-base
    assert len({source.file for source in SOURCES.values()}) == len(urls)
    assert SOURCES['xcit://coco-maskrcnn-medium24-p16'].figure == 'box AP 46.7, mask AP 42.0'
    # the published name of a file where it says something
    assert SOURCES['xcit://tiny12-p16'].file == 'xcit_tiny_12_p16_224.pth'
    assert SOURCES['bixt://tiny-16-d13'].file == 'bixt-tiny-16-d13.pth'
    configs = [arguments(source) for source in SOURCES.values() if 'XCiT: ' in source.fills]
    assert {config['arch'] for config in configs} == set(ARCHS)


def test_unknown_name_lists_similar_ones():
    with pytest.raises(UnknownSourceError, match=r'(?s)xcit://tiny12-p16.*tools/list_weights\.py'):
        CheckpointLoader.load_checkpoint('xcit://tiny_12_p16')


def test_broken_links_are_said_to_be_broken_without_a_traceback(publish, server, cache):
    publish('biformer://small', {})
    server.files.clear()
    with pytest.raises(SystemExit) as caught:
        run(lambda: CheckpointLoader.load_checkpoint('biformer://small'))
    message = str(caught.value)
    path = cache / 'biformer-small.pth'
    for part in ('DownloadError', '404', 'broken since March 2026', '/path/to/file.pth', str(path)):
        assert part in message


@pytest.fixture
def hub(monkeypatch):
    """What timm would ask for its files."""
    load = Mock(return_value={'w': torch.ones(2)})
    monkeypatch.setattr('timm.models.load_state_dict_from_hf', load)
    return load


def test_timm_downloads_its_own(hub):
    assert CheckpointLoader.load_checkpoint('timm://xcit_tiny_12_p16_224', 'cpu')['w'].sum() == 2
    hub.assert_called_once_with('timm/xcit_tiny_12_p16_224.fb_in1k', weights_only=True)


@pytest.mark.parametrize(
    ('name', 'error', 'message'),
    [
        ('xcit_tiny_12_p16', UnknownSourceError, r'timm\.list_pretrained'),
        ('flexivit_base.300ep_in1k', CheckpointFileError, 'format of its own'),
        ('xcit_tiny_12_p16_224', DownloadError, r'no route\n.*/path/to/file\.pth'),
    ],
)
def test_what_timm_does_not_have(hub, name, error, message):
    hub.side_effect = ConnectionError('no route')
    with pytest.raises(error, match=message):
        CheckpointLoader.load_checkpoint(f'timm://{name}')
