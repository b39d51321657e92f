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


LAYOUTS = {
    'tiny-16-conv': 'bixt_ti_cnv_l64_p16',
    'tiny-8-conv-d13': 'bixt_ti_cnv_l64_d13_p8',
    'd256-ls-8': 'bixt_ed256LS_l64_p16s8',
}


@pytest.mark.parametrize('name', LAYOUTS)
def test_bixt_file_fills_what_its_source_says(name):
    model = arguments(SOURCES[f'bixt://{name}'])
    build_meta(MODELS.get(model.pop('type')), **model).load_state_dict(meta_state(LAYOUTS[name]))


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


XCIT = 'https://dl.fbaipublicfiles.com/xcit/'
SOME = {  # the names of the files as the authors write them, the results that they state
    'tiny12-p16': ('xcit_tiny_12_p16_224.pth', 'top-1 77.1'),
    'large24-p8-384-dist': ('xcit_large_24_p8_384_dist.pth', ''),
    'small12-p16-dino': ('xcit_small_12_cp16_dino.pth', ''),
    'ade-semfpn-small12-p16': ('ade/sem_fpn_xcit_small_12_p16.pth', 'mIoU 43.9'),
    'coco-maskrcnn-tiny12-p16': ('coco/maskrcnn_xcit_tiny_12_p16.pth', 'box AP 42.7, mask AP 38.5'),
}


def test_table():
    for name, (file, figure) in SOME.items():
        source = SOURCES[f'xcit://{name}']
        assert (source.url, source.figure) == (XCIT + file, figure)
    bixt = SOURCES['bixt://tiny-16-d13-384']
    assert (bixt.url[-8:], bixt.figure) == ('52882955', 'top-1 82.15')
    count = Counter(name.split('://')[0] for name in SOURCES)
    assert count == dict(bixt=17, xcit=42 + 4 + 24, biformer=5, swin=6)
    files = {source.file for source in SOURCES.values()}
    assert len(files) == len(SOURCES) - 1  # swin://base and swin://mm-base
    assert {'xcit_tiny_12_p16_224.pth', 'bixt-tiny-16-d13.pth'} < files
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
    path = str(cache / 'biformer-small.pth')
    for part in ('DownloadError', '404', 'broken since March 2026', '/path/to/file.pth', path):
        assert part in str(caught.value)


TIMM = {  # name: what happens without a connection
    'xcit_tiny_12_p16': (UnknownSourceError, r'timm\.list_pretrained'),
    'flexivit_base.300ep_in1k': (CheckpointFileError, 'format of its own'),
    'xcit_tiny_12_p16_224': (DownloadError, r'no route\n.*/path/to/file\.pth'),
}


@pytest.mark.parametrize('name', TIMM)
def test_timm_downloads_its_own(monkeypatch, name):
    error, message = TIMM[name]
    hub = Mock(side_effect=[ConnectionError('no route'), {'w': torch.ones(2)}])
    monkeypatch.setattr('timm.models.load_state_dict_from_hf', hub)
    with pytest.raises(error, match=message):
        CheckpointLoader.load_checkpoint(f'timm://{name}')
    if error is DownloadError:
        assert CheckpointLoader.load_checkpoint(f'timm://{name}', 'cpu')['w'].sum() == 2
        hub.assert_called_with('timm/xcit_tiny_12_p16_224.fb_in1k', weights_only=True)
