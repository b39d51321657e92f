"""mmengine's stock functions read files safely, and published weights by their names."""

import zipfile
from collections import Counter
from unittest.mock import Mock

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader, Runner, checkpoint, load_checkpoint
from test_checkpoints.layouts import build_meta, meta_state, random_state, saved, zipped
from torch.utils.data import DataLoader

import mmbixt.registry  # noqa: F401
from mmbixt.backbones.xcit import ARCHS
from mmbixt.checkpoints.errors import CheckpointFileError, DownloadError
from mmbixt.checkpoints.loader import load, load_from_timm, register_checkpoint_readers
from mmbixt.checkpoints.sources import SCHEMES, SOURCES, UnknownSourceError, find
from mmbixt.cli import run


def test_readers_of_files_names_and_urls():
    readers = {
        'a/file.pth': load,
        **dict.fromkeys(SCHEMES, load),  # xcit:// and so on
        'timm://name': load_from_timm,
        find('xcit://ade-upernet-tiny12-p8').url: load,  # as in metafiles
        'https://host/file.pth': checkpoint.load_from_http,
        'https://download.openmmlab.com/mmdetection/x.pth': checkpoint.load_from_http,
    }
    for name, reader in readers.items():
        assert CheckpointLoader._get_checkpoint_loader(name) is reader


@pytest.mark.parametrize('scheme', ['', 'xcit://'])
def test_readers_of_other_packages_are_kept(monkeypatch, scheme):
    monkeypatch.setitem(CheckpointLoader._schemes, scheme, checkpoint.load_from_http)
    log = Mock()
    monkeypatch.setattr('mmbixt.checkpoints.loader.print_log', log)
    register_checkpoint_readers()
    assert CheckpointLoader._schemes[scheme] is checkpoint.load_from_http
    assert 'load_from_http, not by mmbixt' in log.call_args.args[0]


def test_home_directory(save, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    save({'state_dict': torch.nn.Linear(2, 2).state_dict()})
    load_checkpoint(torch.nn.Linear(2, 2), '~/saved.pth', strict=True)


def test_which_of_two_sets_of_weights_is_used_is_said(save, monkeypatch):
    log = Mock()
    monkeypatch.setattr('mmbixt.checkpoints.loader.print_log', log)
    ones, twos = ({'a': torch.full((2,), value)} for value in (1, 2))
    load(save({'model': ones, 'epoch': 3}))
    assert not log.called
    file = save({'model_ema': twos, 'model': ones})
    assert load(file)['state_dict']['a'].tolist() == [1, 1]
    assert log.call_args.args[0] == f"{file}: 'model' is used, not 'model_ema'."


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, mode):
        return {'loss': self.layer(x).square().mean()}


def runner(folder, iterations, **options):
    torch.manual_seed(0)
    return Runner(
        Model(),
        str(folder),
        DataLoader([dict(x=torch.full((2,), float(i))) for i in range(8)], batch_size=2),
        train_cfg=dict(by_epoch=False, max_iters=iterations),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=[
            dict(type='LinearLR', start_factor=0.1, begin=0, end=2, by_epoch=False),
            dict(type='MultiStepLR', milestones=[3], by_epoch=False),
        ],
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=2, by_epoch=False)),
        experiment_name=f'{folder.name}_{iterations}_{len(options)}',
        randomness=dict(seed=0),
        **options,
    )


def test_stock_runner_resumes_exactly(tmp_path):
    whole = runner(tmp_path / 'whole', 6)
    whole.train()
    runner(tmp_path / 'parts', 4).train()
    resumed = runner(tmp_path / 'parts', 6, resume=True)
    resumed.train()
    assert resumed.iter == 6
    for first, second in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(first, second)
    loss = load(str(tmp_path / 'parts/iter_6.pth'))['message_hub']['log_scalars']['train/loss']
    assert (type(loss), len(loss.data[0])) == (HistoryBuffer, 6)
    assert loss.mean() > 0  # its functions are restored


@pytest.fixture
def publish(server, cache, monkeypatch):
    """Serve a state dict from the local server under the name of published weights."""

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
    """The model of a source as a config."""
    component, arguments = source.fills.split(' on ')[-1].split(': ')
    return dict(type=component, **eval(f'dict({arguments})'))


LAYOUTS = {
    'tiny-16-conv': 'bixt_ti_cnv_l64_p16',
    'tiny-8-conv-d13': 'bixt_ti_cnv_l64_d13_p8',
    'd256-ls-8': 'bixt_ed256LS_l64_p16s8',
}


@pytest.mark.parametrize('name', LAYOUTS)
def test_bixt_file_fits_the_model_of_its_source(name):
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
SOME = {  # our name: (the authors' file, their result)
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


def test_broken_links_are_explained_without_a_traceback(publish, server, cache):
    publish('biformer://small', {})
    server.files.clear()
    with pytest.raises(SystemExit) as caught:
        run(lambda: CheckpointLoader.load_checkpoint('biformer://small'))
    path = str(cache / 'biformer-small.pth')
    for part in ('DownloadError', '404', 'broken since March 2026', '/path/to/file.pth', path):
        assert part in str(caught.value)


TIMM = {  # name: error without a connection
    'xcit_tiny_12_p16': (UnknownSourceError, r'timm\.list_pretrained'),
    'flexivit_base.300ep_in1k': (CheckpointFileError, 'has its own format'),
    'xcit_tiny_12_p16_224': (DownloadError, r'no route\n.*/path/to/file\.pth'),
}


@pytest.mark.parametrize('name', TIMM)
def test_timm_weights(monkeypatch, name):
    error, message = TIMM[name]
    hub = Mock(side_effect=[ConnectionError('no route'), {'w': torch.ones(2)}])
    monkeypatch.setattr('timm.models.load_state_dict_from_hf', hub)
    with pytest.raises(error, match=message):
        CheckpointLoader.load_checkpoint(f'timm://{name}')
    if error is DownloadError:
        assert CheckpointLoader.load_checkpoint(f'timm://{name}', 'cpu')['w'].sum() == 2
        hub.assert_called_with('timm/xcit_tiny_12_p16_224.fb_in1k', weights_only=True)
