"""Adapt a backbone of each family with LoRA, by peft; run by lora_of_page.py."""

import copy

import peft
import torch
from helpers import assert_close, image
from variants import FAMILIES, build, those_with_linear_layers


def check(config):
    torch.manual_seed(0)
    plain = build(config).eval()
    linears = [name for name, m in plain.named_modules() if type(m) is torch.nn.Linear]
    options = peft.LoraConfig(r=4, target_modules='all-linear', init_lora_weights=False)
    adapted = peft.get_peft_model(copy.deepcopy(plain), options).eval()
    x = image(1, 48, 33)
    maps = adapted(x)
    sum(m.sin().sum() for m in maps).backward()
    trained = {name for name, p in adapted.named_parameters() if p.grad is not None}
    lora = {name for name, _ in adapted.named_parameters() if 'lora_' in name}
    assert trained == lora
    assert len(lora) == 2 * len(linears)
    with torch.no_grad(), adapted.disable_adapter():
        assert_close(adapted(x)[-1], plain(x)[-1])
    merged = adapted.merge_and_unload()
    assert type(merged) is type(plain)
    assert not torch.allclose(maps[-1], plain(x)[-1], rtol=0.01)
    assert_close(maps, merged(x), 1e-4)


for name in those_with_linear_layers(FAMILIES):
    check(FAMILIES[name])
    print(name)
