"""The kernels of Triton, in its interpreter: no GPU is needed, and none has run them yet."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from helpers import only_in_zoo, others_in_zoo
from op_checks import assert_same, learned, on
from torch import nn
from torch.utils._pytree import tree_leaves
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpretedFunction
from variants import VARIANTS, build

from mmbixt.gpu_check import parity
from mmbixt.gpu_check.cases import OPS
from mmbixt.gpu_check.lines import KERNELS
from mmbixt.layers import BidirectionalAttention
from mmbixt.ops import dispatch, use_ops
from mmbixt.ops.add_norm import add_norm
from mmbixt.ops.dispatch import PathError, recorded_choices
from mmbixt.ops.gpu import add_norm as norms
from mmbixt.ops.gpu import bias_gelu, launch

CASES = {name: make for name, make in OPS.items() if name.startswith(KERNELS)}
PRECISIONS = {precision.name: precision for precision in parity.PRECISIONS}


@pytest.fixture
def interpreter(monkeypatch):
    """As after ``TRITON_INTERPRET=1``, which Triton reads when it is imported."""
    monkeypatch.setenv('TRITON_INTERPRET', '1')
    monkeypatch.setattr(tl, 'sum', lambda x, axis: tl.reduce(x, axis, tl.standard._sum_combine))
    monkeypatch.setattr(tl, 'zeros', lambda shape, dtype: tl.full(shape, 0, dtype))
    kernels = [(launch, '_sum_parts')] + [
        (file, name) for file in (norms, bias_gelu) for name in ('_forward', '_backward')
    ]
    for file, name in kernels:
        monkeypatch.setattr(file, name, InterpretedFunction(getattr(file, name).fn))


@pytest.mark.usefixtures('interpreter')
@pytest.mark.parametrize('precision', others_in_zoo(PRECISIONS, ['fp32', 'bf16']))
@pytest.mark.parametrize('name', CASES)
def test_kernels_are_as_exact_as_the_plain_order(name, precision):
    """The interpreter (Triton 3.6) cuts digits off for bfloat16, where a GPU rounds."""
    found = parity.check(CASES[name], 'cpu', 'Triton', PRECISIONS[precision])
    assert found['status'] == 'ok', found


@pytest.mark.usefixtures('interpreter')
@pytest.mark.parametrize('part', [0, 1])
def test_inputs_may_be_views_and_a_result_unused(part):
    x, update = (torch.randn(12, 3, 4).transpose(0, 2).requires_grad_() for _ in range(2))
    inputs = [x, update, *learned(*[(12,)] * 4)]

    def run(x, update, bias, scale, *norm):
        return add_norm(x, update, bias, scale, None, *norm, 1e-6)[part]

    assert_same(on('triton', run, inputs), on('reference', run, inputs), 2e-6)


NETWORKS = {name: VARIANTS[name] for name in ('bixt', 'bixt conv, LPI', 'bixt, only early layers')}
NETWORKS['layer scale, latents, stochastic depth'] = VARIANTS['bixt /4, layer scale'] | dict(
    with_latents=True, drop_path_rate=0.5, patch_stride=16
)


@pytest.mark.usefixtures('interpreter')
@pytest.mark.parametrize('config', NETWORKS.values(), ids=NETWORKS)
def test_networks(config):
    network, x = build(config, num_latents=8).train(), torch.randn(2, 3, 33, 48)
    norms = [m for m in network.blocks.modules() if isinstance(m, nn.LayerNorm)]

    def run(*_):
        torch.manual_seed(1)
        return [y for y in tree_leaves(network(x)) if y is not None]

    weights = [p for p in network.parameters() if p.requires_grad]
    with torch.no_grad():  # so that no bias is zero and no scale small
        for p in weights:
            p += 0.3 * torch.randn_like(p) * (p.dim() == 1)
    with recorded_choices() as choices:
        ours = on('triton', run, weights)
    assert_same(ours, on('reference', run, weights), 2e-5)
    # all norms but the first two, which have nothing to add, and that of latents without an image
    count = sum(choice[:2] == ('add_norm', 'triton') for choice in choices)
    assert count == len(norms) - 3


@pytest.mark.usefixtures('interpreter')
def test_results_under_autocast_have_the_dtypes_of_the_plain_order():
    network, x = build(VARIANTS['bixt /4, layer scale']), torch.randn(1, 3, 17, 16)
    run = torch.autocast('cpu', torch.float16)(lambda *_: network(x))
    ours, plain = (on(path, run, [*network.parameters()]) for path in ('triton', 'reference'))
    assert [y.dtype for y in ours[0]] == [y.dtype for y in plain[0]]
    assert_same(ours, plain, 2e-2)


@only_in_zoo
@pytest.mark.usefixtures('interpreter', 'fresh_compiler')
def test_compiled():
    network, x = build(VARIANTS['bixt']), torch.randn(1, 3, 17, 16)
    weights = list(network.parameters())
    compiled = torch.compile(network, fullgraph=True, backend='aot_eager')
    ours = on('triton', lambda *_: compiled(x), weights)
    assert_same(ours, on('reference', lambda *_: network(x), weights), 2e-5)


@pytest.mark.usefixtures('interpreter')
def test_modules_that_are_looked_at_are_called():
    network, seen = build(VARIANTS['bixt']), []
    layer = network.blocks[1].cross_attention_latents_token.mlp_pat.fc1
    handle = layer.register_forward_hook(lambda *_: seen.append(1))

    def paths():
        with use_ops('triton'), recorded_choices() as choices:
            network(torch.randn(1, 3, 32, 32))
        return {choice.path for choice in choices}

    assert 'triton' not in paths()
    assert seen == [1]
    handle.remove()
    assert 'triton' in paths()
    network.with_cp = True  # layers that are computed again are called, too
    assert 'triton' not in paths()


def test_a_path_that_cannot_run_says_why(monkeypatch):
    monkeypatch.delenv('TRITON_INTERPRET', raising=False)
    given = CASES['residual: one token']()
    with pytest.raises(PathError, match='the tensors are on cpu, and TRITON_INTERPRET=1'):
        on('triton', *given)
    given[1][0].data = given[1][0].data.double()
    with pytest.raises(PathError, match=r'torch\.float64, and the kernels compute in float32'):
        on('triton', *given)
    monkeypatch.setattr(dispatch, 'HAS_TRITON', False)
    with pytest.raises(PathError, match='Triton is not installed'):
        on('triton', *given)
    with use_ops('triton'):  # other ops are as in `auto`
        assert BidirectionalAttention(8, 2)(torch.randn(1, 3, 8), torch.randn(1, 5, 8))


@pytest.mark.usefixtures('interpreter')
def test_second_derivatives_are_refused():
    for name in ('residual: one token', 'gelu: one token'):
        function, inputs = CASES[name]()
        with use_ops('triton'):
            out = tree_leaves(function(*inputs))[-1]
        with pytest.raises(RuntimeError, match='has no derivatives'):
            torch.autograd.grad(out.sum(), inputs[:1], create_graph=True)


# --- Compiled, without a GPU ----------------------------------------------------------------------

POINTERS = dict(mean='fp32', rstd='fp32', parts='fp32')  # the others are tensors of tokens
NUMBERS = dict(rows='i32', tokens='i32', width='i32', count='i32', eps='fp32')
ROWS, COLUMNS = launch.tile_of(192)
KERNELS_AND_SIZES = {
    'add_norm': (norms._forward, dict(C=192, ROWS=ROWS, BLOCK=COLUMNS)),
    'add_norm, backward': (norms._backward, dict(C=192, ROWS=ROWS, BLOCK=COLUMNS)),
    'bias_gelu': (bias_gelu._forward, dict(ROWS=bias_gelu.ROWS, BLOCK=bias_gelu.BLOCK)),
    'bias_gelu, backward': (bias_gelu._backward, dict(ROWS=bias_gelu.ROWS, BLOCK=bias_gelu.BLOCK)),
    'sum_parts': (launch._sum_parts, dict(STEP=16, BLOCK=64)),
}


@pytest.mark.parametrize('capability', [80, 90])
@pytest.mark.parametrize('name', KERNELS_AND_SIZES)
def test_kernels_compile_without_spilling_registers(name, capability, tmp_path, monkeypatch):
    monkeypatch.setenv('TRITON_CACHE_DIR', str(tmp_path))
    kernel, sizes = KERNELS_AND_SIZES[name]
    names = dict(enumerate(kernel.arg_names))
    kinds = NUMBERS | dict.fromkeys(sizes, 'constexpr')
    signature = {n: kinds.get(n) or f'*{POINTERS.get(n, "bf16")}' for n in names.values()}
    constants = {(i,): sizes[n] for i, n in names.items() if n in sizes}
    aligned = {(i,): [['tt.divisibility', 16]] for i, n in names.items() if n not in kinds}
    source = ASTSource(kernel, signature, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget('cuda', capability, 32))
    (tmp_path / 'kernel').write_bytes(compiled.asm['cubin'])
    tool = Path(nvidia.__file__).parent / 'bin/cuobjdump'
    command = [tool, '-res-usage', tmp_path / 'kernel']
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {key: int(value) for key, value in re.findall(r'(REG|STACK|LOCAL):(\d+)', usage)}
    assert used['STACK'] == used['LOCAL'] == 0
    assert used['REG'] <= 128
    assert compiled.metadata.shared <= 8192
