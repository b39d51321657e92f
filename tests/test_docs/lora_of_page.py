"""LoRA by peft: the layers that docs/plain_torch.md names, and that adapters learn and merge.

Run by test_plain_torch.py.
"""

import ast
import copy
import re

import torch
from documents import ROOT, shown
from helpers import assert_close, image
from peft import LoraConfig, get_peft_model
from torch import nn
from variants import FAMILIES, build, those_with_linear_layers

from mmbixt import backbones


def linear_layers(model):
    return {name for name, m in model.named_modules() if type(m) is nn.Linear}


def check_adapters(config):
    """With adapters in all linear layers of a small backbone."""
    torch.manual_seed(0)
    plain = build(config).eval()
    options = LoraConfig(r=4, target_modules='all-linear', init_lora_weights=False)
    adapted = get_peft_model(copy.deepcopy(plain), options).eval()
    x = image(1, 48, 33)
    maps = adapted(x)
    sum(m.sin().sum() for m in maps).backward()
    trained = {name for name, p in adapted.named_parameters() if p.grad is not None}
    lora = {name for name, _ in adapted.named_parameters() if 'lora_' in name}
    assert trained == lora
    assert len(lora) == 2 * len(linear_layers(plain))
    with torch.no_grad(), adapted.disable_adapter():
        assert_close(adapted(x)[-1], plain(x)[-1])
    merged = adapted.merge_and_unload()
    assert type(merged) is type(plain)
    assert not torch.allclose(maps[-1], plain(x)[-1], rtol=0.01)
    assert_close(maps, merged(x), 1e-4)


for family in those_with_linear_layers(FAMILIES):
    check_adapters(FAMILIES[family])

names = {}
for code in (*shown('plain features'), *shown('plain segmentor'), *shown('plain lora')):
    exec(code, names)
assert type(names['model']) is names['Segmentor']
assert not any(m.training for m in names['model'].modules() if type(m) is nn.BatchNorm2d)

page = (ROOT / 'docs/plain_torch.md').read_text()
targets = {'XCiT': names['config'].target_modules}
for name, value in re.findall(r'^\| (\S+) \| `(r?[\'[].+?)`', page, re.MULTILINE):
    targets[name.replace('-', '')] = ast.literal_eval(value)
for network, layers in targets.items():
    model = getattr(backbones, network)()
    expected = {key for key in linear_layers(model) if '.attn.' in key}
    if network == 'BiFormer':
        expected = {key for key in expected if not key.startswith('stages.3.')}
    model = get_peft_model(model, LoraConfig(target_modules=layers))
    adapted = [key.split('.lora_A.')[0] for key, _ in model.named_modules() if '.lora_A.' in key]
    assert {key.removeprefix('base_model.model.') for key in adapted} == expected
    print(network)
