"""The decoders of segmentation_models_pytorch that take timm's Swin, if it is installed."""

import pytest
import torch

import mmbixt.timm  # noqa: F401 (for the names)

smp = pytest.importorskip('segmentation_models_pytorch')
DECODERS = ['Unet', 'UnetPlusPlus', 'MAnet', 'Linknet', 'FPN', 'PSPNet', 'UPerNet']
DECODERS += ['Segformer', 'DPT']
# all decoders with a made pyramid and with stages, one with the other families
MODELS = {
    'bixt_ti_l64_p16_pyramid': DECODERS,
    'xcit_nano_12_p16_pyramid': DECODERS[:1],
    'biformer_tiny': DECODERS[:1],
    'bisa_swin_tiny': DECODERS,
}
PAIRS = [(name, decoder) for name, decoders in MODELS.items() for decoder in decoders]


@pytest.mark.zoo
@pytest.mark.parametrize(('name', 'decoder'), PAIRS)
def test_decoder(name, decoder):
    model = getattr(smp, decoder)(f'tu-{name}', encoder_weights=None, classes=3).train()
    logits = model(torch.randn(2, 3, 128, 128))
    assert logits.shape == (2, 3, 128, 128)
    logits.square().mean().backward()
    unused = [key for key, p in model.named_parameters() if p.grad is None]
    if decoder == 'PSPNet':  # it uses the last of its levels
        unused = [key for key in unused if '.fpn1.' not in key]
    assert unused == [] or decoder == 'DPT'  # which takes features of the whole classifier
