import torch
from helpers import assert_close

from mmbixt.layers.maps import as_image


def test_compiled_or_not_an_image_is_the_map_with_channels_first():
    for make in (torch.randn, lambda *size: torch.randn(*size[::-1]).permute(3, 2, 1, 0)):
        x = make(1, 4, 5, 3).requires_grad_()
        compiled = torch.compile(as_image, fullgraph=True, backend='eager')
        for image in (as_image(x), compiled(x)):
            assert torch.equal(image, x.permute(0, 3, 1, 2))
            weight = torch.randn(image.shape)
            (grad,) = torch.autograd.grad((image * weight).sum(), x)
            assert_close(grad, weight.permute(0, 2, 3, 1))
        assert compiled(x).is_contiguous(memory_format=torch.channels_last)
