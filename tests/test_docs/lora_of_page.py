"""LoRA by peft: the program of docs/plain_torch.md, and the layers that it names.

Run by test_plain_torch.py.
"""

import ast
import re

from documents import ROOT, shown
from peft import LoraConfig, get_peft_model
from torch import nn

from mmbixt import backbones

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
    get_peft_model(getattr(backbones, network)(), LoraConfig(target_modules='all-linear'))
    model = getattr(backbones, network)()
    linear = [key for key, module in model.named_modules() if type(module) is nn.Linear]
    expected = {key for key in linear if '.attn.' in key}
    if network == 'BiFormer':
        expected = {key for key in expected if not key.startswith('stages.3.')}
    model = get_peft_model(model, LoraConfig(target_modules=layers))
    adapted = [key.split('.lora_A.')[0] for key, _ in model.named_modules() if '.lora_A.' in key]
    assert {key.removeprefix('base_model.model.') for key in adapted} == expected
    print(network)
