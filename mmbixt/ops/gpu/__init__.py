"""Kernels for GPUs, in Triton. None has run on a GPU yet: only in Triton's interpreter.

Biases of linear layers are added by the kernel after the product. Its backward pass, which reads
the gradient of the product anyway, sums this gradient over the tokens for the bias.
"""
