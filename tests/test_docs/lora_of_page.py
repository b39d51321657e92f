"""The LoRA of docs/plain_torch.md, by peft; run by test_plain_torch.py.

Here, which layers have adapters; that these learn and merge is in lora_of_families.py.
"""

import ast
import re

import lora_of_families  # noqa: F401 (its checks)
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
TARGETS = {'XCiT': names['config'].target_modules}
for name, value in re.findall(r'^\| (\S+) \| `(r?[\'[].+?)`', page, re.MULTILINE):
    TARGETS[name.replace('-', '')] = ast.literal_eval(value)


for network, targets in TARGETS.items():
    model = getattr(backbones, network)()
    linears = {key for key, m in model.named_modules() if type(m) is nn.Linear}
    expected = {key for key in linears if '.attn.' in key}
    if network == 'BiFormer':
        expected = {key for key in expected if not key.startswith('stages.3.')}
    model = get_peft_model(model, LoraConfig(target_modules=targets))
    adapted = [key.split('.lora_A.')[0] for key, _ in model.named_modules() if '.lora_A.' in key]
    assert {key.removeprefix('base_model.model.') for key in adapted} == expected
    print(network)
