"""The attentions of four papers, a file each; torch alone.

Each file has the equations, their definition in a few lines, a fast implementation, and the module
with the weights. :func:`by_definition` switches to the definitions.
"""

from mmbixt.attention.bidirectional import BidirectionalAttention, LatentAttention
from mmbixt.attention.cross_covariance import CrossCovarianceAttention
from mmbixt.attention.inverse import BidirectionalSelfAttention, BidirectionalWindowAttention
from mmbixt.attention.routing import FullAttention, RoutingAttention
from mmbixt.attention.windows import WindowAttention
from mmbixt.layers.definition import by_definition

__all__ = [
    'BidirectionalAttention',
    'BidirectionalSelfAttention',
    'BidirectionalWindowAttention',
    'CrossCovarianceAttention',
    'FullAttention',
    'LatentAttention',
    'RoutingAttention',
    'WindowAttention',
    'by_definition',
]
