"""Networks by name, their time and memory; for the tools, and for ``mmbixt.gpu_check``.

They are in the package, because ``mmbixt.gpu_check`` also works without a checkout.
"""
